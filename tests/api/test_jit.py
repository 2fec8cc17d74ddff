"""fs.jit next to jax.jit: same results, same traces, same composition; on the emulator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.errors import FusionStitchWarning, StitchError

EMULATE = fs.Options(backend="emulate")


def emulated(fun: Callable[..., Any], **keywords: Any) -> Any:
    return fs.jit(fun, options=EMULATE, **keywords)


def mixed(x: jax.Array) -> jax.Array:
    """A row softmax scaled by column sums: XLA needs several kernels, stitching one."""
    e = jnp.exp(x - x.max(-1, keepdims=True))
    s = e / e.sum(-1, keepdims=True)
    return s * (s * x).sum(0)


X = jnp.asarray(np.random.default_rng(0).standard_normal((16, 24), np.float32))


def assert_same(ours: Any, theirs: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.aval == b.aval
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-6, atol=2e-7)


def test_is_a_wrapped_function() -> None:
    jitted = emulated(mixed)
    assert isinstance(jitted, jax.stages.Wrapped)
    assert jitted.__name__ == "mixed"
    assert jitted.__wrapped__ is mixed


def test_bare_and_as_a_factory() -> None:
    @fs.jit
    def bare(x: jax.Array) -> jax.Array:
        return x + 1

    @fs.jit(static_argnums=1, options=EMULATE)
    def made(x: jax.Array, n: int) -> jax.Array:
        return mixed(x) * n

    assert_same(bare(X), X + 1)
    assert_same(made(X, 3), mixed(X) * 3)


def test_unknown_keywords_are_named() -> None:
    with pytest.raises(TypeError, match=r"unexpected keywords donate; .*donate_argnums"):
        fs.jit(mixed, donate=0)
    with pytest.raises(TypeError, match=r"takes a fusionstitch.Options, not dict"):
        fs.jit(mixed, options={"backend": "emulate"})  # type: ignore[arg-type]


def test_without_a_gpu_it_is_jax_jit() -> None:
    jitted = fs.jit(mixed)
    assert_same(jitted(X), jax.jit(mixed)(X))
    compiled = jitted.lower(X).compile()
    assert compiled.stitched is None
    assert compiled.kernels == ()
    assert_same(compiled(X), jax.jit(mixed)(X))


def test_stages() -> None:
    jitted = emulated(mixed)
    compiled = jitted.lower(X).compile()
    assert [kernel.outputs[0].dims for kernel in compiled.kernels] == [X.shape]
    assert "__global__" in compiled.kernels[0].source
    assert len(compiled.plan) == 1
    assert compiled.fallbacks == ()
    assert "fusionstitch_launch" in compiled.as_text()
    assert compiled.out_info.shape == X.shape
    assert_same(compiled(X), jax.jit(mixed)(X))
    # what is lowered is the user's program, as on a GPU
    assert jitted.lower(X).as_text() == jax.jit(mixed).lower(X).as_text()
    assert jitted.trace(X).lower().cost_analysis() == jax.jit(mixed).lower(X).cost_analysis()
    # the plan of a cached trace is found again
    again = jitted.trace(X).lower().compile()
    assert again.stitched is compiled.stitched
    assert str(jitted.trace(X).jaxpr) == str(jax.jit(mixed).trace(X).jaxpr)


def test_x64_toggles() -> None:
    jitted = emulated(mixed)
    assert jitted(X).dtype == jnp.float32
    with jax.enable_x64(True):
        x = jnp.asarray(np.asarray(X, np.float64))
        assert_same(jitted(x), jax.jit(mixed)(x))
        assert jitted(x).dtype == jnp.float64


def test_outermost_jit_stitches() -> None:
    inner = emulated(mixed)
    outer = emulated(lambda x: inner(x) + 1)
    compiled = outer.lower(X).compile()
    assert compiled.fallbacks == ()
    assert len(compiled.kernels) == 1
    assert_same(compiled(X), mixed(X) + 1)
    value_and_grad = emulated(jax.value_and_grad(lambda x: (inner(x) ** 2).sum()))
    assert_same(value_and_grad(X), jax.value_and_grad(lambda x: (mixed(x) ** 2).sum())(X))


def test_methods() -> None:
    class Model:
        scale = 2.0

        @fs.jit(static_argnums=0, options=EMULATE)
        def apply(self, x: jax.Array) -> jax.Array:
            return mixed(x) * self.scale

    assert_same(Model().apply(X), mixed(X) * 2)


def test_what_jax_cannot_export_runs_unstitched_with_the_reason() -> None:
    kept = jax.new_ref(X)

    def fun(x: jax.Array) -> jax.Array:
        kept[...] = mixed(x)
        return kept[...]

    jitted = emulated(fun)
    with pytest.warns(FusionStitchWarning, match=r"fun runs as under jax\.jit: .*refer") as said:
        result = jitted(X)
    assert [warning.filename for warning in said] == [__file__]
    assert_same(result, mixed(X))
    compiled = jitted.lower(X).compile()
    assert [fallback.ops for fallback in compiled.fallbacks] == [()]
    assert "reference" in compiled.fallbacks[0].reason

    strict = fs.jit(fun, options=EMULATE.replace(fallback="error"))
    with pytest.raises(StitchError, match=r"fun could not be stitched: .*reference"):
        strict(X)


def test_the_cuda_backend_without_a_gpu() -> None:
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    with pytest.warns(FusionStitchWarning, match=r"no GPU to stitch for.*emulate"):
        assert_same(fs.jit(mixed, options=fs.Options(backend="cuda"))(X), mixed(X))
    strict = fs.jit(mixed, options=fs.Options(backend="cuda", fallback="error"))
    with pytest.raises(StitchError, match="no GPU"):
        strict(X)


def test_the_backend_xla_is_jax_jit_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "gpu", lambda: pytest.fail("a GPU does not matter"))
    monkeypatch.setenv("FUSIONSTITCH_BACKEND", "xla")
    before, jitted = jax.jit, fs.jit(mixed)
    assert_same(jitted(X), jax.jit(mixed)(X))
    compiled = jitted.lower(X).compile()
    assert compiled.kernels == ()
    assert "backend='xla'" in compiled.explain()
    assert "backend='xla'" in compiled.explain("exp")
    assert "backend='xla'" in fs.install().reason
    assert jax.jit is before


def test_install_says_why_nothing_happens() -> None:
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    before = jax.jit
    with pytest.warns(FusionStitchWarning, match="install.* does nothing: .*no GPU"):
        verdict = fs.install()
    assert not verdict
    assert jax.jit is before
    fs.uninstall()
    assert jax.jit is before


@pytest.mark.parametrize("asked", ["environment", "options"])
def test_install_where_the_emulator_is_asked_for(
    asked: str, host_compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked == "environment":
        monkeypatch.setenv("FUSIONSTITCH_BACKEND", "emulate")
    before = jax.jit
    assert fs.install(None if asked == "environment" else EMULATE)
    try:
        jitted = jax.jit(mixed)
        gradient = jax.jit(jax.grad(jax.jit(lambda x: mixed(x).sum())), donate_argnums=())
    finally:
        fs.uninstall()
    assert jax.jit is before
    assert len(jitted.lower(X).compile().kernels) == 1
    assert_same(jitted(X), jax.jit(mixed)(X))
    assert_same(gradient(X), jax.grad(lambda x: mixed(x).sum())(X))


def test_the_outermost_function_runs() -> None:
    square = emulated(lambda x: x * x)
    assert emulated(jax.grad(square))(3.0) == 6.0
    assert [float(v) for v in emulated(jax.value_and_grad(square))(3.0)] == [9.0, 6.0]
    assert fs.jit(jax.grad(fs.jit(lambda x: x * x)))(3.0) == 6.0
    assert_same(emulated(jax.vmap(emulated(jnp.sum)))(X), X.sum(1))


def test_a_product_whose_threads_store_one_vector_each(host_compiler: str) -> None:
    x, y, w = (
        jax.random.normal(jax.random.key(n), (rows, 16)) for n, rows in enumerate((32, 16, 32))
    )
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    product = fs.jit(lambda x, y, w: w - x @ y, options=options)
    assert len(product.lower(x, y, w).compile().kernels) == 1
    np.testing.assert_allclose(product(x, y, w), w - x @ y, atol=1e-5)


def test_a_compiled_program_has_the_signature_of_jax_s() -> None:
    ours, theirs = (jit(lambda x: x * 2).lower(X).compile() for jit in (fs.jit, jax.jit))
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs)) == "(*args, **kwargs)"
