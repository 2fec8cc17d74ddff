"""What is no longer used is released: functions, programs, constants. Calls leak nothing."""

from __future__ import annotations

import gc
import resource
import sys
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.execution import variants
from fusionstitch.hlo.graph import Graph
from fusionstitch.runtime import xla_pass
from tests.behaviour.table import Jit, mixed

pytestmark = pytest.mark.slow

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))


def use(jit: Jit) -> list[Callable[[], Any]]:
    """Wraps, calls, lowers, compiles, composes; weak references to what should go away."""
    constant = np.random.default_rng(1).standard_normal((1 << 12,)).astype(np.float32)

    def fun(x: jax.Array) -> jax.Array:
        return mixed(x) + (constant * x.sum()).sum()

    jitted = jit(fun)
    compiled = jitted.lower(X).compile()
    jax.block_until_ready([jitted(X), compiled(X), jax.jit(lambda x: jitted(x) + 1.0)(X)])
    jax.block_until_ready(jax.vmap(jitted)(jnp.stack([X, X])))
    held: list[Any] = [fun, constant, jitted, compiled, jitted._fusionstitch.execution]
    if (stitched := compiled.stitched) is not None:
        held.append(stitched)
    return [weakref.ref(one) for one in held]


def test_what_was_wrapped_is_released(jit: Jit) -> None:
    use(jit)  # JAX and the toolchain keep the first of some things
    found = use(jit)
    gc.collect()
    gc.collect()
    assert [one() for one in found] == [None] * len(found)


USES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda jitted: None,
    "call": lambda jitted: jitted(X),
    "shapes": lambda jitted: jitted.eval_shape(X),
    "trace": lambda jitted: jitted.trace(X),
    "compile": lambda jitted: jitted.lower(X).compile()(X),
    "gradient": lambda jitted: jax.grad(lambda x: jitted(x).sum())(X),
    "jit": lambda jitted: jax.jit(lambda x: jitted(x) + 1.0)(X),
}


@pytest.mark.parametrize("name", USES)
def test_it_goes_at_once_as_under_jax_jit(name: str, jit: Jit) -> None:
    """By counts of references alone: without the collector of cycles."""

    class Captured:
        pass

    def left(jit: Jit) -> list[Any]:
        captured = Captured()

        def fun(x: jax.Array) -> jax.Array:
            assert captured is not None
            return mixed(x)

        jitted = jit(fun)
        jax.block_until_ready(USES[name](jitted))
        return [weakref.ref(one) for one in (captured, fun, jitted)]

    def alive(jit: Jit) -> list[bool]:
        return [one() is not None for one in left(jit)]

    left(jit)
    gc.collect()
    gc.disable()
    try:
        ours, theirs = alive(jit), alive(jax.jit)
    finally:
        gc.enable()
    assert ours == theirs == [False] * 3


def test_clear_cache_releases_what_was_compiled(emulated: Jit) -> None:
    jitted = emulated(lambda x: mixed(x) * 3.0)
    stitched = weakref.ref(jitted.lower(X).compile().stitched)
    jitted(X)
    assert stitched() is not None
    jitted.clear_cache()
    gc.collect()
    gc.collect()
    assert stitched() is None


def test_marked_functions_live_as_long_as_the_users(marked: Jit) -> None:
    before = len(variants._shared)

    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    for _ in range(3):
        marked(fun)(X)
    assert len(variants._shared) == before + 1
    del fun
    gc.collect()
    assert len(variants._shared) == before


def test_only_listeners_hold_events_of_the_pass() -> None:
    class Result:
        pass

    def callback(module: bytes, token: str) -> None:
        xla_pass.publish(Result())

    with xla_pass.collect("ab") as events:
        xla_pass._stitch(b"", callback, "fun", "ab")
    found = weakref.ref(events[0].result)
    assert isinstance(found(), Result)
    del events
    gc.collect()
    assert found() is None


def resident() -> int:
    """Bytes of memory this process has in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_thousand_calls_leave_no_memory(jit: Jit) -> None:
    rows = jnp.asarray(np.random.default_rng(2).standard_normal((512, 64), np.float32))
    step = jit(lambda p, x: (p - 0.1 * mixed(x) * p, p.sum()), donate_argnums=0)
    p = jnp.array(rows)

    def calls(number: int) -> None:
        nonlocal p
        for _ in range(number):
            p, loss = step(p, rows)
        jax.block_until_ready((p, loss))
        gc.collect()

    calls(100)
    grown = []
    for _ in range(
        3
    ):  # a leak grows every time, what the allocator of a large process keeps does not
        before, objects = resident(), len(gc.get_objects())
        calls(1000)
        assert len(gc.get_objects()) - objects < 200
        grown.append(resident() - before)
        # one result kept per call would be 131 MB
        if grown[-1] < 16 << 20:
            break
    assert min(grown) < 16 << 20, grown


def test_no_graph_outlives_the_function_that_was_planned(emulated: Jit) -> None:
    def graphs() -> set[int]:
        gc.collect()
        return {id(one) for one in gc.get_objects() if type(one) is Graph}

    emulated(mixed)(X)  # what starts once a process
    before = graphs()
    emulated(lambda x: jnp.sin(mixed(x)) * 3.0)(X)
    jax.clear_caches()
    assert graphs() <= before
