"""Which integers differ between any two threads, so that the element at such an index belongs to
one thread.

A variable may hold all of a thread's number, or a digit of it. Threads share each value of `row =
thread / 16` and of `lane = thread % 16`, but no two have the same `row * 16 + lane`. The same goes
for block numbers. An integer that is not understood belongs to no thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeGuard

from fusionstitch.codegen.index_maps.index import Fetched, Index, Quotient, Term, Var
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Apply,
    Cast,
    Expr,
    Infix,
    Integer,
    Name,
    Number,
)
from fusionstitch.codegen.ir.intrinsics import MINIMUM
from fusionstitch.codegen.ir.statements import For, Let, While
from fusionstitch.codegen.ir.types import IndexType

_ENDLESS = 1 << 62


@dataclass(frozen=True)
class Digit:
    """`number / low % (high / low)`, of the number of a thread or a block; `high` is 0 where no
    remainder is taken."""

    number: str
    low: int = 1
    high: int = 0


@dataclass(frozen=True)
class Digits:
    """The digits that an integer determines, and whether it is itself the only one."""

    found: frozenset[Digit] = frozenset()
    alone: bool = False

    def determines(self, number: str, many: int, first: bool = False) -> bool:
        """Whether these digits distinguish each of `many` neighbours from the others (0: each of
        any number). The neighbours may be those with the `first` numbers."""
        known = {1}  # so many neighbours are distinguished; 0: any number
        for digit in sorted((d for d in self.found if d.number == number), key=lambda d: d.low):
            if digit.low in known:
                known.add(digit.high)
        several = (
            any(one % many == 0 or (first and one >= many) for one in known) if many else False
        )
        return 0 in known or several


NOTHING = Digits()
#: Those who have an integer: digits that are the same for all of them, and their values.
Whose = frozenset[tuple[Digit, int]]
ANYBODY: Whose = frozenset()


class Ownership:
    """What variables have of the numbers of threads and blocks, on the way through statements of
    so many blocks of so many `threads`."""

    def __init__(self, threads: int, blocks: int) -> None:
        self.many = {THREAD.name: threads, BLOCK.name: blocks}
        self.known = {
            name: Digits(frozenset({Digit(name)}), alone=True) for name in (THREAD.name, BLOCK.name)
        }
        #: by variable that is a number of its own, the digits that it determines
        self.digits_of: dict[str, frozenset[Digit]] = {}
        #: variables that are numbers
        self.numbers: dict[str, int] = {}
        #: the first and the last value that integers may have here, where conditions say so
        self.ranges: dict[Expr, tuple[int, int]] = {}

    def define(self, one: Let) -> None:
        """A variable is from now on what a statement says, if nothing changes it."""
        self._be(one.name, NOTHING if one.changes else self.of(one.value))
        number = None if one.changes else self._number(one.value)
        self.numbers.pop(one.name, None)
        if number is not None:
            self.numbers[one.name] = number

    def _number(self, value: Expr) -> int | None:
        """The number that a value is."""
        if isinstance(value, Integer) and not value.index.terms:
            return value.index.const
        if isinstance(value, Name):
            return self.numbers.get(value.name)
        if _is_minimum(value):
            found = [self._number(argument) for argument in value.arguments]
            return None if None in found else min(n for n in found if n is not None)
        return value.integer if isinstance(value, Number) else None

    def begin(self, one: For) -> None:
        """A loop's variable goes from a start on."""
        start = self.of(one.start)
        self.numbers.pop(one.variable, None)
        self._be(one.variable, Digits(start.found) if self._steps_over(one, start) else NOTHING)

    def _steps_over(self, one: For, start: Digits) -> bool:
        """Whether a loop's variable determines what its start does. It does if the step is the
        number of starts, or if each block has a part that begins at its number times the part's
        length."""
        if start.alone:
            [digit] = start.found
            return digit.number in self.many and one.step % self._values(digit) == 0
        if isinstance(one.start, Integer):
            return one.start.index.lo == 0 and one.step % (one.start.index.hi + 1) == 0
        return self._is_part(one.start, one.stop)

    def _is_part(self, start: Expr, stop: Expr) -> bool:
        """Whether what lies from `start` to `stop` is no more than the start is a multiple of."""
        if not (_is(start, "*") and self.of(start.operands[0]).alone):
            return False
        length, ends = self._number(start.operands[1]), [stop]
        if _is_minimum(stop):
            ends = list(stop.arguments)
        added = [e.operands[1] for e in ends if _is(e, "+") and e.operands[0] == start]
        found = [number for e in added if (number := self._number(e)) is not None]
        return length is not None and any(number <= length for number in found)

    def _values(self, digit: Digit) -> int:
        """How many values a digit has."""
        return -(-(digit.high or self.many[digit.number]) // digit.low)

    def turning(self, one: For | While) -> AbstractContextManager[None]:
        """In the iterations of a loop."""
        if isinstance(one, While) or one.down:
            return self.where(())
        return self.where([(Infix("<", (Name(one.variable), one.stop)), True)])

    def _be(self, variable: str, digits: Digits) -> None:
        """A variable that is no digit is a number of its own, which determines the digits it is
        made of."""
        self.digits_of[variable] = frozenset()
        if not digits.alone and digits.found:
            self.digits_of[variable] = digits.found
            digits = Digits(frozenset({Digit(variable)}), alone=True)
        self.known[variable] = digits

    def inside(self, given: Mapping[str, Expr]) -> Ownership:
        """The same in a function that is called with these arguments, by its parameters."""
        inner = Ownership(self.many[THREAD.name], self.many[BLOCK.name])
        inner.digits_of |= self.digits_of
        inner.known |= {name: self.of(argument) for name, argument in given.items()}
        return inner

    @contextmanager
    def where(self, conditions: Iterable[tuple[Expr, bool]]) -> Iterator[None]:
        """Where conditions hold, or (False) do not."""
        before = dict(self.ranges)
        for condition, holds in conditions:
            self._narrow(condition, holds)
        try:
            yield
        finally:
            self.ranges = before

    def _narrow(self, condition: Expr, holds: bool) -> None:
        if not isinstance(condition, Infix) or len(condition.operands) != 2:
            return
        left, limit = condition.operands[0], self._number(condition.operands[1])
        if isinstance(left, Integer) and not left.index.const and len(left.index.terms) == 1:
            [(term, factor)] = left.index.terms
            left = Name(term.name) if isinstance(term, Var) and factor == 1 else left
        if limit is None:
            return
        first, last = self.ranges.get(left, (0, _ENDLESS))
        if condition.operator == "<" and holds:
            last = min(last, limit - 1)
        elif condition.operator == "<":
            first = max(first, limit)
        elif condition.operator == "==" and holds:
            first = last = limit
        self.ranges[left] = first, last

    def whose(self, at: Expr, blocks: int) -> Whose | None:
        """The owner of an integer here, if no two threads of `blocks` blocks (0: of all) have the
        same one; None where threads share it. Owners are equal for the same threads. Values that
        are the same for all threads here are part of the owner if it depends on them."""
        found = self.of(at).found
        if self.many[BLOCK.name] == 1:
            blocks = 1  # which is all of them
        if self._determines_all(found, blocks):
            return ANYBODY
        same = {}
        for value, (first, last) in self.ranges.items():
            if first == last and (digits := self.of(value)).alone:
                [digit] = digits.found
                same[digit] = first
        if not same or not self._determines_all(found | same.keys(), blocks):
            return None
        return frozenset(same.items())

    def _determines_all(self, found: frozenset[Digit], blocks: int) -> bool:
        digits = Digits(self._closed(found))
        _, last = self.ranges.get(THREAD, (0, _ENDLESS))
        threads = min(self.many[THREAD.name], last + 1)
        return digits.determines(THREAD.name, threads, first=True) and digits.determines(
            BLOCK.name, blocks
        )

    def _closed(self, found: frozenset[Digit]) -> frozenset[Digit]:
        """Digits, and those that are determined by the whole numbers which they determine."""
        done: set[str] = set()
        while True:
            numbers = {digit.number for digit in found}
            left = {number for number in numbers if self.digits_of.get(number)} - done
            whole = {number for number in left if Digits(found).determines(number, 0)}
            if not whole:
                return found
            done |= whole
            found = found.union(*(self.digits_of[number] for number in whole))

    def of(self, value: Expr) -> Digits:
        """The digits that an integer determines."""
        if isinstance(value, Name):
            return self.known.get(value.name, NOTHING)
        if isinstance(value, Integer):
            return self._of_index(value.index)
        if isinstance(value, Cast) and isinstance(value.type, IndexType):
            return self.of(value.value)
        if isinstance(value, Infix) and len(value.operands) == 2:
            return self._of_infix(value.operator, *value.operands)
        return NOTHING

    def _of_infix(self, operator: str, left: Expr, right: Expr) -> Digits:
        by = self._number(right)
        if by is not None:
            return _changed(self.of(left), operator, by)
        pairs = ((left, right), (right, left)) if operator == "+" else ()
        found = [self._joined(one, self.of(other)) for one, other in pairs]
        return max(found, key=lambda digits: len(digits.found), default=NOTHING)

    def _joined(self, larger: Expr, smaller: Digits) -> Digits:
        """That of a multiple and a digit with no more values than what it is a multiple of."""
        if not smaller.alone:
            return NOTHING
        [digit] = smaller.found
        if digit.number not in self.many or self._values(digit) > self._multiple(larger):
            return NOTHING
        return Digits(self.of(larger).found | smaller.found)

    def _multiple(self, value: Expr) -> int:
        """Of what an integer is a multiple, 1 if that is not known."""
        if isinstance(value, Integer):
            return math.gcd(value.index.const, *(factor for _, factor in value.index.terms)) or 1
        if isinstance(value, Infix) and value.operator == "*":
            return abs(self._number(value.operands[1]) or 1)
        return 1

    def _of_index(self, index: Index) -> Digits:
        """The digits that a sum determines: those of its terms, if each is larger than all before
        it together."""
        found, span = frozenset[Digit](), 0
        terms = sorted(index.terms, key=lambda one: abs(one[1]))
        for term, factor in terms:
            if abs(factor) <= span:
                return NOTHING
            span += abs(factor) * (term.hi - term.lo)
            found |= self._of_term(term).found
        if len(terms) == 1 and terms[0][1] == 1 and not index.const:
            return self._of_term(terms[0][0])
        return Digits(found)

    def _of_term(self, term: Term) -> Digits:
        if isinstance(term, (Var, Fetched)):
            return self.known.get(term.name, NOTHING)
        operator = "/" if isinstance(term, Quotient) else "%"
        return _changed(self._of_index(term.base), operator, term.divisor)


def _is(value: Expr, operator: str) -> TypeGuard[Infix]:
    return isinstance(value, Infix) and value.operator == operator and len(value.operands) == 2


def _is_minimum(value: Expr) -> TypeGuard[Apply]:
    return isinstance(value, Apply) and value.intrinsic is MINIMUM


def _changed(of: Digits, operator: str, by: int) -> Digits:
    """The digits that are determined by an integer combined with a number."""
    if operator in ("+", "-") or (operator == "*" and by):
        return Digits(of.found)
    if operator not in ("/", "%") or not of.alone or by <= 0:
        return NOTHING
    [digit] = of.found
    middle = digit.low * by
    if digit.high and (digit.high % middle or middle > digit.high):
        return NOTHING
    if operator == "/":
        return Digits(frozenset({Digit(digit.number, middle, digit.high)}), alone=True)
    return Digits(frozenset({Digit(digit.number, digit.low, middle)}), alone=True)
