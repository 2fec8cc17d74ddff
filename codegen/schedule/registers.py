"""Registers that a thread may keep rows and sums in."""

from __future__ import annotations

from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.hlo.graph import Op

#: The share of a thread's registers that stays free: a thread that has more works on more of its
#: row at once.
SPARE_SHARE = 7 / 16


def row_registers(plan: KernelPlan) -> int:
    """Registers per thread that rows and carried sums may take."""
    if plan.tuning.row_registers is not None:
        return plan.tuning.row_registers
    blocks = plan.tuning.blocks_per_sm
    each = plan.registers // (blocks * plan.block if blocks else plan.resident)
    return each - int(SPARE_SHARE * each)


def words_of(op: Op) -> int:
    """Registers of one value of `op`."""
    return max(4, compute_bytes(op.dtype)) // 4
