"""How large the elements of integer ops can be: index arithmetic is wide, its values are small."""

from __future__ import annotations

from collections.abc import Mapping

from fusionstitch.hlo.graph import INTEGERS, SIGNED, Op
from fusionstitch.hlo.literals import only_element
from fusionstitch.hlo.rewrite import splat

_SAME = frozenset({"broadcast", "reshape", "transpose", "slice", "convert"})


def bits(dtype: str) -> int:
    """The width of an integer type."""
    return int(dtype[1:])


def at_most(op: Op, known: Mapping[Op, int | None]) -> int | None:
    """A number that no element of an integer op exceeds, if none is negative and none wraps.

    `known` has the results of this function for the op's operands.
    """
    bound = _bound(op, known) if op.dtype in INTEGERS else None
    sign = op.dtype in SIGNED
    return bound if bound is not None and bound < 1 << bits(op.dtype) - sign else None


def _bound(op: Op, known: Mapping[Op, int | None]) -> int | None:
    if op.opcode == "constant":
        value = op.attrs["value"]
        if (only := only_element(value)) is not None:
            return int(only) if only >= 0 else None
        return int(value.max()) if value.size and value.min() >= 0 else None
    if op.opcode == "iota":
        return max(0, op.dims[op.attrs["dimension"]] - 1)
    if op.opcode in _SAME:
        return known.get(op.operands[0])
    if op.opcode == "shift-right-logical":
        by, bound = splat(op.operands[1]), known.get(op.operands[0])
        bound = (1 << bits(op.dtype)) - 1 if bound is None else bound
        return None if by is None or not 0 < by < bits(op.dtype) else bound >> int(by)
    if op.opcode in ("add", "multiply"):
        x, y = (known.get(o) for o in op.operands)
        if x is None or y is None:
            return None
        return x + y if op.opcode == "add" else x * y
    return None
