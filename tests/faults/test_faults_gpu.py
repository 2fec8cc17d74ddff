"""Faults on a GPU: code that does not load, rejected launches, missing memory."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.compiler.built import Built
from fusionstitch.errors import FusionStitchWarning, StitchError
from fusionstitch.runtime import nvrtc
from fusionstitch.runtime.cache import Store

pytestmark = pytest.mark.gpu

X = np.random.default_rng(0).standard_normal((512, 768), np.float32)


def program() -> Callable[[Any], Any]:
    def normalised(x: jax.Array) -> jax.Array:
        s = jax.nn.softmax(x)
        return s * (s * x).sum(0)

    return normalised


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Has kernels built as always, and launched from other artifacts; what became of a module is
    kept for nobody else."""
    plain, store = builders.cuda, Store(tmp_path)
    monkeypatch.setattr(builders, "store", lambda: store)

    def change(**changes: Any) -> None:
        def cuda(*args: Any) -> Any:
            build = plain(*args)

            def changed(kernels: Any) -> list[Any]:
                return [
                    dataclasses.replace(one, artifact=_other(one, changes))
                    if isinstance(one, Built)
                    else one
                    for one in build(kernels)
                ]

            return changed

        monkeypatch.setattr(builders, "cuda", cuda)

    yield change
    jax.clear_caches()


def _other(built: Built, changes: dict[str, Any]) -> Any:
    found = {k: v(built.artifact) if callable(v) else v for k, v in changes.items()}
    return dataclasses.replace(built.artifact, **found)


def _key(number: int) -> str:
    """A key of its own: what was loaded under the right one stays."""
    return f"{number:064x}"


def _for_another_device(artifact: Any) -> bytes:
    """The code of a kernel of the same name, for a device that is not here."""
    source = f'extern "C" __global__ void {artifact.entry}(float* x) {{ x[0] = 1.0f; }}'
    return nvrtc.compile(source, "sm_75").image


FAULTS: dict[str, dict[str, Any]] = {
    "no code": {"image": b"no code at all", "key": _key(1)},
    "half of the code": {"image": lambda a: a.image[: len(a.image) // 2], "key": _key(2)},
    "code for another device": {"image": _for_another_device, "key": _key(3)},
    "no kernel of that name": {"entry": "nobody", "key": _key(4)},
    "no code for that key": {"image": b"", "key": _key(5)},
    "too many threads": {"block": 4096, "key": _key(6)},
    "no blocks": {"grid": 0, "key": _key(7)},
    "too much shared memory": {"shared_bytes": 1 << 20, "key": _key(8)},
    "too many blocks to be resident": {"grid": 1 << 20, "cooperative": True, "key": _key(9)},
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_that_does_not_run(name: str, changed: Callable[..., None]) -> None:
    expected = np.asarray(jax.jit(program())(X))
    changed(**FAULTS[name])
    jitted = fs.jit(program(), options=fs.Options(scorer="paper"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        results = [np.asarray(jitted(X)) for _ in range(2)]
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-7)
    [warning] = [str(w.message) for w in said if issubclass(w.category, FusionStitchWarning)]
    assert "Its kernels could not be run" in warning
    with pytest.raises(StitchError, match="could not be run"):
        fs.jit(program(), options=fs.Options(scorer="paper", fallback="error"))(X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="fusionstitch"):
        jax.block_until_ready(
            fs.jit(program(), options=fs.Options(scorer="paper")).lower(X).compile()(X)
        )


def test_without_device_memory_the_error_is_jax_s(changed: Callable[..., None]) -> None:
    """A program for which XLA has no memory either raises what it raises under jax.jit."""
    limit = jax.devices()[0].memory_stats()["bytes_limit"]
    rows = int(limit * 1.1) // (4 * 1024)  # fails at once: other processes keep their memory

    def huge(x: jax.Array) -> jax.Array:
        y = jnp.broadcast_to(x, (rows, 1024)) * 2
        return y - y.sum(0), y + y.sum(1, keepdims=True)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
            jax.block_until_ready(fs.jit(huge, options=fs.Options(scorer="paper"))(X[:1, :1]))
    small = fs.jit(program(), options=fs.Options(scorer="paper", fallback="error"))
    np.testing.assert_allclose(
        np.asarray(small(X)), np.asarray(jax.jit(program())(X)), rtol=1e-5, atol=1e-7
    )


def test_donated_arguments_are_not_lost_silently(changed: Callable[..., None]) -> None:
    """Where a failed run took its arguments along, the error is raised, and later calls run."""
    changed(entry="nobody", key=_key(10))
    jitted = fs.jit(program(), options=fs.Options(scorer="paper"), donate_argnums=0)
    x = jnp.asarray(X)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = np.asarray(jitted(x))
    except jax.errors.JaxRuntimeError as error:
        assert "fusionstitch" in str(error)  # noqa: PT017
    else:
        np.testing.assert_allclose(result, np.asarray(jax.jit(program())(X)), rtol=1e-5, atol=1e-7)
