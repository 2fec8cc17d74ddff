"""Nothing is stored to inputs and tables: what is loaded of them may come from a cache that knows
of no stores (`const __restrict__`).
"""

from __future__ import annotations

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.statements import Arrive, Store, StoreVector
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import statements

_READ_ONLY = (Memory.INPUT, Memory.CONSTANT)


def check(kernel: Lowered) -> None:
    """Raises Fault for a store to what holds still for the whole launch."""
    still = {buffer.name for buffer in kernel.buffers if buffer.memory in _READ_ONLY}
    for one in statements(kernel.body):
        name = one.buffer if isinstance(one, (Store, StoreVector)) else ""
        name = one.counter if isinstance(one, Arrive) else name
        if name in still:
            raise Fault(f"{name} is written, and loads of it may not see that", one)
