"""Kernels get the schedule, of those near the default one, of the least estimated cost."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.accuracy import relative_error
from fusionstitch.api import call_of
from fusionstitch.codegen.drafts import COMPARED, Draft
from fusionstitch.codegen.generate import compared as faster
from fusionstitch.codegen.generate import draft, generate, plan_kernel
from fusionstitch.codegen.ir.walk import every
from fusionstitch.codegen.schedule.split import Splits
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.search import compared
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.graph import Graph
from fusionstitch.reports import trial
from fusionstitch.reports.answered import to_dict
from fusionstitch.reports.explain import explain
from fusionstitch.reports.questions import Question
from fusionstitch.runtime import emulate
from tests.codegen.regions import whole_of

H200 = device("h200")


def both_ways(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Long rows that wait for all of them."""
    scaled = x / jnp.max(jnp.abs(x))
    return jax.nn.softmax(jnp.sin(scaled) * jnp.exp(scaled), axis=1), jnp.sum(scaled * x, axis=0)


@cache
def region(rows: int = 2048, columns: int = 4096) -> Graph:
    array = jax.ShapeDtypeStruct((rows, columns), jnp.float32)
    return whole_of(both_ways, array, name="both_ways")


def taken(graph: Graph, options: CodegenOptions | None = None) -> Draft:
    found = faster(draft(graph, H200, options), H200)
    assert isinstance(found, Draft)
    return found


def default(graph: Graph) -> Draft:
    return Draft.of(plan_kernel(graph, H200), CodegenOptions(), H200)


def us(one: Draft) -> float:
    return cost_us(one.cost, H200)


@pytest.fixture
def keen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is the least bit faster is taken."""
    monkeypatch.setattr(compared, "SHARE", 1.0)
    monkeypatch.setattr(compared, "LEAST_US", 0.0)


def test_what_is_taken_is_the_fastest_and_the_kernel_says_so(keen: None) -> None:
    best, first = taken(region(96, 640)), default(region(96, 640))
    assert us(best) < us(first)
    assert best.scheduled.template != first.scheduled.template
    assert dict(best.kernel().facts)[COMPARED] == (us(best), us(first))
    again = generate(region(96, 640), H200)
    assert again.source == best.kernel().source
    followed = taken(region(96, 640), CodegenOptions(template=best.scheduled.template))
    assert followed.kernel().source == again.source


def test_explain_says_what_the_default_would_take(keen: None) -> None:
    options = fs.Options(device="h200", scorer="paper")
    shape = jax.ShapeDtypeStruct((96, 640), jnp.float32)
    stitched = trial.plan(call_of(both_ways, (shape,), {}, options))
    [kernel] = stitched.kernels
    own, default = dict(kernel.facts)[COMPARED]  # type: ignore[misc]
    line = f"{own:.2f} us by what its statements do, {default:.2f} us under the default schedule"
    assert line in explain(stitched)
    [reported] = to_dict(stitched, Question())["kernels"]
    assert reported["compared_us"] == [own, default]


def test_what_is_asked_for_is_not_compared(keen: None) -> None:
    first = default(region())
    for options in (
        CodegenOptions(template=first.scheduled.template),
        CodegenOptions(tuning=Tuning(vector_bytes=8)),
    ):
        found = taken(region(), options)
        assert found.default_us is None
        assert found.scheduled.plan.block == first.scheduled.plan.block


def test_little_is_not_worth_it() -> None:
    """A kernel of a few microseconds, and a schedule that is hardly faster."""
    small = region(64, 256)
    assert us(default(small)) < compared.LEAST_US
    assert taken(small).default_us is None
    best, first = taken(region()), default(region())
    assert best.default_us is None or us(best) < compared.SHARE * us(first)


def test_both_schedules_compute_the_same(keen: None, host_compiler: str) -> None:
    graph = region(96, 640)
    kernels = [taken(graph).kernel(), default(graph).kernel()]
    assert kernels[0].block != kernels[1].block or kernels[0].grid != kernels[1].grid
    x = np.random.default_rng(0).standard_normal((96, 640), np.float32)
    with jax.enable_x64(True):
        expected = jax.jit(both_ways)(x.astype(np.float64))
    for kernel in kernels:
        for result, right in zip(emulate.run(kernel, [x]), expected, strict=True):
            assert relative_error(result, np.asarray(right)) < 1e-6


def summed_twice(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two sums over a batch that is no row of memory."""
    w = jnp.sqrt(jnp.abs(w))
    return w @ x, w @ y


def batch(size: int) -> tuple[jax.ShapeDtypeStruct, ...]:
    shapes = (size,), (size, 96), (size, 96)
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


def test_products_that_are_alike_get_columns_together(host_compiler: str) -> None:
    """Of the schedules that are looked at, in some neighbouring threads read neighbouring columns,
    of both products."""
    graph = whole_of(summed_twice, *batch(1000), name="summed_twice")
    first = default(graph)
    assert "columns" not in first.scheduled.template
    found = compared.others(first, Settings.of(H200, first.options))
    in_columns = [one for one in found if one.template.count("columns") == 2]
    assert in_columns
    random = np.random.default_rng(0)
    given = [random.standard_normal(one.shape, np.float32) for one in batch(1000)]
    with jax.enable_x64(True):
        expected = jax.jit(summed_twice)(*(one.astype(np.float64) for one in given))
    for one in in_columns:
        kernel = Draft.of(one, first.options, H200).kernel()
        for result, right in zip(emulate.run(kernel, given), expected, strict=True):
            assert relative_error(result, np.asarray(right)) < 1e-6


def test_parts_of_sums_go_on_from_those_that_there_are(keen: None) -> None:
    first = default(region())
    assert first.scheduled.splits
    found = [one.splits for one in compared.others(first, Settings.of(H200, first.options))]
    for factor in (2.0, 0.5):
        assert any(times(splits, first, factor) for splits in found)


def times(splits: Splits, first: Draft, factor: float) -> bool:
    """Whether each sum has so many times as many parts."""
    own = first.scheduled.splits
    return all(splits[i].parts == round(own[i].parts * factor) for i in own)


def test_a_schedule_must_be_faster_however_many_threads_go_the_longest_way(
    keen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = taken(region(96, 640))
    assert best.default_us is not None

    def crowds(cost: KernelCost, on: Device, crowded: bool = False) -> float:
        return 1.0 if crowded else cost_us(cost, on)

    monkeypatch.setattr(compared, "cost_us", crowds)
    assert taken(region(96, 640)).default_us is None


@pytest.mark.parametrize("schedules", [0, 2])
def test_of_large_kernels_fewer_schedules_are_looked_at(
    schedules: int, keen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = default(region())
    nodes = sum(1 for _ in every((*first.lowered.body, *first.lowered.functions)))
    monkeypatch.setattr(compared, "MOST_NODES", schedules * nodes)
    looked = []
    of = Draft.of
    monkeypatch.setattr(Draft, "of", lambda *args: looked.append(args) or of(*args))
    faster(first, H200)
    assert len(looked) == schedules
