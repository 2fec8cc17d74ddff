"""Scratch buffers: which values share one."""

from __future__ import annotations

import itertools

import pytest

from fusionstitch.codegen.generate import plan_kernel
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.scratch import global_values, scratch_buffers
from fusionstitch.codegen.schedule.schedule import KernelPlan
from tests.codegen.cases import CASES


def lives(plan: KernelPlan) -> dict[int, tuple[int, int]]:
    """By op id, the phase that writes a value and the last one that reads it."""
    phase = {s: p for p, groups in enumerate(plan.phases) for g in groups for s in g.group.stages}

    def readers(value: Stage) -> list[int]:
        return [p for s, p in phase.items() if any(read is value for read, _ in s.reads)]

    return {s.op.id: (phase[s], max(readers(s))) for s in global_values(plan)}


@pytest.mark.parametrize("name", ["unrolled_steps", "tied_embedding", "tiled_sums_and_parts"])
def test_values_share_a_buffer_one_after_another(name: str) -> None:
    scheduled = plan_kernel(CASES[name].case().graph, CASES[name].device)
    found = lives(scheduled.plan)
    buffers = scratch_buffers(scheduled.graph, scheduled.plan)
    outputs = {o.id for o in scheduled.graph.root.operands}
    assert sorted(op.id for b in buffers for op in b.ops) == sorted(found.keys() - outputs)
    for buffer in buffers:
        assert len({op.dtype for op in buffer.ops}) == 1
        assert buffer.shape.bytes == max(op.shape.bytes for op in buffer.ops)
        for before, after in itertools.pairwise(buffer.ops):
            assert found[before.id][1] < found[after.id][0]


def test_an_unrolled_loop_takes_less_than_all_its_values() -> None:
    kernel = CASES["unrolled_steps"].case().kernel()
    scheduled = plan_kernel(CASES["unrolled_steps"].case().graph, CASES["unrolled_steps"].device)
    passed = [s.op for s in global_values(scheduled.plan)]
    assert len(kernel.scratch) < len(passed) / 2
    assert "float* scratch" in kernel.source
