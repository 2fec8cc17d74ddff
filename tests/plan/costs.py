"""Kernels without code generation: their costs follow from the ops alone."""

from __future__ import annotations

import math
from dataclasses import replace

from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.kernel_cost import KernelCost, Path, PhaseCost
from fusionstitch.costmodel.work import SECTOR_BYTES, Work, fused_work
from fusionstitch.patterns.pattern import Pattern


def cost_of(work: Work, path: Path | None = None, phases: int = 1) -> KernelCost:
    """The cost of a kernel that does just `work`, by threads that each go `path`, with grid
    barriers between `phases`."""
    moved = work.bytes + work.l2_bytes
    phase = PhaseCost(
        path or Path(rounds=1, far=1),
        outside=moved,
        moved=moved,
        sectors=moved // SECTOR_BYTES,
        ops=work.flops + work.int_ops + work.dot_flops // 2,
        special=work.special,
        flops64=work.flops64,
        grid_barriers=phases - 1,
    )
    return KernelCost((phase,), max(1, work.blocks), 256, 32, 0, moved)


def kernel_of(pattern: Pattern, path: Path | None = None, phases: int = 1) -> KernelFacts:
    """A plain code generator: everything on chip."""
    work = fused_work(pattern.ops, pattern.outputs, device("h200").instructions)
    blocks = max(1, math.ceil(max(op.shape.size for op in pattern.ops) / 1024))
    return KernelFacts(cost_of(replace(work, blocks=blocks), path, phases))
