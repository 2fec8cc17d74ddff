"""Integers of a kernel that differ from thread to thread, block to block or iteration to iteration.

An integer is a constant plus parts, each an array over axes of its own: `tile * 256 + threadIdx.x`
has a part over blocks and one over threads. So what is computed is as long as an axis, not as all
of them together. Parts become one only where an operation mixes them, as a remainder of their sum
does. What would take more than `MOST` elements is computed where it is needed, at some points of
the axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fusionstitch.codegen.count.axes import MOST, Array, Axis, Part, size, spread, union
from fusionstitch.codegen.count.progressions import Progression
from fusionstitch.costmodel.devices import WARP


@dataclass(frozen=True, eq=False)
class Unknown:
    """An integer that the data decides, but for what is `known` to be added to it. The rest is a
    multiple of `unit`, and the same for each `alike` neighbouring threads."""

    known: int | Sum = 0
    unit: int = 1
    alike: int = 1

    def __add__(self, other: Value) -> Value:
        unit, alike = self.unit, self.alike
        if isinstance(other, Unknown):
            unit, alike, other = math.gcd(unit, other.unit), min(alike, other.alike), other.known
        known = self.known + other
        if isinstance(known, (Large, Unknown)):
            return UNKNOWN
        return Unknown(known, unit, alike)

    def __sub__(self, other: Value) -> Value:
        return self + -other

    def __rsub__(self, other: Value) -> Value:
        return -self + other

    def __mul__(self, other: Value) -> Value:
        if not isinstance(other, int):
            return unknown(self, other)
        known = self.known * other
        return Unknown(
            known if isinstance(known, int | Sum) else 0, self.unit * abs(other), self.alike
        )

    def __floordiv__(self, other: Value) -> Value:
        return unknown(self, other)

    def __neg__(self) -> Value:
        return self * -1

    __radd__, __rmul__, __mod__ = __add__, __mul__, __floordiv__


UNKNOWN = Unknown()


def unknown(*made_of: Value) -> Unknown:
    """What the data makes of some values."""
    return Unknown(alike=min(map(alike, made_of), default=1))


def alike(value: Value) -> int:
    """For how many neighbouring threads, up to those of a warp, a value is the same."""
    if isinstance(value, Unknown):
        return min(value.alike, alike(value.known))
    if isinstance(value, Sum):
        return min((part.alike for part in value.parts), default=WARP)
    return WARP if isinstance(value, int) else 1


@dataclass(frozen=True, eq=False)
class Large:
    """An integer with too many values to have them all: what a function gives of two others."""

    function: Callable[[Any, Any], Any]
    a: Value
    b: Value

    def __add__(self, other: Value) -> Value:
        return _large(np.add, self, other)

    def __sub__(self, other: Value) -> Value:
        return _large(np.subtract, self, other)

    def __rsub__(self, other: Value) -> Value:
        return _large(np.subtract, other, self)

    def __mul__(self, other: Value) -> Value:
        return _large(np.multiply, self, other)

    def __floordiv__(self, other: Value) -> Value:
        return _large(np.floor_divide, self, other)

    def __mod__(self, other: Value) -> Value:
        return _large(np.remainder, self, other)

    def __neg__(self) -> Value:
        return _large(np.multiply, self, -1)

    __radd__, __rmul__ = __add__, __mul__


@dataclass(frozen=True, eq=False)
class Sum:
    """`const` and the parts, no two of which share an axis."""

    const: int
    parts: tuple[Part, ...]

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest value."""
        low = high = self.const
        for part in self.parts:
            least, greatest = part.ends
            low, high = low + least, high + greatest
        return low, high

    def __add__(self, other: Value) -> Value:
        if isinstance(other, int):
            return Sum(self.const + other, self.parts) if other else self
        if isinstance(other, Sum):
            return _sum(self.const + other.const, (*self.parts, *other.parts))
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Value:
        return self * -1

    def __sub__(self, other: Value) -> Value:
        return self + -other

    def __rsub__(self, other: Value) -> Value:
        return -self + other

    def __mul__(self, other: Value) -> Value:
        if isinstance(other, int):
            if other == 1:
                return self
            parts = tuple(part.times(other) for part in self.parts)
            return Sum(self.const * other, parts) if other else 0
        if isinstance(other, Sum):
            return mixed(self, other, np.multiply)
        return NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Value) -> Value:
        return _divided(self, other, False) if isinstance(other, int) else unknown(self, other)

    def __mod__(self, other: Value) -> Value:
        return _divided(self, other, True) if isinstance(other, int) else unknown(self, other)


Value = int | Sum | Large | Unknown
#: Some indices of each axis, together points of all of them.
Points = Mapping[Axis, Array]


def at(value: int | Sum | Large, points: Points) -> Any:
    """A value at points of its axes."""
    if isinstance(value, int):
        return value
    if isinstance(value, Large):
        operands = (value.a, value.b)
        known = [at(one, points) for one in operands if not isinstance(one, Unknown)]
        return value.function(*known)
    found: Any = value.const
    for part in value.parts:
        found = found + part.at([points[axis] for axis in part.axes])
    return found


def _large(function: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return unknown(a, b)
    return Large(function, a, b)


def along(axis: Axis, step: int = 1, first: int = 0) -> Value:
    """`first`, `first + step` and so on."""
    if axis.extent == 1:
        return first
    return Sum(first, (Part((axis,), Progression.of(axis.extent, step, 0, 1, axis.extent)),))


def whole(value: Sum) -> Part | None:
    """A value as one array, None where that is too large."""
    if len(value.parts) == 1:
        return value.parts[0].plus(value.const)
    axes = union(part.axes for part in value.parts)
    if size(axes) > MOST:
        return None
    array: Any = value.const
    for part in value.parts:
        array = array + spread(part.array, part.axes, axes)
    return Part(axes, array)


def mixed(a: Value, b: Value, function: Any) -> Value:
    """What an element by element function gives of two values, one of which is no constant."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return unknown(a, b)
    found = [whole(one) if isinstance(one, Sum) else one for one in (a, b)]
    parts = [one for one in found if isinstance(one, Part)]
    axes = union(part.axes for part in parts)
    if any(one is None or isinstance(one, Large) for one in found) or size(axes) > MOST:
        return _large(function, a, b)
    first, second = (
        spread(one.array, one.axes, axes) if isinstance(one, Part) else one for one in found
    )
    return Sum(0, (Part(axes, function(first, second)),))


def least(a: Value, b: Value) -> Value:
    """The lesser of two values."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if not isinstance(a, (int, Sum)) or not isinstance(b, (int, Sum)):
        return _large(np.minimum, a, b)
    (low, high), (least_, greatest) = ends(a), ends(b)
    if high <= least_:
        return a
    if greatest <= low:
        return b
    return mixed(a, b, np.minimum)


def looked_up(table: Array, at_: Value) -> Value:
    """The elements of a table at positions."""
    if isinstance(at_, Unknown):
        return unknown(at_)

    def found(positions: Any, _: Any = 0) -> Any:
        # of positions that a condition leaves out, any element will do
        return table[np.clip(positions, 0, len(table) - 1)]

    if isinstance(at_, int):
        return int(found(at_))
    return mixed(at_, 0, found)


def ends(value: int | Sum) -> tuple[int, int]:
    """The least and the greatest value."""
    return value.ends if isinstance(value, Sum) else (value, value)


def _sum(const: int, parts: tuple[Part, ...]) -> Value:
    """Adds up parts, those that share axes as one array."""
    found: list[Part] = []
    for part in parts:
        sharing = [one for one in found if not set(one.axes).isdisjoint(part.axes)]
        if sharing:
            axes = union(one.axes for one in (*sharing, part))
            if size(axes) > MOST:
                total: Value = const
                for one in parts:
                    total = Large(np.add, total, Sum(0, (one,)))
                return total
            array = spread(part.array, part.axes, axes)
            for one in sharing:
                array = array + spread(one.array, one.axes, axes)
            found = [one for one in found if one not in sharing]
            part = Part(axes, array)
        found.append(part)
    return Sum(const, tuple(found))


def _divided(value: Sum, divisor: int, remainder: bool) -> Value:
    """The quotient, or the remainder, by a constant; values are not negative where it is used.

    Parts of multiples of the divisor stay apart from the others.
    """
    low, high = value.ends
    if low >= 0 and high < divisor:
        return value if remainder else 0
    even, odd = list[Part](), list[Part]()
    for part in value.parts:
        (even if part.is_multiple(divisor) else odd).append(part)
    rest = Sum(value.const % divisor, tuple(odd))
    low, high = rest.ends
    found: Value
    if low >= 0 and high < divisor:
        found = (rest if odd else rest.const) if remainder else 0
    elif len(odd) == 1:
        found = Sum(0, (odd[0].divided(rest.const, divisor, remainder),))
    else:
        joined = whole(rest)
        if joined is None:
            return Large(np.remainder if remainder else np.floor_divide, value, divisor)
        found = Sum(0, (joined.divided(0, divisor, remainder),))
    if remainder:
        return found
    quotients = tuple(part.divided(0, divisor, False) for part in even)
    apart = value.const // divisor
    return found + Sum(apart, quotients) if quotients else found + apart
