"""Which kernels have blocks that wait for each other by counters, and which buffers those are."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.statements import Arrive, Wait
from fusionstitch.codegen.ir.types import WORD
from fusionstitch.codegen.ir.walk import statements


def has_counters(kernel: Lowered) -> bool:
    """Whether blocks arrive at counters or wait for them."""
    return any(True for _ in arrivals(kernel))


def may_count(buffer: Buffer) -> bool:
    """Whether a buffer may be one of counters."""
    return buffer.memory is Memory.SCRATCH and buffer.type == WORD


def arrivals(kernel: Lowered) -> Iterator[Arrive | Wait]:
    """All statements at which blocks arrive or wait, those of functions first."""
    for body in kernel.bodies:
        for one in statements(body):
            if isinstance(one, (Arrive, Wait)):
                yield one
