"""Several functions in one process, several processes on one cache, threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from tests.kept import kept_sort

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAPER = fs.Options(backend="emulate", scorer="paper", fallback="error")


def normalised(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def assert_close(ours: Any, theirs: Any) -> None:
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-6, atol=2e-7)


def test_one_function_of_many_shapes(host_compiler: str) -> None:
    jitted = fs.jit(normalised, options=PAPER)
    shapes = [(16, 24), (24, 16), (1, 5), (33, 7), (2, 300), (16, 24)]
    names = set()
    for shape in shapes:
        x = draw(*shape)
        assert_close(jitted(x), jax.jit(normalised)(x))
        names |= {kernel.name for kernel in jitted.lower(x).compile().kernels}
    assert len(names) == len(set(shapes))
    with jax.enable_x64(True):
        wide = jitted(draw(16, 24).astype(np.float64))
        assert wide.dtype == np.float64
    half = jitted(jnp.asarray(draw(16, 24), jnp.bfloat16))
    assert half.dtype == jnp.bfloat16


def test_many_functions_in_one_process(host_compiler: str) -> None:
    """Equal kernels of different programs share an image, unlike ones of one name do not mix."""
    x, y = draw(12, 20), draw(12, 20, seed=1)

    def scaled(factor: float) -> Any:
        def fun(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
            return normalised(x) * factor, normalised(kept_sort(y)) - factor

        return fun

    funs = [scaled(factor) for factor in (1.0, 2.0, 3.0)]
    jitted = [fs.jit(fun, options=PAPER) for fun in funs]
    for _ in range(2):
        for ours, fun in zip(jitted, funs, strict=True):
            assert_close(ours(x, y), jax.jit(fun)(x, y))

    def outer(x: jax.Array, y: jax.Array) -> jax.Array:
        return sum(fun(x, y)[0] + fun(y, x)[1] for fun in jitted)

    theirs = jax.jit(lambda x, y: sum(f(x, y)[0] + f(y, x)[1] for f in funs))
    assert_close(fs.jit(outer, options=PAPER)(x, y), theirs(x, y))
    assert_close(jax.jit(outer)(x, y), theirs(x, y))


def test_the_result_of_one_is_the_argument_of_another(host_compiler: str) -> None:
    step = fs.jit(lambda p, x: p - 0.1 * normalised(p * x), options=PAPER, donate_argnums=0)
    loss = fs.jit(lambda p, x: (normalised(p) * x).sum(), options=PAPER)
    ours = theirs = jnp.asarray(draw(10, 12))
    x = draw(10, 12, seed=3)
    plain = jax.jit(lambda p, x: p - 0.1 * normalised(p * x))
    for _ in range(5):
        theirs = plain(theirs, x)
        ours = step(jnp.array(ours), x)
        assert_close(loss(ours, x), (normalised(theirs) * x).sum())
    assert_close(ours, theirs)


def test_threads_trace_and_run_at_once(host_compiler: str) -> None:
    jitted = fs.jit(normalised, options=PAPER)
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            x = draw(8 + number % 3, 14, seed=number)
            for _ in range(3):
                assert_close(jitted(x), jax.jit(normalised)(x))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


#: Runs two functions under fs.jit with JAX's persistent compilation cache on; prints JSON.
_SCRIPT = """
import json, sys
import jax, numpy as np
import fusionstitch as fs
from tests.integration.test_processes import PAPER, draw, normalised
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
x = draw(16, 24)
step = fs.jit(lambda x: (normalised(x), jax.numpy.sort(normalised(x * 2.0))), options=PAPER)
values = [np.asarray(v) for v in (*step(x), fs.jit(normalised, options=PAPER)(x))]
compiled = step.lower(x).compile()
print(json.dumps({
    "bytes": [v.tobytes().hex() for v in values],
    "hits": hits.count("/jax/compilation_cache/cache_hits"),
    "kernels": [kernel.name for kernel in compiled.kernels],
    "explained": "pattern" in compiled.explain(),
}))
"""


def _process(cache: Path, kernels: Path, script: str = _SCRIPT) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(cache)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "FUSIONSTITCH_CACHE_DIR": str(kernels)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_persistent_compilation_cache(host_compiler: str, tmp_path: Path) -> None:
    """A second process takes compiled programs from the cache, kernels and plans included."""
    first = _process(tmp_path / "jax", tmp_path / "kernels")
    second = _process(tmp_path / "jax", tmp_path / "kernels")
    assert second["hits"] > first["hits"]
    assert first["kernels"]
    for key in ("bytes", "kernels", "explained"):
        assert second[key] == first[key]
    # kernels travel inside compiled programs: losing fusionstitch's own cache costs time only
    third = _process(tmp_path / "jax", tmp_path / "others")
    assert third["bytes"] == first["bytes"]


def test_processes_start_on_an_empty_cache_at_once(host_compiler: str, tmp_path: Path) -> None:
    results: list[dict[str, Any]] = []

    def work() -> None:
        results.append(_process(tmp_path / "jax", tmp_path / "kernels"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert len({json.dumps(one["bytes"]) for one in results}) == 1
