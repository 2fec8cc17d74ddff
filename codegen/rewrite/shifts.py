"""How ops shift elements along a dim: where element p of a result reads its operands.

    y = x[1:] - x[:-1]      y[p] reads x[p + 1] and x[p]

Slices, pads, concatenates and rolls move elements by a constant, most other ops leave them where
they are, and what does anything else to a dim is not followed along it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Ops between inputs and a value that is still computed from them in a few instructions.
NEAR = 4
#: Ops that read nothing but an input, and those that move elements of one without a choice.
SOURCES = ("parameter", "constant", "iota")
_SIMPLE = ("slice", "broadcast", "reshape", "transpose", "reverse", "pad", "concatenate")


@dataclass(frozen=True)
class Move:
    """Element p of a result, along one of its dims, reads `value` at p + `shift` along its `dim`,
    or (None) wherever p is."""

    value: Op
    dim: int | None
    shift: int = 0


def moves(op: Op, dim: int) -> tuple[Move, ...] | None:
    """What element p along `dim` reads of each operand; None where elements do not follow p, or
    not with a stride of one."""
    if (roll := rolled(op, dim)) is not None:
        return (roll,)
    attrs = op.attrs
    if kind_of(op.opcode) is Kind.ELEMENTWISE:
        return tuple(Move(x, dim if x.shape.rank else None) for x in op.operands)
    match op.opcode:
        case "broadcast":
            [x], dims = op.operands, attrs["dimensions"]
            return (Move(x, dims.index(dim) if dim in dims else None),)
        case "transpose":
            return (Move(op.operands[0], attrs["dimensions"][dim]),)
        case "reshape":
            found = _same(op.dims, op.operands[0].dims).get(dim)
            return None if found is None else (Move(op.operands[0], found),)
        case "slice" if attrs["stride"][dim] == 1:
            return (Move(op.operands[0], dim, attrs["start"][dim]),)
        case "pad" if not attrs["interior"][dim]:
            x, value = op.operands
            return Move(x, dim, -attrs["low"][dim]), Move(value, None)
        case "concatenate":
            starts = itertools.accumulate((x.dims[dim] for x in op.operands), initial=0)
            along = dim == attrs["dimension"]
            return tuple(
                Move(x, dim, -start if along else 0)
                for x, start in zip(op.operands, starts, strict=False)
            )
        case "reverse" if dim not in attrs["dimensions"]:
            return (Move(op.operands[0], dim),)
        case "reduce" if len(op.operands) == 2:
            x, init = op.operands
            kept_dims = [d for d in range(x.shape.rank) if d not in attrs["dimensions"]]
            return Move(x, kept_dims[dim]), Move(init, None)
    return None


def rolled(op: Op, dim: int) -> Move | None:
    """A concatenate of the end of a value and its beginning, as the value, rolled."""
    if op.opcode != "concatenate" or op.attrs["dimension"] != dim or len(op.operands) != 2:
        return None
    end, begin = op.operands
    if not end.opcode == begin.opcode == "slice" or end.operands != begin.operands:
        return None
    [x] = end.operands
    first = end.attrs["start"][dim]
    for part, low, high in ((end, first, x.dims[dim]), (begin, 0, first)):
        expected = [(low, high) if d == dim else (0, n) for d, n in enumerate(x.dims)]
        bounds = zip(part.attrs["start"], part.attrs["limit"], strict=True)
        if list(bounds) != expected or set(part.attrs["stride"]) != {1}:
            return None
    n = x.dims[dim]
    return Move(x, dim, first if 2 * first <= n else first - n)


def _same(dims: Sequence[int], others: Sequence[int]) -> dict[int, int]:
    """The dims, other than of one element, that a reshape leaves as they are."""
    ends = {
        (math.prod(others[:d]), n): d for d, n in enumerate(others) if n > 1
    }  # by the elements before
    found = {d: ends.get((math.prod(dims[:d]), n)) for d, n in enumerate(dims) if n > 1}
    return {d: other for d, other in found.items() if other is not None}


def is_near(op: Op, most: int = NEAR) -> bool:
    """Whether an element is computed from inputs in a few instructions."""
    if op.opcode in SOURCES or op.shape.rank == 0:
        return True
    cheap = kind_of(op.opcode) is Kind.ELEMENTWISE and not spec_of(op.opcode).special
    known = cheap or op.opcode in _SIMPLE
    return known and most > 0 and all(is_near(x, most - 1) for x in op.operands)
