"""Factors that keep numbers in range: without them a sum would overflow, or lose what is small.

The squares of x may be infinite, or 0, where those in s * sqrt(sum((x / s)^2)) are not, for s the
largest |x|; so may a sum of x be where sum(x * 1e-20) is a number; and a sum of products with
(p / l).astype(f16) says nothing of what p is in f16.
"""

from __future__ import annotations

from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Powers of two up to which a constant may be, or its inverse, and leave what it scales in range.
MOST_EXPONENT = 32
#: Types in whose range those of all others are not.
_NARROW = frozenset({"f16"})
_EXTREMA = ("maximum", "minimum")
_PASSED = (Kind.ELEMENTWISE, Kind.MOVEMENT)
#: Functions whose results are at most 1.
_AT_MOST_ONE = frozenset({"logistic", "tanh", "erf", "sine", "cosine"})


def moderate(value: Op) -> bool:
    """Whether a value is no constant far from 1."""
    constant = splat(value)
    if constant is None:
        return True
    size = abs(float(constant))
    return 2.0**-MOST_EXPONENT <= size <= 2.0**MOST_EXPONENT


def is_scale(factor: Op) -> bool:
    """Whether a factor may be there to keep numbers in range: one made of an extremum, or of a
    constant far from 1."""
    return not moderate(factor) or any(
        op.attrs.get("reducer") in _EXTREMA for op in _made_of(factor)
    )


def narrows(source: str, to: str) -> bool:
    """Whether numbers in the range of `source` may be beyond that of `to`."""
    return to in _NARROW and source != to


def at_most_one(value: Op) -> bool:
    """Whether no element of `value` is known to be beyond 1: results of some functions, and powers
    of differences from an extremum, as a softmax has them."""
    if value.opcode == "select":
        return all(at_most_one(x) for x in value.operands[1:])
    if value.opcode in ("convert", "broadcast", "reshape", "transpose"):
        return at_most_one(value.operands[0])
    if value.opcode == "exponential":
        exponent = value.operands[0]
        return exponent.opcode == "subtract" and any(
            op.attrs.get("reducer") == "maximum" for op in _made_of(exponent.operands[1])
        )
    constant = splat(value)
    return value.opcode in _AT_MOST_ONE or (constant is not None and abs(float(constant)) <= 1)


def _made_of(value: Op) -> set[Op]:
    """The ops that give `value` element by element, and the first behind them."""
    found: set[Op] = set()
    todo = [value]
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            if kind_of(op.opcode) in _PASSED:
                todo.extend(op.operands)
    return found
