"""fs.jit next to jax.jit: same results, same traces, same composition; on the emulator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
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


class Counted:
    """Counts how often Python runs the function, that is, how often it is traced."""

    def __init__(self, fun: Callable[..., Any]):
        self.traces = 0
        self.fun = fun
        functools.update_wrapper(self, fun)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.traces += 1
        return self.fun(*args, **kwargs)


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
    # the plan of a cached trace is found again
    again = jitted.trace(X).lower().compile()
    assert again.stitched is compiled.stitched
    assert str(jitted.trace(X).jaxpr) == str(jax.jit(mixed).trace(X).jaxpr)


def test_traces_as_often_as_jax_jit() -> None:
    def run(jit: Callable[..., Any]) -> list[int]:
        fun = Counted(lambda x, n=2, *, flip=False: {"y": mixed(x) * n, "flip": -x if flip else x})
        jitted, counts = jit(fun, static_argnames="flip"), []
        calls: list[Callable[[], Any]] = [
            lambda: jitted(X),
            lambda: jitted(X),
            lambda: jitted(X, 3),
            lambda: jitted(X, 4),
            lambda: jitted(X, n=4),
            lambda: jitted(X, jnp.float32(3)),
            lambda: jitted(X, flip=True),
            lambda: jitted(X, flip=True),
            lambda: jitted(X[:8]),
            lambda: jitted(np.asarray(X)),
            lambda: jitted.eval_shape(X, 3),
            lambda: jitted.lower(X).compile(),
            lambda: jitted.trace(X[:4]),
            lambda: jitted(X[:4]),
            lambda: jax.eval_shape(jitted, X),
            lambda: jitted.clear_cache(),
            lambda: jitted(X),
        ]
        for call in calls:
            call()
            counts.append(fun.traces)
        return counts

    assert run(emulated) == run(jax.jit)


@pytest.mark.parametrize("keywords", [{"static_argnums": (1,)}, {"static_argnames": ("n",)}])
def test_static_arguments(keywords: dict[str, Any]) -> None:
    def power(x: jax.Array, n: tuple[int, ...], *, bias: float = 0.0) -> jax.Array:
        return sum((mixed(x) ** k for k in n), start=jnp.zeros_like(x)) + bias

    ours, theirs = emulated(power, **keywords), jax.jit(power, **keywords)
    for n in ((1, 2), (3,)):
        assert_same(ours(X, n, bias=1.5), theirs(X, n, bias=1.5))


def test_donation_deletes_the_argument() -> None:
    jitted = emulated(lambda p, x: (p - 0.1 * mixed(x), p.sum()), donate_argnums=0)
    p = jnp.array(X)
    want = (X - 0.1 * mixed(X), X.sum())
    assert_same(jitted(p, X), want)
    assert p.is_deleted()
    assert not X.is_deleted()


def test_pytrees_and_weak_types() -> None:
    def fun(tree: dict[str, Any], scale: float) -> dict[str, Any]:
        return {"s": mixed(tree["x"]) * scale, "none": tree["none"], "twice": (scale * 2,)}

    tree = {"x": X, "none": None}
    assert_same(emulated(fun)(tree, 0.5), jax.jit(fun)(tree, 0.5))


def test_random_keys_and_closed_over_constants() -> None:
    constant = jnp.arange(24.0)

    def fun(key: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        key, use = jax.random.split(key)
        return key, mixed(x) + jax.random.normal(use, x.shape) * constant

    key, jitted = jax.random.key(3), emulated(fun)
    assert_same(jitted(key, X), jax.jit(fun)(key, X))
    assert jitted.lower(key, X).compile().kernels


def test_loops_and_branches() -> None:
    def fun(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, ys = jax.lax.scan(lambda c, _: (mixed(c + 1), c.sum()), x, None, length=3)
        return jax.lax.cond(ys[0] > 0, mixed, lambda x: x * 2, x), ys

    assert_same(emulated(fun)(X), jax.jit(fun)(X))


def test_x64_toggles() -> None:
    jitted = emulated(mixed)
    assert jitted(X).dtype == jnp.float32
    with jax.enable_x64(True):
        x = jnp.asarray(np.asarray(X, np.float64))
        assert_same(jitted(x), jax.jit(mixed)(x))
        assert jitted(x).dtype == jnp.float64


def test_composes_under_transformations() -> None:
    ours, theirs = emulated(mixed), jax.jit(mixed)
    cube = jnp.stack([X, X + 1])
    assert_same(jax.vmap(ours)(cube), jax.vmap(theirs)(cube))
    for f in (ours, theirs):
        assert f.eval_shape(X) == jax.eval_shape(mixed, X)
    grad_ours, grad_theirs = (
        jax.grad(lambda x, f=f: (f(x) * jnp.arange(24)).sum()) for f in (ours, theirs)
    )
    assert_same(grad_ours(X), grad_theirs(X))
    assert_same(jax.jit(lambda x: ours(x) + 1)(X), jax.jit(lambda x: theirs(x) + 1)(X))
    assert str(jax.make_jaxpr(ours)(X)) == str(jax.make_jaxpr(theirs)(X))
    assert_same(jax.jvp(ours, (X,), (X,)), jax.jvp(theirs, (X,), (X,)))
    with jax.disable_jit():
        assert_same(ours(X), mixed(X))


def test_outermost_jit_stitches() -> None:
    inner = emulated(mixed)
    outer = emulated(lambda x: inner(x) + 1)
    compiled = outer.lower(X).compile()
    assert compiled.fallbacks == ()
    assert len(compiled.kernels) == 1
    assert_same(compiled(X), mixed(X) + 1)
    value_and_grad = emulated(jax.value_and_grad(lambda x: (inner(x) ** 2).sum()))
    assert_same(value_and_grad(X), jax.value_and_grad(lambda x: (mixed(x) ** 2).sum())(X))


def test_closed_over_tracers() -> None:
    assert_same(jax.jit(lambda x: emulated(lambda: mixed(x))())(X), mixed(X))
    cube = jnp.stack([X, X + 1])
    assert_same(jax.vmap(lambda x: emulated(lambda: mixed(x))())(cube), jax.vmap(mixed)(cube))


def test_methods() -> None:
    class Model:
        scale = 2.0

        @fs.jit(static_argnums=0, options=EMULATE)
        def apply(self, x: jax.Array) -> jax.Array:
            return mixed(x) * self.scale

    assert_same(Model().apply(X), mixed(X) * 2)


def test_errors_of_the_user_stay_the_users() -> None:
    def wrong(x: jax.Array) -> jax.Array:
        return x if x.sum() > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        emulated(wrong)(X)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        emulated(mixed)()


def test_callbacks_run_unstitched_with_the_reason() -> None:
    seen = []

    def fun(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda v: seen.append(float(v)), x[0, 0])
        return mixed(x)

    jitted = emulated(fun)
    with pytest.warns(FusionStitchWarning, match=r"fun runs as under jax\.jit: .*callback"):
        result = jitted(X)
    jax.effects_barrier()
    assert seen == [float(X[0, 0])]
    assert_same(result, mixed(X))
    compiled = jitted.lower(X).compile()
    assert [fallback.ops for fallback in compiled.fallbacks] == [()]
    assert "callback" in compiled.fallbacks[0].reason

    strict = fs.jit(fun, options=EMULATE.replace(fallback="error"))
    with pytest.raises(StitchError, match=r"fun could not be stitched: .*callback"):
        strict(X)


def test_the_cuda_backend_without_a_gpu() -> None:
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    with pytest.warns(FusionStitchWarning, match=r"no GPU to stitch for.*emulate"):
        assert_same(fs.jit(mixed, options=fs.Options(backend="cuda"))(X), mixed(X))
    strict = fs.jit(mixed, options=fs.Options(backend="cuda", fallback="error"))
    with pytest.raises(StitchError, match="no GPU"):
        strict(X)


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
