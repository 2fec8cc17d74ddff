"""Integers as sums: two are equal where they are so however they are written.

`row * 4 + lane` is an `Integer` where lowering knows the index, and an `Infix` of variables where
it writes the arithmetic out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Fetched, Index, Quotient, Var
from fusionstitch.codegen.ir.expressions import Expr, Infix, Integer, Name, Number


@dataclass(frozen=True, slots=True)
class Divided:
    """A sum's quotient by a number, or the remainder."""

    of: Sum
    by: int
    remainder: bool


@dataclass(frozen=True, slots=True)
class Sum:
    """`const`, and terms with what they are multiplied by: variables by their names, quotients and
    remainders, and expressions that are no sums."""

    terms: frozenset[tuple[Hashable, int]] = frozenset()
    const: int = 0

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """This sum and `times` another one."""
        if not self.terms and times == 1:
            return Sum(other.terms, self.const + other.const)
        found = dict(self.terms)
        for term, coefficient in other.terms:
            found[term] = found.get(term, 0) + times * coefficient
        left = frozenset((term, by) for term, by in found.items() if by)
        return Sum(left, self.const + times * other.const)


ZERO = Sum()


def sum_of(value: Expr) -> Sum:
    """An integer as a sum."""
    if isinstance(value, Integer):
        return _of_index(value.index)
    if isinstance(value, Name):
        return _term(value.name)
    if isinstance(value, Number):
        return _term(value) if value.integer is None else Sum(const=value.integer)
    if isinstance(value, Infix):
        return _of_infix(value)
    return _term(value)


def _of_infix(value: Infix) -> Sum:
    first, *others = map(sum_of, value.operands)
    if value.operator in ("+", "-"):
        for other in others:
            first = first.plus(other, 1 if value.operator == "+" else -1)
        return first
    if len(others) == 1 and not others[0].terms:
        by = others[0].const
        if value.operator == "*":
            return ZERO.plus(first, by)
        if value.operator in ("/", "%") and by > 0:
            return _term(Divided(first, by, value.operator == "%"))
    return _term(value)


def _of_index(index: Index) -> Sum:
    found = Sum(const=index.const)
    for term, coefficient in index.terms:
        if isinstance(term, (Var, Fetched)):
            own: Hashable = term.name
        else:
            own = Divided(_of_index(term.base), term.divisor, not isinstance(term, Quotient))
        found = found.plus(_term(own), coefficient)
    return found


def _term(term: Hashable) -> Sum:
    return Sum(frozenset({(term, 1)}))
