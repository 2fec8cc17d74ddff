"""Expressions of a kernel as integers, conditions and locations in memory."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from fusionstitch.codegen.count.axes import Array
from fusionstitch.codegen.count.conditions import Condition, below_zero, is_zero
from fusionstitch.codegen.count.values import (
    UNKNOWN,
    Large,
    Sum,
    Unknown,
    Value,
    least,
    looked_up,
    unknown,
)
from fusionstitch.codegen.index_maps.index import Fetched, Index, Quotient, Var
from fusionstitch.codegen.ir.expressions import (
    SHARED,
    Address,
    Apply,
    Arithmetic,
    Cast,
    Choice,
    Element,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Named,
    Not,
    Number,
    Pointer,
)
from fusionstitch.codegen.ir.intrinsics import CLAMP, MINIMUM
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.types import INTEGERS
from fusionstitch.costmodel.devices import WARP


@dataclass(frozen=True, eq=False)
class Location:
    """Where a pointer points: a memory, `item` bytes per element, and `offset` bytes from the begin
    of a buffer, which is aligned. `buffers` has the name and the bytes of the buffer, or of all
    that it may be. Of a table of integers the elements are known."""

    memory: Memory
    item: int
    offset: Value = 0
    buffers: tuple[tuple[str, int], ...] = ()
    integers: Array | None = None


@dataclass(eq=False)
class Names:
    """What the names of a scope stand for. A variable stays an expression until its value is
    needed: most never are."""

    values: dict[str, Any] = field(default_factory=dict)
    locations: dict[str, Location] = field(default_factory=dict)

    def value_of(self, name: str) -> Value:
        found = self.values.get(name, UNKNOWN)
        if not isinstance(found, (int, Sum, Large, Unknown)):
            found = self.values[name] = self.value(found)
        return found

    def value(self, expr: Any) -> Value:
        """An integer."""
        kind = type(expr)
        if kind is Integer:
            return self.index(expr.index)
        if kind is Name:
            return self.value_of(expr.name)
        if kind is Number:
            return UNKNOWN if expr.integer is None else expr.integer
        if kind is Infix:
            return self.infix(expr)
        if kind is Named:
            return self.named(expr.parts)
        if kind is Apply:
            if expr.intrinsic is MINIMUM:
                return least(*map(self.value, expr.arguments))
            if expr.intrinsic is CLAMP:  # an index that is clamped for few threads
                return self.value(expr.arguments[1])
            alike = expr.intrinsic.alike_over(expr.template)
            if alike is not None:
                return Unknown(alike=alike or WARP)
            return unknown(*map(self.value, expr.arguments))
        if kind is Cast:
            found = self.value(expr.value)
            return found if expr.type in INTEGERS else unknown(found)
        if kind is Not:
            return unknown(self.value(expr.condition))
        if kind is Load:
            return self.loaded(expr)
        if kind is LoadVector:
            return unknown(self.value(expr.at))
        if kind is Arithmetic:
            return self.computed(expr)
        return UNKNOWN

    def loaded(self, expr: Load) -> Value:
        """An element in memory: of the kernel's own tables it is known."""
        at, location = self.value(expr.at), self.location(expr.buffer)
        if location is None or location.integers is None or location.offset != 0:
            return unknown(at)
        return looked_up(location.integers, at)

    def computed(self, expr: Arithmetic) -> Value:
        """What an elementwise op makes of integers."""
        values = [self.value(argument) for argument in expr.arguments]
        combine = _OPERATORS.get(_ADDING.get(expr.op.opcode, ""))
        if combine is None or expr.op.dtype not in _INDICES:
            return unknown(*values)
        found: Value = combine(*values)
        return found

    def infix(self, expr: Infix) -> Value:
        combine = _OPERATORS.get(expr.operator)
        if combine is None:
            return UNKNOWN
        found, *others = map(self.value, expr.operands)
        for other in others:
            found = combine(found, other)
        return found

    def index(self, index: Index) -> Value:
        found: Value = index.const
        for term, coefficient in index.terms:
            if isinstance(term, (Var, Fetched)):
                value = self.value_of(term.name)
            else:
                base = self.index(term.base)
                divides = isinstance(term, Quotient)
                value = base // term.divisor if divides else base % term.divisor
            found = found + (value if coefficient == 1 else value * coefficient)
        return found

    def named(self, parts: tuple[str, ...]) -> Value:
        """C text whose constants have names: of integers it reads as Python does."""
        code, names = _compiled(parts)
        found: Value = eval(code, {}, {name: self.value_of(name) for name in names})
        return found

    def conditions(self, expr: Any) -> list[Condition]:
        """A condition as those that must hold together."""
        if isinstance(expr, Infix) and expr.operator == "&&":
            return [found for operand in expr.operands for found in self.conditions(operand)]
        if isinstance(expr, Infix) and expr.operator in _COMPARE:
            left, right = map(self.value, expr.operands)
            return [_COMPARE[expr.operator](left, right)]
        if isinstance(expr, Name):
            known = self.values.get(expr.name)
            return self.conditions(known) if isinstance(known, (Infix, Name)) else [UNKNOWN]
        return [UNKNOWN]

    def location(self, expr: Any) -> Location | None:
        """Where a pointer points, None for arrays of a thread."""
        kind = type(expr)
        if kind is Name:
            return _SHARED if expr == SHARED else self.locations.get(expr.name)
        if kind is Apply:
            return self.location(expr.arguments[0]) if expr.arguments else None
        if kind is Infix:
            start, *more = expr.operands
            return self._moved_by(self.location(start), more)
        if kind is Address:
            return self._moved_by(self.location(expr.buffer), [expr.at])
        if kind is Pointer:
            found = self.location(expr.start)
            return found and replace(found, item=expr.type.bytes)
        if kind is Element:
            return self.location(expr.array)
        if kind is Choice:
            return self._one_of([*(to for _, to in expr.cases), expr.otherwise])
        return None

    def _one_of(self, pointers: Sequence[Any]) -> Location | None:
        """One of several locations, which threads visit alike: the first stands for all of them."""
        locations = [location for location in map(self.location, pointers) if location]
        if not locations:
            return None
        buffers = dict.fromkeys(buffer for location in locations for buffer in location.buffers)
        return replace(locations[0], buffers=tuple(buffers))

    def _moved_by(self, location: Location | None, more: Any) -> Location | None:
        if location is None:
            return None
        offset = location.offset
        for one in more:
            offset = offset + self.value(one) * location.item
        return replace(location, offset=offset)


@functools.lru_cache(maxsize=1 << 12)
def _compiled(parts: tuple[str, ...]) -> tuple[CodeType, tuple[str, ...]]:
    text = "".join(parts).replace("/", "//")
    return compile(text, "<address>", "eval"), tuple(filter(str.isidentifier, parts))


_SHARED = Location(Memory.SHARED, 1)
_OPERATORS: Mapping[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
#: Ops of integers that positions are computed by, and their operators.
_ADDING = {"add": "+", "subtract": "-", "multiply": "*"}
_INDICES = frozenset({"s32", "s64"})
_COMPARE: Mapping[str, Any] = {
    "<": lambda a, b: below_zero(a - b),
    "<=": lambda a, b: below_zero(a - b - 1),
    ">": lambda a, b: below_zero(b - a),
    ">=": lambda a, b: below_zero(b - a - 1),
    "==": lambda a, b: is_zero(a - b),
    "!=": lambda a, b: UNKNOWN,
}
