"""How many elements a reduction or a dot sums up, and along which dims."""

from __future__ import annotations

from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Elements that a sum over pairs visits for each that an array it reads has.
LEAST_PAIRED = 8
#: Ops of regions alone whose threads work in a way of their own, on all of a row together: bins
#: (`bins.py`) and sorted rows (`sorts.py`).
OWN_LOOP = frozenset({"bins", "sort-rows"})
#: A reduction over at most this many elements is a sequential loop inside its reader.
INLINE_REDUCE = 4


def is_short(op: Op) -> bool:
    """Whether a reduction is repeated inside each of its readers."""
    return op.opcode == "reduce" and reduced_size(op) <= INLINE_REDUCE


def needs_stage(op: Op) -> bool:
    """Dots, and reductions too long to be repeated inside each reader."""
    return kind_of(op.opcode) in (Kind.DOT, Kind.REDUCTION) and not is_short(op)


def reduced_size(op: Op) -> int:
    """Elements summed into each result."""
    size = 1
    for extent in inner_extents(op):
        size *= extent
    return size


def is_strided(op: Op) -> bool:
    """True if a reduction sums over other than the minor-most dim of what it reads."""
    if op.opcode != "reduce":
        return False
    dims = op.operands[0].dims
    minor = max((d for d, extent in enumerate(dims) if extent > 1), default=0)
    return minor not in op.attrs["dimensions"]


def inner_extents(op: Op) -> tuple[int, ...]:
    """Extents of the dims a reduction or dot sums over, in the order of its first operand."""
    if op.opcode == "reduce":
        return tuple(op.operands[0].dims[d] for d in sorted(op.attrs["dimensions"]))
    if op.opcode == "dot":
        return tuple(op.operands[0].dims[d] for d in op.attrs["lhs_contract"])
    return op.operands[0].dims[1:] if op.opcode in OWN_LOOP else ()
