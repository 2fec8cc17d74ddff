"""Large constants of loops' bodies: kernels read them as they read inputs, which the loop has to be
given."""

from __future__ import annotations

from fusionstitch.hlo.graph import Module, Op
from fusionstitch.hlo.loop_constants import LoopConstants
from fusionstitch.patterns.fusible import DTYPES
from fusionstitch.patterns.open_loops import editable_loops

#: Bytes of a constant at most: a loop that stays XLA's copies what it carries once.
MOST_BYTES = 1 << 20


def loop_constants(module: Module) -> list[LoopConstants]:
    """Those that loops may carry. A loop in a loop hands them to the body around it first."""
    found = []
    for graph, loop in editable_loops(module):
        body = loop.called[1]
        constants = tuple(op for op in body if _is_large(op) and body.users[op.id])
        if constants:
            found.append(LoopConstants(graph, loop, constants))
    return found


def _is_large(op: Op) -> bool:
    """Whether the elements of a constant are not looked at."""
    array = op.opcode == "opaque-constant" and not op.shape.is_tuple
    return array and op.dtype in DTYPES and op.shape.bytes <= MOST_BYTES
