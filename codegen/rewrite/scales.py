"""Factors that keep numbers in range: without them a sum would overflow, or lose what is small.

The squares of x may be infinite, or 0, where those in s * sqrt(sum((x / s)^2)) are not, for s the
largest |x|. So may a sum of x be where sum(x * 1e-20) is a number. And a sum of products with (p /
l).astype(f16) implies nothing about p in f16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fusionstitch.codegen.rewrite.sizes import least, most
from fusionstitch.hlo.deciding import EXTREMA
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Powers of two up to which a constant may be, or its inverse, and leave what it scales in range.
MOST_EXPONENT = 32
#: A number near 1: a sum in another order may need as much more of the range.
NEAR_ONE = 4.0
#: How a factor is applied: an opcode and its operand besides what it scales, if it has one.
Factor = tuple[str, tuple[Op, ...]]
#: Types so narrow that a sum of numbers in their range is beyond it.
NARROW = frozenset({"f16"})
_PASSED = (Kind.ELEMENTWISE, Kind.MOVEMENT)


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
        op.attrs.get("reducer") in EXTREMA for op in _made_of(factor)
    )


def may_leave(factors: Iterable[Factor], rest: Op, other: Op) -> bool:
    """Whether the product of `rest`, times `factors`, and `other` stays in range without them.

    The program never computes `rest` * `other`. The factors must not be what lifts it above the
    subnormal numbers. They must not be what brings it down either, unless it is no larger than one
    of the two, which the program has anyway.
    """
    sizes = [_size(opcode, *factor) for opcode, factor in factors if opcode != "negate"]
    if any(high > NEAR_ONE for _, high in sizes):
        return False
    if all(low >= 1 / NEAR_ONE for low, _ in sizes):
        return True
    return min(most(rest), most(other)) <= 1


def _size(opcode: str, factor: Op) -> tuple[float, float]:
    """Bounds of what a factor multiplies by."""
    low, high = least(factor), most(factor)
    if opcode == "multiply":
        return low, high
    return 1 / high if high else math.inf, 1 / low if low else math.inf


def _made_of(value: Op) -> set[Op]:
    """The ops that give `value` element by element, and the first after them. Powers of at most 1
    bring nothing into range, whatever is subtracted in them."""
    found: set[Op] = set()
    todo = [value]
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            if kind_of(op.opcode) in _PASSED and not (op.opcode == "exponential" and most(op) <= 1):
                todo.extend(op.operands)
    return found
