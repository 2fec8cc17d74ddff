"""Registers that a thread may keep rows and sums in."""

from __future__ import annotations

from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.hlo.graph import Op

#: Registers of an SM (4-byte units), and the share of a thread's that nothing is kept in: a thread
#: that has more works on more of its row at once.
SM_REGISTERS, SPARE_SHARE = 65536, 7 / 16


def row_registers(plan: KernelPlan) -> int:
    """Registers per thread that rows and carried sums may take."""
    if plan.tuning.row_registers is not None:
        return plan.tuning.row_registers
    blocks = plan.tuning.blocks_per_sm
    each = SM_REGISTERS // (blocks * plan.block if blocks else plan.resident)
    return each - int(SPARE_SHARE * each)


def words_of(op: Op) -> int:
    """Registers of one value of `op`."""
    return max(4, compute_bytes(op.dtype)) // 4
