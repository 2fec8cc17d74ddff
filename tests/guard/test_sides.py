"""The two sides of a comparison compute the same, whatever the program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.importer import parse
from fusionstitch.runtime.cache import Database
from tests.guard.both import Both, guarded, lowered
from tests.kept import kept_sort
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
        s = kept_sort(jnp.tanh(x), 0)
        z = jax.nn.softmax(s * y)
        return z * (z * y).sum(0), s

    both, x = Both(), np.ones((256, 384), np.float32)
    guarded(lowered(fun, x, x), both, database)
    modules = [parse(pair.theirs) for pairs in both.seen for pair in pairs]
    found = [{i.opcode for c in m.computations for i in c.instructions} for m in modules]
    assert any({"multiply", "exponential", "divide", "reduce"} <= names for names in found)
    assert not any({"sort", "tanh"} & names for names in found)


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
