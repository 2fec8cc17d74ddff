"""What integers a block computes with: those that are the same for its threads, and ranges of the
others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from fusionstitch.codegen.index_maps.index import Index, Quotient, Remainder, Term
from fusionstitch.codegen.ir.elements import Elements, between
from fusionstitch.codegen.ir.expressions import (
    Apply,
    Cast,
    Expr,
    Infix,
    Integer,
    Name,
    Not,
    Number,
)
from fusionstitch.codegen.ir.intrinsics import MAXIMUM, MINIMUM
from fusionstitch.codegen.ir.types import INTEGERS

#: Variables by their names; None, or no variable: any value.
Values = Mapping[str, Elements | None]


def value(expr: Expr, known: Values) -> Elements | None:
    """What integers an expression may be; None: any."""
    if isinstance(expr, Name):
        return known.get(expr.name)
    if isinstance(expr, Number):
        return None if expr.integer is None else Elements(expr.integer)
    if isinstance(expr, Integer):
        return _index(expr.index, known)
    if isinstance(expr, Cast):
        return value(expr.value, known) if expr.type in INTEGERS else None
    if isinstance(expr, Infix):
        return _infix(expr, known)
    if isinstance(expr, Apply) and expr.intrinsic in (MINIMUM, MAXIMUM):
        return _extreme(expr, known)
    return None


def holds(condition: Expr, known: Values) -> bool | None:
    """Whether a condition holds for all threads; None where it may for some, or is not known."""
    if isinstance(condition, Not):
        found = holds(condition.condition, known)
        return None if found is None else not found
    if not isinstance(condition, Infix):
        return None
    if condition.operator in ("&&", "||"):
        each = [holds(one, known) for one in condition.operands]
        ends = condition.operator == "||"
        return ends if ends in each else None if None in each else not ends
    compare = _COMPARISONS.get(condition.operator)
    both = [value(one, known) for one in condition.operands]
    if compare is None or len(both) != 2 or both[0] is None or both[1] is None:
        return None
    return compare(both[0], both[1])


def _less(a: Elements, b: Elements) -> bool | None:
    return True if a.last < b.first else False if a.first >= b.last else None


def _equal(a: Elements, b: Elements) -> bool | None:
    if a.alone is not None and a == b:
        return True
    return None if a.meets(b) else False


def _not(found: bool | None) -> bool | None:
    return None if found is None else not found


_COMPARISONS: Mapping[str, Callable[[Elements, Elements], bool | None]] = {
    "<": _less,
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: _not(_less(a, b)),
    "<=": lambda a, b: _not(_less(b, a)),
    "==": _equal,
    "!=": lambda a, b: _not(_equal(a, b)),
}


def _infix(expr: Infix, known: Values) -> Elements | None:
    combine = _OPERATORS.get(expr.operator)
    if combine is None:
        return None
    first, *others = (value(one, known) for one in expr.operands)
    for other in others:
        if first is None or other is None:
            return None
        first = combine(first, other)
    return first


def _by_constant(
    combine: Callable[[Elements, int], Elements],
) -> Callable[[Elements, Elements], Elements | None]:
    """An operation by an integer that is known, of what is not negative if it is a division."""

    def found(a: Elements, b: Elements) -> Elements | None:
        by = b.alone
        if by is None or (combine is not operator.mul and (by <= 0 or a.first < 0)):
            return None
        return combine(a, by)

    return found


def _times(a: Elements, b: Elements) -> Elements | None:
    by = _by_constant(operator.mul)
    return by(a, b) if b.alone is not None else by(b, a)


_OPERATORS: Mapping[str, Callable[[Elements, Elements], Elements | None]] = {
    "+": operator.add,
    "-": lambda a, b: a + b * -1,
    "*": _times,
    "/": _by_constant(operator.floordiv),
    "%": _by_constant(operator.mod),
}


def _extreme(call: Apply, known: Values) -> Elements | None:
    """The lesser or the greater of two integers."""
    a, b = (value(one, known) for one in call.arguments)
    if a is None or b is None:
        return None
    lesser = call.intrinsic is MINIMUM
    for one, other in ((a, b), (b, a)):
        if (one.last <= other.first) if lesser else (one.first >= other.last):
            return one
    pick = min if lesser else max
    return between(pick(a.first, b.first), pick(a.last, b.last))


def _index(index: Index, known: Values) -> Elements | None:
    found = Elements(index.const)
    for term, factor in index.terms:
        part = _term(term, known)
        if part is None:
            return None
        found = found + part * factor
    return found


def _term(term: Term, known: Values) -> Elements | None:
    if isinstance(term, (Quotient, Remainder)):
        base = _index(term.base, known)
        if base is None or base.first < 0:  # only conditions around may say that it is not
            return between(term.lo, term.hi)
        is_quotient = isinstance(term, Quotient)
        return base // term.divisor if is_quotient else base % term.divisor
    found = known.get(term.name)
    return between(term.lo, term.hi) if found is None else found
