"""Axes, along which executions of a statement differ, and arrays over them.

An axis is the number of the thread, that of the block, or the iteration of a loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fusionstitch.codegen.count.progressions import Array, Progression
from fusionstitch.costmodel.devices import WARP

#: Elements of an array over several axes.
MOST = 1 << 16

#: The number of the axis of threads.
THREADS = 0


@dataclass(frozen=True, eq=False)
class Axis:
    """What differs between executions, in `extent` ways; axes are ordered by `number`."""

    number: int
    extent: int


Axes = tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """An array with a dim for each of its axes, or a sequence along the only one. What was made of
    it is kept: kernels ask again and again for the same lane of a team, and compare it with the
    same numbers."""

    axes: Axes
    given: Array | Progression
    made: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def array(self) -> Array:
        """The elements."""
        return self.given.array if isinstance(self.given, Progression) else self.given

    def at(self, indices: Sequence[Array]) -> Array:
        """Elements at indices along each axis."""
        if isinstance(self.given, Progression):
            return self.given.at(indices[0])
        found: Array = self.given[tuple(indices)]
        return found

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest element."""
        if isinstance(self.given, Progression):
            return self.given.ends
        return int(self.given.min()), int(self.given.max())

    @cached_property
    def unit(self) -> int:
        """What all elements are multiples of, beside the first."""
        if isinstance(self.given, Progression):
            return self.given.unit
        return int(np.gcd.reduce(self.given.ravel() - self.first))

    @cached_property
    def values(self) -> int:
        """How many different elements there are, at most."""
        low, high = self.ends
        return min(size(self.axes), (high - low) // self.unit + 1 if self.unit else 1)

    @cached_property
    def alike(self) -> int:
        """For how many neighbouring threads, up to those of a warp, all elements are the same."""
        dim = next((n for n, axis in enumerate(self.axes) if axis.number == THREADS), None)
        if dim is None:
            return WARP
        lanes = np.moveaxis(self.array, dim, -1)
        several = WARP
        while several > 1:
            if lanes.shape[-1] % several == 0:
                groups = lanes.reshape(*lanes.shape[:-1], -1, several)
                if (groups == groups[..., :1]).all():
                    break
            several //= 2
        return several

    @cached_property
    def first(self) -> int:
        """The first element."""
        return self.given.start if isinstance(self.given, Progression) else int(self.given.flat[0])

    def is_multiple(self, divisor: int) -> bool:
        """Whether all elements are multiples of an integer."""
        return self.unit % divisor == 0 and self.first % divisor == 0

    def times(self, factor: int) -> Part:
        """All elements as many times as large."""
        made: Part | None = self.made.get(factor)
        if made is None and isinstance(self.given, Progression):
            made = self.made[factor] = Part(self.axes, self.given.times(factor))
        elif made is None:
            made = self.made[factor] = Part(self.axes, self.array * factor)
            known = self.__dict__  # what is known of one is known of the other
            if "ends" in known:
                low, high = known["ends"]
                low, high = low * factor, high * factor
                made.__dict__["ends"] = (low, high) if factor > 0 else (high, low)
            if "unit" in known:
                made.__dict__["unit"] = known["unit"] * abs(factor)
        return made

    def plus(self, const: int) -> Part:
        """All elements with a constant added."""
        if not const:
            return self
        if isinstance(self.given, Progression):
            return Part(self.axes, self.given.plus(const))
        return Part(self.axes, self.array + const)

    def divided(self, const: int, divisor: int, remainder: bool) -> Part:
        """Quotients or remainders of all elements and a constant."""
        key = const, divisor, remainder
        made: Part | None = self.made.get(key)
        if made is None:
            given: Array | Progression | None = None
            if isinstance(self.given, Progression):
                given = self.given.plus(const).divided(divisor, remainder)
            if given is None:
                array = self.array + const if const else self.array
                given = array % divisor if remainder else array // divisor
            made = self.made[key] = Part(self.axes, given)
        return made


def size(axes: Iterable[Axis]) -> int:
    """The elements of an array over axes."""
    return math.prod(axis.extent for axis in axes)


def union(parts: Iterable[Axes]) -> Axes:
    """The axes of several arrays, in their order."""
    found = {axis for axes in parts for axis in axes}
    return tuple(sorted(found, key=lambda axis: axis.number))


def spread(array: Array, own: Axes, axes: Axes) -> Array:
    """An array over `own` axes as one that broadcasts over `axes`."""
    if own == axes:
        return array
    shape, dims = [1] * len(axes), iter(array.shape)
    for dim, axis in enumerate(axes):
        if axis in own:
            shape[dim] = next(dims)
    return array.reshape(shape)
