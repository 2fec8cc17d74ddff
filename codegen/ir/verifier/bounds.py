"""Every access lies inside of its array or buffer.

Where an address may lie outside by the ranges of its variables alone, a condition around the access
must ask for one of them: what it rules out is not computed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, Quotient, Remainder, Term
from fusionstitch.codegen.ir.expressions import (
    Apply,
    Choice,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Number,
)
from fusionstitch.codegen.ir.intrinsics import MINIMUM
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import (
    FILLED,
    Array,
    Assign,
    Fill,
    For,
    Group,
    If,
    Leave,
    Let,
    Shared,
    Skip,
    Statement,
    Store,
    StoreVector,
    Table,
)
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.verifier.vectors import width_of
from fusionstitch.codegen.ir.visitor import Visitor
from fusionstitch.codegen.ir.walk import names, parts

Range = tuple[int, int]


def check(kernel: Lowered) -> None:
    """Raises Fault for an access beyond an array or a buffer."""
    sizes = {buffer.name: buffer.size for buffer in kernel.buffers}
    _Walk(sizes).body(kernel.body)
    for function in kernel.functions:  # its buffers are those of several groups
        _Walk({}).body(function.body)


class _Walk(Visitor):
    """Walks statements with the sizes of arrays and, for variables, their ranges and whether a
    condition checks them."""

    def __init__(self, sizes: Mapping[str, int]):
        self.sizes = dict(sizes)
        self.ranges: dict[str, Range] = {}
        self.checked: list[set[str]] = []
        #: by variable, the variables that it was computed from
        self.made_of: dict[str, set[str]] = {}

    def body(self, body: Iterable[Statement]) -> None:
        self.checked.append(set())
        super().body(body)
        self.checked.pop()

    def group(self, one: Group) -> None:
        for inner in one.body:
            self.statement(inner)

    def branches(self, one: If) -> None:
        if one.given:
            self.statement(one.given)
        self.expression(one.condition, one)
        self.checked.append(set(names(one.condition)))
        self.body(one.body)
        for other in one.others:  # what did not hold rules out as well
            self.checked[-1] |= set(names(other.condition)) if other.condition else set()
            self.body(other.body)
        self.checked.pop()

    def counted(self, one: For) -> None:
        self.expression(one.start, one)
        self.expression(one.stop, one)
        start, stop = self.range_of(one.start), self.range_of(one.stop)
        found: Range | None = None
        if start and stop:
            found = (stop[0], start[1]) if one.down else (start[0], stop[1] - 1)
        # a bound that is computed is a condition
        self.checked.append(set() if isinstance(one.stop, Number) else {one.variable})
        with self._runs(one.variable, found):
            self.body(one.body)
        self.checked.pop()

    @contextmanager
    def _runs(self, variable: str, found: Range | None) -> Iterator[None]:
        """Where a variable of a loop has this range: others of its name have their own."""
        outer = self.ranges.pop(variable, None)
        if found is not None:
            self.ranges[variable] = found
        yield
        self.ranges.pop(variable, None)
        if outer is not None:
            self.ranges[variable] = outer

    def simple(self, one: Statement) -> None:
        with self._runs(FILLED, (0, one.size - 1)) if isinstance(one, Fill) else nullcontext():
            for part in parts(one):
                self.expression(part, one)
        if isinstance(one, Array):
            self.sizes[one.name] = _elements(one)
        elif isinstance(one, Shared):
            self.sizes[one.name] = one.size
        elif isinstance(one, Table):
            self.sizes[one.name] = len(one.values)
        elif isinstance(one, Let):
            self.made_of[one.name] = set(names(one.value))
            if isinstance(one.value, Apply) and one.value.intrinsic is MINIMUM:
                self.checked[-1].add(one.name)  # a bound that is taken instead
            found = self.range_of(one.value)
            if found:
                self.ranges[one.name] = found
        elif isinstance(one, Fill):
            self.inside(one.array, (0, one.size - 1), (), one)
        elif isinstance(one, Assign):
            self.expression(one.target, one)
        elif isinstance(one, Store):
            self.access(one.buffer, one.address, 1, one)
        elif isinstance(one, StoreVector):
            width = self.sizes.get(one.values, 1)
            checked = set(names(one.condition)) if one.condition else set()
            self.checked.append(checked)
            self.access(one.buffer, one.address, width, one)
            self.checked.pop()
        elif isinstance(one, (Skip, Leave)):
            self.checked[-1] |= set(names(one.condition))

    def expression(self, expr: Any, at: Statement) -> None:
        if isinstance(expr, Choice):
            for condition, value in expr.cases:
                self.expression(condition, at)
                self.checked.append(set(names(condition)))
                self.expression(value, at)
            self.expression(expr.otherwise, at)
            for _ in expr.cases:
                self.checked.pop()
            return
        for part in parts(expr):
            self.expression(part, at)
        if isinstance(expr, Element) and isinstance(expr.array, Name):
            self.access(expr.array.name, expr.at, 1, at)
        elif isinstance(expr, (Load, LoadVector)) and isinstance(expr.buffer, Name):
            width = expr.width if isinstance(expr, LoadVector) else 1
            self.access(expr.buffer.name, expr.at, width, at)

    def access(self, buffer: str, address: Expr, width: int, at: Statement) -> None:
        found = self.range_of(address)
        if found:
            self.inside(buffer, (found[0], found[1] + width - 1), tuple(names(address)), at)

    def inside(self, buffer: str, found: Range, used: Sequence[str], at: Statement) -> None:
        size = self.sizes.get(buffer)
        if size is None or (found[0] >= 0 and found[1] < size):
            return
        if found[1] < 0 or found[0] >= size or not self._is_checked(used):
            element = found[1] if found[1] >= size else found[0]
            raise Fault(f"{buffer} has {size} elements, and {element} is accessed", at)

    def _is_checked(self, used: Sequence[str]) -> bool:
        """Whether an enclosing condition checks a variable, or one that it was computed from."""
        return any(name in checked for name in self._origins(used) for checked in self.checked)

    def _origins(self, used: Sequence[str]) -> Iterator[str]:
        seen, todo = set[str](), list(used)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                yield name
                todo += self.made_of.get(name, ())

    def range_of(self, expr: Expr) -> Range | None:
        """The least and the greatest value of an integer, None where that is not known."""
        if isinstance(expr, Integer):
            return self.interval(expr.index)
        if isinstance(expr, Number):
            return (int(expr.text),) * 2 if expr.text.isdigit() else None
        if isinstance(expr, Name):
            return self.ranges.get(expr.name)
        if isinstance(expr, Infix) and expr.operator in _COMBINE:
            ranges = [self.range_of(operand) for operand in expr.operands]
            first, *others = ranges
            for other in others:
                if first is None or other is None:
                    return None
                first = _COMBINE[expr.operator](first, other)
            return first
        return None

    def interval(self, index: Index) -> Range:
        """The least and the greatest value of an index, by the known ranges of its variables where
        these are narrower than their declared ones."""
        low = high = index.const
        for term, coefficient in index.terms:
            ends = [coefficient * end for end in self.term(term)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def term(self, term: Term) -> Range:
        if isinstance(term, Quotient):
            low, high = self.interval(term.base)
            return max(0, low // term.divisor), max(0, high // term.divisor)
        if isinstance(term, Remainder):
            return 0, min(term.divisor - 1, max(0, self.interval(term.base)[1]))
        low, high = self.ranges.get(term.name, (term.lo, term.hi))
        return min(low, term.lo), max(high, term.hi)


def _elements(one: Array) -> int:
    """The elements of an array, or of a vector."""
    return width_of(one) or (1 if one.size is None else one.size)


_COMBINE = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": lambda a, b: (min(x * y for x in a for y in b), max(x * y for x in a for y in b)),
}
