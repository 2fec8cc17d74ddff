"""Scratch: which values pass through global memory, and which of them share a buffer.

A value that no later phase reads leaves its memory to values of the phases after its last reader's:
a grid barrier lies between. A kernel of a hundred phases then works on little memory, which stays
in the L2 cache, as XLA's buffer assignment does for kernels of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.text.types import C_TYPES, c_type
from fusionstitch.hlo.graph import Graph, Op, Shape


@dataclass
class Buffer:
    """A scratch buffer of `bytes`, and the values of one C type that it holds one after another."""

    ops: list[Op]
    bytes: int
    last: int

    @property
    def shape(self) -> Shape:
        """Elements of its largest value."""
        dtype = self.ops[0].dtype
        if len(self.ops) == 1:
            return in_memory(self.ops[0].shape)
        return in_memory(Shape(dtype, (self.bytes // c_type(dtype).bytes,)))


def in_memory(shape: Shape) -> Shape:
    """The shape of a value outside of kernels: records have no dtype there, they are bytes."""
    if shape.dtype in C_TYPES:
        return shape
    return Shape("u8", (shape.size * c_type(shape.dtype).bytes,))


def global_values(plan: KernelPlan) -> set[Stage]:
    """Stages read by another group: they pass through global memory."""
    home = {s: g for g in plan.groups for s in g.group.stages}
    return {
        producer
        for group in plan.groups
        for stage in group.group.stages
        for producer, _ in stage.reads
        if home[producer] is not home[stage]
    }


def scratch_buffers(graph: Graph, plan: KernelPlan) -> list[Buffer]:
    """The buffers of all values that another group reads and that are no outputs."""
    outputs = {o.id for o in graph.root.operands}
    phase = {s: p for p, groups in enumerate(plan.phases) for g in groups for s in g.group.stages}
    last = _last_reads(phase)
    passed = [s for s in global_values(plan) if s.op.id not in outputs]
    buffers: list[Buffer] = []
    for stage in sorted(passed, key=lambda s: (phase[s], s.op.id)):
        op = stage.op
        size = op.shape.size * c_type(op.dtype).bytes
        free = [b for b in buffers if b.last < phase[stage] and b.ops[0].dtype == op.dtype]
        if not free:
            buffers.append(Buffer([op], size, last[stage]))
            continue
        # the tightest that holds it; else the one that has to grow least
        chosen = min(free, key=lambda b: (b.bytes < size, abs(b.bytes - size)))
        chosen.ops.append(op)
        chosen.bytes = max(chosen.bytes, size)
        chosen.last = last[stage]
    return buffers


def _last_reads(phase: Mapping[Stage, int]) -> dict[Stage, int]:
    """The last phase that reads each stage."""
    last = dict(phase)
    for stage, number in phase.items():
        for producer, _ in stage.reads:
            last[producer] = max(last[producer], number)
    return last
