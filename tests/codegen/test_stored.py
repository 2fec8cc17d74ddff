"""Which values a kernel computes once: the rule it starts from, what is tried from there, and that
the result does not depend on it."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import compared, draft, generate, plan_kernel
from fusionstitch.codegen.loops.once import again
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.search.stored import MOST_CLASSES, others, restored, starts, stored
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from tests.codegen.cases import CASES
from tests.codegen.regions import H200 as SMALL_GRID
from tests.codegen.regions import Case, build, launched, whole_of

H200 = device("h200")


def change(u: Any, axis: int) -> Any:
    """Limited slopes, what flows between cells, and what stays: a stencil of a stencil of one."""
    back, front = u - jnp.roll(u, 1, axis), jnp.roll(u, -1, axis) - u
    slope = jnp.where(back * front > 0, 2 * back * front / (back + front), 0.0)
    left, right = u + slope / 2, jnp.roll(u - slope / 2, -1, axis)
    speed = jnp.sqrt(1 + left * left) + jnp.sqrt(1 + right * right)
    flow = jnp.tanh(left) + jnp.tanh(right) - speed * (right - left)
    return flow - jnp.roll(flow, 1, axis)


def fluxes(u: Any) -> Any:
    return u - 0.1 * (change(u, 0) + change(u, 1))


def in_turns(u: Any) -> Any:
    """One axis after the other: twice as many levels."""
    for axis in (0, 1):
        u = u - 0.1 * change(u, axis)
    return u


@cache
def region(rows: int, columns: int) -> Graph:
    return whole_of(fluxes, jax.ShapeDtypeStruct((rows, columns), jnp.float32), name="fluxes")


def two_sums(x: Any, y: Any) -> Any:
    """Sums of columns that have nothing in common, of what a stencil reads, too: each is split for
    its share of the device."""
    e, g = jnp.exp(x) * jnp.tanh(x), jnp.exp(y)
    return (e * 2).sum(0), (g * 3).sum(0), jnp.sin(g + jnp.roll(g, 1, 0)), e + jnp.roll(e, 1, 0) * e


def test_sums_keep_their_shares_of_the_device() -> None:
    shapes = [jax.ShapeDtypeStruct((65536, n), jnp.float32) for n in (128, 96)]
    graph = whole_of(two_sums, *shapes, name="two_sums")
    own, settings = plan_kernel(graph, H200), Settings.of(H200, CodegenOptions())
    shares = {split.share for split in own.splits.values()}
    assert len(shares) == 2
    near = [restored(own, ids, settings) for ids in others(own)]
    found = [own, *starts(own, settings), *near]
    assert len(found) > 2
    for one in found:
        if one.halo:  # sums of a tile have no share
            continue
        stages = [stage for group in one.plan.groups for stage in group.group.stages]
        assert {stage.share for stage in stages if stage.share is not None} == shares
    assert drafted(graph).scheduled.splits == own.splits


def drafted(graph: Graph, options: CodegenOptions | None = None) -> Draft:
    found = draft(graph, H200, options)
    assert isinstance(found, Draft)
    return found


def us(one: Draft) -> float:
    return cost_us(one.cost, H200)


#: Numerics under which there are no tiles with a halo.
WHOLE = CodegenOptions(numerics="strict")


def inlined(graph: Graph) -> Draft:
    return Draft.of(plan_kernel(graph, H200), CodegenOptions(), H200)


def test_a_large_field_stores_what_a_small_one_computes_again() -> None:
    large, small = region(2048, 2051), region(16, 19)
    assert not stored(inlined(large).scheduled)
    found = drafted(large, WHOLE)
    assert len(found.scheduled.plan.phases) > 1
    assert us(found) < 0.9 * us(inlined(large))
    assert len(drafted(small, WHOLE).scheduled.plan.phases) == 1
    tiled = drafted(large)
    assert len(tiled.scheduled.plan.phases) == 1
    assert us(tiled) < us(found)


def test_what_is_too_long_without_is_stored() -> None:
    array = jax.ShapeDtypeStruct((1024, 1027), jnp.float32)
    graph = whole_of(in_turns, array, name="in_turns")
    with pytest.raises(CodegenError, match=r"values|places"):
        inlined(graph)
    assert len(drafted(graph, WHOLE).scheduled.plan.phases) > 1
    assert len(drafted(graph).scheduled.plan.phases) == 1
    strict = CodegenOptions(tuning=Tuning(block=256))
    with pytest.raises(CodegenError, match=r"values|places"):
        drafted(graph, strict)


def test_the_search_goes_on_from_there() -> None:
    """Of the values that the rule stores some are cheaper computed again, and others stored."""
    graph = region(1024, 1027)
    first = drafted(graph)
    sets = list(others(first.scheduled))
    assert 1 <= len(sets) <= 4 * MOST_CLASSES
    now = stored(first.scheduled)
    assert any(ids < now for ids in sets)
    assert all(ids ^ now for ids in sets)
    best = compared(first, H200)
    assert isinstance(best, Draft)
    assert us(best) <= us(first)


def test_who_asks_for_a_schedule_gets_it() -> None:
    graph = region(1024, 1027)
    own = inlined(graph)
    requested = drafted(graph, CodegenOptions(template=own.template))
    assert requested.template == own.template
    assert drafted(graph, CodegenOptions(tuning=Tuning(block=128))).cost.blocks
    assert stored(drafted(graph, CodegenOptions(tuning=Tuning(block=128))).scheduled) == frozenset()


def test_a_template_says_what_is_stored() -> None:
    graph = region(512, 515)
    settings = Settings.of(H200, CodegenOptions())
    first = drafted(graph).scheduled
    for ids in (frozenset[int](), stored(first), *others(first)):
        one = restored(first, ids, settings)
        assert stored(one) >= ids
        kernel = generate(graph, H200, CodegenOptions(template=one.template))
        assert kernel.source == Draft.of(one, CodegenOptions(), H200).kernel().source


def test_results_do_not_depend_on_what_is_stored(host_compiler: str) -> None:
    graph = whole_of(fluxes, jax.ShapeDtypeStruct((24, 37), jnp.float32), name="fluxes")
    settings = Settings.of(SMALL_GRID, CodegenOptions())
    first = plan_kernel(graph, SMALL_GRID)
    every = frozenset(value.op.id for value in again(first.graph, ()))
    everything = restored(first, every, settings)
    field = np.random.default_rng(0).standard_normal((24, 37)).astype(np.float32)
    sets = [frozenset[int](), *others(first), every, *others(everything)]
    templates = sorted({restored(first, ids, settings).template for ids in sets})
    assert len(templates) >= 4
    cases = [Case(graph, (field,), SMALL_GRID, CodegenOptions(template=t)) for t in templates]
    built = build(cases)
    expected = np.asarray(jax.jit(fluxes)(field))
    for case, kernel in built.kernels.items():
        [found] = launched(kernel, built.artifacts[case], case.args)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_records_are_read_where_their_members_are() -> None:
    """They hold what other ops compute: there is nothing to compute once."""

    def moments(x: Any) -> Any:
        def joined(a: Any, b: Any) -> Any:
            return a[0] + b[0], a[1] + b[1], jnp.maximum(a[2], b[2])

        zero = jnp.zeros((), x.dtype)
        values, nothing = (jnp.ones_like(x), x, x * x), (zero, zero, zero)
        return [lax.reduce(values, nothing, joined, dims) for dims in ((0, 1), (0,))]

    graph = whole_of(moments, jax.ShapeDtypeStruct((5000, 16), jnp.bfloat16))
    own = plan_kernel(graph, H200)
    records = {op.id for op in own.graph.ops if op.opcode == "record"}
    assert records
    assert records.isdisjoint(value.op.id for value in again(own.graph, ()))
    assert len(generate(graph, H200).outputs) == 6


def test_what_is_walked_in_streams_stays() -> None:
    case = CASES["streamed_f32"].case()
    own = plan_kernel(case.graph, case.device, case.options)
    assert any(plan.group.streamed for plan in own.plan.groups)
    assert list(others(own)) == []
