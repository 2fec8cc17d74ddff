"""Large constants in loop bodies. Kernels read them like inputs, so the loop must carry them."""

from __future__ import annotations

from fusionstitch.hlo.graph import Module, Op
from fusionstitch.hlo.loop_constants import LoopConstants
from fusionstitch.patterns.fusible import DTYPES
from fusionstitch.patterns.open_loops import editable_loops

#: The most bytes of a constant: a loop that stays with XLA copies what it carries once.
MOST_BYTES = 1 << 20


def loop_constants(module: Module) -> list[LoopConstants]:
    """The constants that loops may carry. An inner loop first passes them to the body around it."""
    found = []
    for graph, loop in editable_loops(module):
        body = loop.called[1]
        constants = tuple(op for op in body if _is_large(op) and body.users[op.id])
        if constants:
            found.append(LoopConstants(graph, loop, constants))
    return found


def _is_large(op: Op) -> bool:
    """Whether a constant is so large that its elements are not examined."""
    array = op.opcode == "opaque-constant" and not op.shape.is_tuple
    return array and op.dtype in DTYPES and op.shape.bytes <= MOST_BYTES
