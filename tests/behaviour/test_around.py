"""Programs with host callbacks are stitched around their callbacks, in the emulator as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import fusionstitch as fs
from fusionstitch.errors import FusionStitchWarning, StitchError
from tests.behaviour.same import assert_same
from tests.behaviour.table import Jit, mixed

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))
LARGE = jnp.ones((600, 600)) * 2.0
Log = Callable[[Any], None]
#: By name what makes a program of a log, and its least number of kernels.
PROGRAMS: dict[str, tuple[Callable[[Log], Callable[..., Any]], int]] = {}


def program(kernels: int) -> Any:
    def named(make: Callable[[Log], Callable[..., Any]]) -> Any:
        PROGRAMS[make.__name__] = make, kernels
        return make

    return named


def sine(v: np.ndarray) -> np.ndarray:
    return np.sin(v)


@program(1)
def observed_by_prints(log: Log) -> Callable[..., Any]:
    def fun(x: jax.Array) -> jax.Array:
        for i in range(3):
            jax.debug.callback(log, x[i, 0], ordered=True)
        y = mixed(x)
        jax.debug.callback(log, y.sum(), ordered=True)
        return y * 2.0

    return fun


@program(2)
def results_that_are_read_again(log: Log) -> Callable[..., Any]:
    def fun(x: jax.Array) -> tuple[Any, ...]:
        y = mixed(x)
        z = jax.pure_callback(sine, y, y, vmap_method="sequential")
        io_callback(log, None, z[0, 0], ordered=True)
        n, w = io_callback(lambda v: (np.int32(7), v), (jax.ShapeDtypeStruct((), np.int32), z), z)
        return mixed(z) + y * n, w, x, 3.0, n

    return fun


@program(1)
def in_functions_called(log: Log) -> Callable[..., Any]:
    @jax.jit
    def inner(x: jax.Array) -> jax.Array:
        y = mixed(x)
        jax.debug.callback(log, y[0, 0], ordered=True)
        return y + 1.0

    @jax.custom_jvp
    def custom(x: jax.Array) -> jax.Array:
        jax.debug.callback(log, x[1, 1], ordered=True)
        return jnp.exp(x)

    custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0]))
    return lambda x: jax.checkpoint(inner)(custom(inner(x)))


@program(1)
def one_that_may_raise(log: Log) -> Callable[..., Any]:
    def refuse(v: np.ndarray) -> np.ndarray:
        raise ValueError("too large")

    def checked(x: jax.Array) -> jax.Array:
        wrong = jnp.any(x > 1e6)
        return jax.lax.cond(wrong, lambda x: jax.pure_callback(refuse, x, x), lambda x: x, x)

    return lambda x: mixed(checked(x + mixed(x)))


@program(1)
def keys_and_integers(log: Log) -> Callable[..., Any]:
    def fun(x: jax.Array, key: Any, n: jax.Array) -> Any:
        key, other = jax.random.split(key)

        def drawn(key: Any) -> Any:
            jax.debug.callback(log, n, ordered=True)
            return jax.random.split(key)[0], n + 1

        key, more = jax.lax.cond(n > 0, drawn, lambda key: (key, n), key)
        return mixed(x + jax.random.normal(key, (4, 6))), other, more

    return lambda x: fun(x, jax.random.key(3), jnp.int32(5))


@program(1)
def a_large_constant(log: Log) -> Callable[..., Any]:
    def fun(x: jax.Array) -> jax.Array:
        jax.debug.callback(log, x.sum(), ordered=True)
        return mixed(x) + LARGE[:4, :6]

    return fun


@program(1)
def a_gradient(log: Log) -> Callable[..., Any]:
    def loss(x: jax.Array) -> jax.Array:
        jax.debug.callback(log, x[0, 0], ordered=True)
        return (mixed(x) ** 2).sum()

    return jax.value_and_grad(loss)


@program(0)
def nothing_to_stitch(log: Log) -> Callable[..., Any]:
    def fun(x: jax.Array) -> jax.Array:
        jax.debug.callback(log, x[0, 0], ordered=True)
        return x

    return fun


def run(name: str, jit: Jit) -> tuple[Any, list[float]]:
    seen: list[float] = []
    jitted = jit(PROGRAMS[name][0](lambda v: seen.append(round(float(np.sum(v)), 4))))
    found = [jitted(X), jitted(X + 1.0)]
    jax.block_until_ready(found)
    jax.effects_barrier()
    return found, seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_effects(name: str, emulated: Jit) -> None:
    ours, theirs = run(name, emulated), run(name, jax.jit)
    assert_same(ours[0], theirs[0], committed=False)
    assert ours[1] == theirs[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_stitched(name: str, emulated: Jit) -> None:
    make, kernels = PROGRAMS[name]
    compiled = emulated(make(lambda v: None)).lower(X).compile()
    assert compiled.fallbacks == ()
    assert len(compiled.kernels) >= kernels
    assert_same(compiled(X), jax.jit(make(lambda v: None))(X), committed=False)


def test_prints_leave_a_program_in_one_piece(emulated: Jit) -> None:
    """A callback that gives nothing back parts nothing."""
    watched = emulated(PROGRAMS["observed_by_prints"][0](print)).lower(X).compile()
    alone = emulated(lambda x: mixed(x) * 2.0).lower(X).compile()
    assert len(watched.kernels) == len(alone.kernels)


def test_what_a_callback_raises_is_raised(emulated: Jit) -> None:
    make, _ = PROGRAMS["one_that_may_raise"]
    raised = []
    for jit in (emulated, jax.jit):
        jitted = jit(make(print))
        jax.block_until_ready(jitted(X))
        with pytest.raises(Exception, match="too large") as caught:
            jax.block_until_ready(jitted(X.at[0, 0].set(1e9)))
        raised.append(caught.type)
    assert raised[0] is raised[1]


def in_a_loop(log: Log) -> Callable[..., Any]:
    def body(c: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        jax.debug.callback(log, c[0, 0] * i, ordered=True)
        return mixed(c), None

    return lambda x: mixed(jax.lax.scan(body, x, jnp.arange(3))[0]) + 1.0


def test_a_loop_that_calls_back_is_left_and_the_rest_is_not(emulated: Jit) -> None:
    seen: dict[Any, list[float]] = {emulated: [], jax.jit: []}
    found = []
    for jit, log in seen.items():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found.append(jit(in_a_loop(lambda v, log=log: log.append(float(v))))(X))
            jax.effects_barrier()
        told = ["in part: A loop runs a host callback" in str(one.message) for one in said]
        assert told == ([True] if jit is emulated else [])
    assert_same(*found, committed=False)
    np.testing.assert_allclose(seen[emulated], seen[jax.jit], rtol=1e-5)
    with pytest.warns(FusionStitchWarning, match="in part"):
        compiled = emulated(in_a_loop(lambda v: None)).lower(X).compile()
    assert compiled.kernels
    assert [fallback.ops for fallback in compiled.fallbacks] == [("scan",)]
    assert "A loop runs a host callback" in compiled.explain()
    strict = fs.Options(backend="emulate", scorer="paper", fallback="error")
    with pytest.raises(StitchError, match="A loop runs a host callback"):
        emulated(in_a_loop(lambda v: None), options=strict)(X)


def test_donated_and_static_arguments(emulated: Jit) -> None:
    def fun(x: jax.Array, n: int) -> jax.Array:
        jax.debug.callback(lambda v: None, x[0, 0])
        return mixed(x) * n

    def run(jit: Jit) -> Any:
        given = jnp.array(X)
        return jit(fun, donate_argnums=0, static_argnums=1)(given, 3), given.is_deleted()

    ours, theirs = run(emulated), run(jax.jit)
    assert ours[1] == theirs[1]
    assert_same(ours[0], theirs[0], committed=False)


def test_wide_types(emulated: Jit) -> None:
    def fun(x: jax.Array) -> jax.Array:
        y = jax.pure_callback(sine, x, mixed(x), vmap_method="sequential")
        return mixed(y)

    with jax.enable_x64(True):
        wide = X.astype(jnp.float64)
        compiled = emulated(fun).lower(wide).compile()
        assert compiled.kernels
        assert_same(compiled(wide), jax.jit(fun)(wide), committed=False)
