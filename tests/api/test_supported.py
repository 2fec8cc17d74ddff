"""An unsupported JAX: fs.jit behaves as jax.jit, and one warning names the supported versions."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import jax
import jax.extend.core
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch import supported
from fusionstitch.compiler import builders
from fusionstitch.errors import FusionStitchWarning, StitchError
from fusionstitch.execution import path as execution_path
from fusionstitch.hlo.verdict import allow

EMULATE = fs.Options(backend="emulate")
X = jnp.ones((4, 6))
RANGE = r"works with JAX 0\.10\.2 and newer, below 0\.13"


def mixed(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x) * x.sum(0)


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAX of another version, which lacks a door that the emulator goes through."""
    monkeypatch.setattr(jax, "__version__", "0.7.2")
    monkeypatch.delattr(jax.extend.core, "get_opaque_trace_state")
    monkeypatch.setattr(execution_path, "_said", set())


@pytest.mark.usefixtures("old")
def test_functions_run_as_under_jax_jit_with_one_warning() -> None:
    stitched = fs.jit(mixed, options=EMULATE)
    with pytest.warns(FusionStitchWarning, match=f"JAX 0.7.2 is not supported: .*{RANGE}"):
        assert (stitched(X) == mixed(X)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once a process, however many functions there are
        assert (fs.jit(mixed, options=EMULATE)(X) == mixed(X)).all()
        assert jax.grad(lambda x: stitched(x).sum())(X).shape == X.shape
        compiled = stitched.lower(X).compile()
        assert (compiled(X) == mixed(X)).all()
        assert compiled.kernels == ()
        assert "JAX 0.7.2 is not supported" in compiled.explain()


@pytest.mark.usefixtures("old")
def test_only_where_something_would_be_stitched(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (fs.jit(mixed)(X) == mixed(X)).all()  # no GPU: jax.jit in any case, and nothing to say
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    with pytest.warns(FusionStitchWarning, match=RANGE):
        assert (fs.jit(mixed)(X) == mixed(X)).all()


@pytest.mark.usefixtures("old")
def test_what_was_asked_for_explicitly_says_so() -> None:
    strict = EMULATE.replace(fallback="error")
    with pytest.raises(StitchError, match=RANGE):
        fs.jit(mixed, options=strict)(X)
    with pytest.raises(StitchError, match=RANGE):
        fs.report(mixed, X, options=EMULATE)
    with pytest.raises(StitchError, match=RANGE):
        fs.tune(mixed, X)
    with pytest.warns(FusionStitchWarning, match=f"install.. does nothing: .*{RANGE}"):
        assert not fs.install(EMULATE)


@pytest.mark.parametrize(
    ("version", "able"),
    [
        ("0.10.1", False),
        ("0.10.2", True),
        ("0.10.2.dev20260101", True),
        ("0.11", True),
        ("0.12.9", True),
        ("0.13.0.dev20270101", False),
        ("0.13", False),
        ("1.0", False),
        ("unknown", False),
    ],
)
def test_the_range(version: str, able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "__version__", version)
    assert bool(supported.jax_version()) is able


def test_the_range_is_the_package_s() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    since, before = (".".join(map(str, v)) for v in (supported.SINCE, supported.BEFORE))
    assert f"jax>={since},<{before}" in project["dependencies"]
