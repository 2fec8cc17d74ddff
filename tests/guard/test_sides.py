"""What is compared: both sides compute the same, whatever the program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.fixed_turns import uncounted
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.runtime.cache import Database
from tests.guard.both import Both, guarded, lowered
from tests.patterns.test_recompute import loss
from tests.programs import PROGRAMS, precision

#: A part of them, since each kernel is built by the host compiler.
SOME = [name for number, name in enumerate(PROGRAMS) if number % 4 == 0]


@pytest.mark.parametrize("name", SOME)
def test_both_sides_agree(name: str, database: Database, host_compiler: str) -> None:
    program = PROGRAMS[name]
    both = Both(lambda n: (1.0, 99.0))  # enough for a call in the body of a loop
    with precision(program.args):
        jitted = jax.jit(program.fun, **dict(program.keywords()))
        ir = jitted.lower(*program.args).compiler_ir("hlo")
        found = guarded(ir.as_serialized_hlo_module_proto(), both, database, scorer="paper")
    compared = sum(one.patterns for one in found.evidence.comparisons.values())
    assert (compared > 0) == bool(found.stitches)
    assert both.count <= compared


def test_xla_s_side_is_what_its_kernels_hold_that_the_pattern_touches(
    database: Database, host_compiler: str
) -> None:
    """And nothing else: the sort and the exponentials in front of it are kernels of their own."""

    def fun(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        s = jnp.sort(jnp.tanh(x), 0)
        z = jax.nn.softmax(s * y)
        return z * (z * y).sum(0), s

    both, x = Both(), np.ones((256, 384), np.float32)
    guarded(lowered(fun, x, x), both, database)
    [[pair]] = both.seen
    names = {i.opcode for c in parse(pair.theirs).computations for i in c.instructions}
    assert {"multiply", "exponential", "divide", "reduce"} <= names
    assert not {"sort", "tanh"} & names


def test_copies_between_dots_are_compared_with_xla_s_one(
    database: Database, host_compiler: str
) -> None:
    weights = {
        "in": jax.ShapeDtypeStruct((256, 3 * 256), jnp.bfloat16),
        "out": jax.ShapeDtypeStruct((256, 256), jnp.bfloat16),
    }
    x = jax.ShapeDtypeStruct((24, 1024, 256), jnp.bfloat16)
    both = Both(runs=False)  # they would take minutes here
    found = guarded(lowered(jax.grad(loss, (0, 1)), weights, x), both, database)
    assert [plan.given is not None for plan in found.plans] == [True]
    families = [
        one for one in found.plans[0].chosen if "dot" in {op.opcode for op in one.pattern.ops}
    ]
    assert families
    assert all(one.measured is not None for one in families)


def test_constants_that_planning_does_not_read_are_there(
    database: Database, host_compiler: str
) -> None:
    table = np.random.default_rng(0).standard_normal((64, 384)).astype(np.float32)

    def fun(x: jax.Array) -> jax.Array:
        s = jax.nn.softmax(x * table)
        return s * (s * table).sum(0)

    both = Both()
    found = guarded(lowered(fun, np.ones((64, 384), np.float32)), both, database, scorer="paper")
    assert both.count == 1
    assert len(found.stitches) == 1


def test_indices_are_spread_over_what_they_index_on_both_sides(
    database: Database, host_compiler: str
) -> None:
    """Also where the gather is in the kernel alone."""

    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        x = table[tokens]
        return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)

    both = Both()
    data = lowered(fun, np.ones((301, 64), np.float32), np.ones((32, 7), np.int32))
    guarded(data, both, database, scorer="paper")
    [[pair]] = both.seen
    assert sorted(pair.below) == [2, 301]


def newton(x: jax.Array) -> jax.Array:
    """Rows that stop on their own, under vmap."""

    def until(x: jax.Array) -> jax.Array:
        def going(s: Any) -> jax.Array:
            return (jnp.abs(s[0] ** 2 - 2.0) > 1e-6) & (s[1] < 40)

        def step(s: Any) -> Any:
            return 0.5 * (s[0] + 2.0 / s[0]), s[1] + 1

        return jax.lax.while_loop(going, step, (x, jnp.int32(0)))[0]

    return jnp.tanh(jax.vmap(until)(1.0 + x.ravel() ** 2))


def nested(x: jax.Array, steps: jax.Array) -> jax.Array:
    """A loop that the data ends, in one that counts, beside one whose bound is an argument."""

    def settle(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda s: s.max() > 0.1, lambda s: 0.95 * s, x)

    x = jax.lax.fori_loop(0, 3, lambda n, s: settle(s + 0.1 * n), x)
    return jax.lax.fori_loop(0, steps[0], lambda _, s: 0.5 * s + 0.1, x).sum(0)


def alone(x: jax.Array) -> jax.Array:
    """A loop that carries one array."""
    return jax.lax.while_loop(lambda s: s.sum() > 1.0, lambda s: 0.9 * s, jnp.abs(x))


@pytest.mark.parametrize("fun", [newton, nested, alone])
def test_loops_that_their_data_ends_turn_equally_often_on_both_sides(
    fun: Any, database: Database, host_compiler: str
) -> None:
    arguments: list[Any] = [np.ones((8, 16), np.float32), np.ones(1, np.int32)]
    both = Both()
    found = guarded(lowered(fun, *arguments[: 2 if fun is nested else 1]), both, database)
    [pairs] = both.seen
    for pair in pairs:
        for side in (pair.theirs, pair.ours):
            module = from_proto(side)
            assert not uncounted(module.entry)
            loops = [op for op in module.entry if op.opcode == "while"]
            assert (side is pair.ours) == (not loops)
    assert all(one.measured for plan in found.plans for one in plan.chosen)
