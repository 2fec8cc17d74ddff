"""Ops whose results jump where their float operands change slightly, and ops that choose among
floats. The result of the latter equals one of their operands, as long as no other kernel computes
that operand again and rounds it differently.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.hlo.graph import FLOATS, FLOATS8, Op
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.tuples import unhindered

_STEPS = frozenset(
    {
        "compare",
        "is-finite",
        "sign",
        "floor",
        "ceil",
        "round-nearest-afz",
        "round-nearest-even",
        "remainder",
    }
)
_CASTS = frozenset({"convert", "bitcast-convert"})
_CHOICES = frozenset({"maximum", "minimum", "clamp"})
#: Ops that give elements of their operands, or what follows from one of them alone.
_PICKS = _CHOICES | {"select", "abs", "negate", "copy", "convert", "reduce-precision"}
#: The reducers that give one of their elements.
EXTREMA = frozenset({"maximum", "minimum"})


def is_step(op: Op) -> bool:
    """Whether an op decides something by floats."""
    if op.opcode == "compare" and op.operands[0] is op.operands[1]:  # tests for NaN
        return False
    if op.opcode in _CASTS:
        return has_floats(op.operands[0]) and not has_floats(op)
    return op.opcode in _STEPS


def has_floats(op: Op) -> bool:
    """Whether there are floats in a value: in records, too."""
    return op.dtype in FLOATS | FLOATS8 or op.dtype.startswith("record")


def is_extremum(op: Op) -> bool:
    """Whether an op gives the greatest or least of many numbers."""
    return op.attrs.get("reducer") in EXTREMA


def chosen_by(ops: Iterable[Op]) -> bool:
    """Whether some of the ops `picked` passes choose by magnitude, among many or few."""
    return any(is_extremum(op) or op.opcode in _CHOICES for op in ops)


def picked(op: Op) -> tuple[set[Op], set[Op]]:
    """The ops whose results are the elements of `op`, and the ops that have chosen or moved
    these."""
    found, passed, todo = set[Op](), set[Op](), [op]
    while todo:
        one = unhindered(todo.pop())
        if one in passed or not has_floats(one):
            continue
        if is_extremum(one) or one.opcode in _PICKS or kind_of(one.opcode) is Kind.MOVEMENT:
            passed.add(one)
            todo += one.operands
        else:
            found.add(one)
    return found, passed
