"""The phases of a kernel as its page draws them: every stage once, and the waits of its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.snapshots.phases import Phase, phases
from fusionstitch.codegen.watch import Watch
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.hlo.graph import Graph
from tests.codegen.cases import CASES
from tests.codegen.regions import whole_of

T = TypeVar("T")
H200 = device("h200")


class Seen(Watch):
    """The schedule and the last statements of a kernel."""

    scheduled: Scheduled | None = None
    statements: Lowered | None = None

    def decided(self, step: str, value: T) -> T:
        if isinstance(value, Scheduled):
            self.scheduled = value
        return value

    def lowered(self, kernel: Lowered, name: str, about: str) -> None:
        self.statements = kernel


def seen(
    graph: Graph, on: Device = H200, options: CodegenOptions | None = None
) -> tuple[Kernel, Seen, Sequence[Phase]]:
    watch = Seen()
    kernel = generate(graph, on, options, watch)
    assert watch.statements is not None
    return kernel, watch, phases(watch.statements)


def stages(found: Sequence[Phase]) -> list[str]:
    return [
        name for phase in found for group in phase.groups for part in group for name in part.stages
    ]


@pytest.mark.parametrize(
    "name", ["block_row", "split_rows", "argmax", "cluster_rows", "cluster_few_sums"]
)
def test_every_stage_is_in_a_phase(name: str) -> None:
    case = CASES[name].case()
    kernel, watch, found = seen(case.graph, case.device, case.options)
    assert watch.scheduled is not None
    planned = [s.op.name for g in watch.scheduled.plan.groups for s in g.group.stages]
    assert Counter(stages(found)) == Counter(planned)
    ends = Counter(phase.ends for phase in found)
    assert ends["grid"] == kernel.source.count("fs_grid_barrier();")
    assert ends["cluster"] == kernel.source.count("fs_cluster_barrier();")


def test_phases_of_the_grid_are_those_of_the_schedule() -> None:
    def shares(x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x / x.sum(), axis=-1)

    shape = jax.ShapeDtypeStruct((512, 1024), jnp.float32)
    kernel, watch, found = seen(whole_of(shares, shape))
    assert watch.scheduled is not None
    assert kernel.source.count("fs_grid_barrier();") == len(found) - 1 > 0
    assert [phase.ends for phase in found] == ["grid"] * (len(found) - 1) + [""]
    for phase, planned in zip(found, watch.scheduled.plan.phases, strict=True):
        assert len(phase.groups) == len(planned)
        for parts, group in zip(phase.groups, planned, strict=True):
            names = [name for part in parts for name in part.stages]
            assert sorted(names) == sorted(s.op.name for s in group.group.stages)


def test_waits_of_a_block_part_a_phase() -> None:
    """A value in shared memory is waited for by the block; the grid waits between phases."""

    def two(x: jax.Array) -> jax.Array:
        y = jax.nn.softmax(jnp.tanh(x) @ x.T)
        return y * y.sum()

    kernel, _, found = seen(whole_of(two, jax.ShapeDtypeStruct((64, 64), jnp.float32)))
    parts = [part for phase in found for group in phase.groups for part in group]
    assert kernel.cooperative
    assert any(part.waits for part in parts) == ("__syncthreads();" in kernel.source)
    for phase in found:
        assert not any(group[-1].waits for group in phase.groups)  # nothing comes after it


def test_phases_in_a_loop_know_it() -> None:
    def steps(x: jax.Array, w: jax.Array) -> jax.Array:
        def step(_: int, v: jax.Array) -> jax.Array:
            y = jnp.tanh(v @ w)
            return y @ w + y.T @ w  # rows and columns of what others wrote

        return jax.lax.fori_loop(0, 30, step, x)

    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    options = CodegenOptions(template="loop block")
    kernel, _, found = seen(whole_of(steps, shape, shape), options=options)
    assert kernel.template.startswith("loop block")
    inside = [phase for phase in found if phase.loop is not None]
    assert {phase.loop for phase in inside} == {0}
    assert found[0].loop is None
    assert len(inside) > 1
    assert {phase.ends for phase in inside} == {"block"}
    assert sum(name.startswith("dot_general") for name in stages(inside)) == 3
    assert not any(name.startswith("dot_general") for name in stages(found[:1]))


def test_rows_of_threads_have_no_phases() -> None:
    def steps(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 30, lambda _, v: v + 0.01 * jnp.tanh(v), x)

    shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    options = CodegenOptions(template="loop rows")
    _, _, found = seen(whole_of(steps, shape), options=options)
    assert found == []
