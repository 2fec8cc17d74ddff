"""How often a statement runs: the executions that are left of all combinations of its axes.

Executions are a product of factors, which share no axis. A factor has a weight for each combination
of its axes: 1 where a condition holds, 0 where it does not, or how many turns a loop takes. Along an
axis, neighbours that are alike are counted once: a factor has `starts`, the first of each run of
them. So a kernel of thousands of blocks, all of which but the last do the same, takes two of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from fusionstitch.codegen.count.values import (
    MOST,
    UNKNOWN,
    Array,
    Axes,
    Axis,
    Large,
    Part,
    Points,
    Sum,
    Unknown,
    Value,
    at,
    ends,
    spread,
    union,
)

#: Axes shorter than this are not looked at for neighbours that are alike.
SHORT = 64
#: Points at which conditions are asked that have too many combinations.
POINTS = 1 << 11
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)


@dataclass(frozen=True, eq=False)
class Factor:
    """A weight for each run of elements along each axis; `starts` of an axis is None where each
    element is a run of its own."""

    axes: Axes
    starts: tuple[Array | None, ...]
    weights: Array

    @cached_property
    def opposite(self) -> Factor:
        """Where the condition that this is does not hold."""
        return Factor(self.axes, self.starts, 1 - self.weights)

    @cached_property
    def total(self) -> int:
        """Executions over all of its axes."""
        left = self.weights
        for axis, starts in zip(reversed(self.axes), reversed(self.starts), strict=True):
            left = left.sum(axis=-1) if starts is None else left.dot(lengths(starts, axis))
        return int(left)


@dataclass(frozen=True, eq=False)
class Chance:
    """A condition, or a weight, that is asked at points only."""

    weigh: Callable[[Points], Array]


Condition = bool | Factor | Chance | Unknown


@dataclass(frozen=True, eq=False)
class Executions:
    """Those of a statement: all combinations of `axes`, weighed by `factors`, and by `chances` as
    far as points tell; `times` as often."""

    axes: Axes
    factors: tuple[Factor, ...] = ()
    times: int = 1
    chances: tuple[Chance, ...] = ()
    asked: dict[Factor | Chance, Executions] = field(default_factory=dict)

    @cached_property
    def total(self) -> int:
        """How many there are, of all threads of all blocks."""
        total, free = self.times, set(self.axes)
        for factor in self.factors:
            total *= factor.total
            free.difference_update(factor.axes)
        for axis in free:
            total *= axis.extent
        if not self.chances or not total:
            return total
        return round(total * float(self.weighed.mean()))

    @cached_property
    def points(self) -> Points:
        """Points that are spread evenly over the executions that the factors leave."""
        found: dict[Axis, Array] = {}
        for factor in self.factors:
            found |= drawn(factor)
        for axis in self.axes:
            if axis not in found:
                found[axis] = (_evenly(axis.number) * axis.extent).astype(np.int64)
        return found

    @cached_property
    def weighed(self) -> Array:
        """What the chances give at the points."""
        weights = np.ones(POINTS)
        for chance in self.chances:
            weights = weights * chance.weigh(self.points)
        return weights

    def of(self, axis: Axis) -> Factor | None:
        """The factor that has an axis, if any."""
        return next((one for one in self.factors if axis in one.axes), None)

    def where(self, condition: Condition) -> Executions:
        """Those for which a condition holds, weighed by it; what is not known may hold."""
        if condition is True or isinstance(condition, Unknown):
            return self
        if condition is False:
            return Executions(self.axes, self.factors, 0)
        found = self.asked.get(condition)
        if found is None:
            found = self.asked[condition] = self._where(condition)
        return found

    def _where(self, condition: Factor | Chance) -> Executions:
        if isinstance(condition, Factor):
            axes = frozenset(condition.axes)
            shared = [one for one in self.factors if not axes.isdisjoint(one.axes)]
            joined = product([*shared, condition]) if shared else condition
            if joined is not None:
                apart = tuple(one for one in self.factors if one not in shared)
                return Executions(self.axes, (*apart, joined), self.times, self.chances)
        chances = (*self.chances, _chance(condition))
        return Executions(self.axes, self.factors, self.times, chances)

    def along(self, axis: Axis) -> Executions:
        """Each of them once for every place of one more axis."""
        return Executions((*self.axes, axis), self.factors, self.times, self.chances)

    def repeated(self, times: int) -> Executions:
        return Executions(self.axes, self.factors, self.times * times, self.chances)

    def greatest(self, value: int | Sum | Large) -> int:
        """The greatest value that an integer has, at the points if it is large."""
        if isinstance(value, Large):
            return int(np.max(at(value, self.points)))
        return ends(value)[1]


def both(conditions: Iterable[Condition]) -> Condition:
    """Where all of several conditions hold."""
    found = [one for one in conditions if one is not True]
    if len(found) < 2:
        return found[0] if found else True
    if any(one is False for one in found):
        return False
    if any(isinstance(one, Unknown) for one in found):
        return UNKNOWN
    if all(isinstance(one, Factor) for one in found):
        joined = product([one for one in found if isinstance(one, Factor)])
        if joined is not None:
            return joined
    chances = [_chance(one) for one in found]
    return Chance(lambda points: math.prod(one.weigh(points) for one in chances))


def _chance(condition: Condition) -> Chance:
    """A condition as one that is asked at points."""
    if isinstance(condition, Chance):
        return condition
    assert isinstance(condition, Factor)
    factor = condition

    def weigh(points: Points) -> Array:
        places = tuple(
            points[axis] if starts is None else np.searchsorted(starts, points[axis], "right") - 1
            for axis, starts in zip(factor.axes, factor.starts, strict=True)
        )
        found: Array = factor.weights[places]
        return found

    return Chance(weigh)


def drawn(factor: Factor) -> dict[Axis, Array]:
    """Points of a factor's axes, as many of each combination as its weight says."""
    weights = factor.weights.astype(float)
    for place, (axis, starts) in enumerate(zip(factor.axes, factor.starts, strict=True)):
        if starts is not None:
            shape = [-1 if one == place else 1 for one in range(weights.ndim)]
            weights = weights * lengths(starts, axis).reshape(shape)
    rising = np.cumsum(weights)
    taken = np.searchsorted(rising, _evenly(factor.axes[0].number) * rising[-1], "right")
    places = np.unravel_index(np.minimum(taken, rising.size - 1), weights.shape)
    found = {}
    for axis, starts, place in zip(factor.axes, factor.starts, places, strict=True):
        if starts is None:
            found[axis] = place
        else:  # any of the run
            inside = _evenly(axis.number + len(_PRIMES) // 2) * lengths(starts, axis)[place]
            found[axis] = starts[place] + inside.astype(np.int64)
    return found


@functools.cache
def _evenly(number: int) -> Array:
    """Points between 0 and 1: multiples of the root of a prime, modulo one, are spread evenly, and
    those of different primes independently of each other."""
    root = math.sqrt(_PRIMES[number % len(_PRIMES)])
    found: Array = np.arange(1, POINTS + 1) * root % 1
    return found


def product(factors: list[Factor]) -> Factor | None:
    """Factors as one, None where that is too large."""
    first, *others = factors
    if all(one.axes == first.axes and _alike(one.starts, first.starts) for one in others):
        weights = first.weights
        for one in others:
            weights = weights * one.weights
        return Factor(first.axes, first.starts, weights)
    axes = union(one.axes for one in factors)
    starts: list[Array | None] = []
    size = 1
    for axis in axes:
        own = [one.starts[one.axes.index(axis)] for one in factors if axis in one.axes]
        known = [one for one in own if one is not None]
        if len(known) < len(own):
            starts.append(None)
            size *= axis.extent
        else:
            joined = known[0] if len(known) == 1 else _merged(known)
            starts.append(joined)
            size *= len(joined)
    if size > MOST:
        return None
    found: Array | None = None
    for one in factors:
        here = one.weights
        for place, axis in enumerate(one.axes):
            wanted, own_starts = starts[axes.index(axis)], one.starts[place]
            if own_starts is None or wanted is own_starts:
                continue
            at = np.arange(axis.extent) if wanted is None else wanted
            here = here.take(np.searchsorted(own_starts, at, "right") - 1, axis=place)
        here = spread(here, one.axes, axes)
        found = here if found is None else found * here
    assert found is not None
    return Factor(axes, tuple(starts), found)


def _merged(starts: Iterable[Array]) -> Array:
    """The starts of runs that are alike in all ways in which others are."""
    return np.array(sorted({start for one in starts for start in one.tolist()}))


def _alike(some: tuple[Array | None, ...], others: tuple[Array | None, ...]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def lengths(starts: Array, axis: Axis) -> Array:
    """How long the runs of an axis are."""
    found = np.empty_like(starts)
    found[:-1] = starts[1:] - starts[:-1]
    found[-1] = axis.extent - starts[-1]
    return found


def below_zero(value: Value) -> Condition:
    """Where a value is negative."""
    return _where(value, _is_negative)


def is_zero(value: Value) -> Condition:
    """Where a value is nothing."""
    return _where(value, _is_nothing)


def _is_negative(array: Any) -> Any:
    return array < 0


def _is_nothing(array: Any) -> Any:
    return array == 0


def turns(distance: int | Sum | Large, step: int) -> int | Factor | Chance:
    """How many turns a loop takes over a distance, by steps: a weight."""
    if isinstance(distance, int):
        return max(0, -(-distance // step))
    table = _table(distance, (1 - step, distance.ends[1])) if isinstance(distance, Sum) else None
    if table is None:
        return Chance(lambda points: np.maximum(0, -(-at(distance, points) // step)))
    return Factor(table.axes, table.starts, np.maximum(0, -(-table.weights // step)))


def negated(condition: Condition) -> Condition:
    """Where a condition does not hold."""
    if isinstance(condition, Factor):
        return condition.opposite
    if isinstance(condition, Chance):
        return Chance(lambda points: 1 - condition.weigh(points))
    return condition if isinstance(condition, Unknown) else not condition


def _where(value: Value, holds: Callable[[Any], Any]) -> Condition:
    if isinstance(value, int):
        return bool(holds(value))
    if isinstance(value, Unknown):
        return UNKNOWN
    if isinstance(value, Sum):
        low, high = value.ends
        if high < 0 or low > 0:
            return bool(holds(low))
        if low == 0 and not holds(0):
            return False
        first = value.parts[0]  # of a single part, what was found is kept
        known = first.made.get((holds, value.const)) if len(value.parts) == 1 else None
        if known is not None:
            return cast(Factor, known)
        table = _table(value, (-1, 1))
        if table is not None:
            found = Factor(table.axes, table.starts, holds(table.weights).astype(np.int64))
            if len(value.parts) == 1:
                first.made[holds, value.const] = found
            return found
    return Chance(lambda points: np.asarray(holds(at(value, points))).astype(np.int64))


def _table(value: Sum, kept: tuple[int, int]) -> Factor | None:
    """A value for each combination of its axes, neighbours that are alike as one; what lies outside
    of the range `kept` may be any other value on the same side of it."""
    low, high = value.ends
    parts = [
        _shortened(part, kept[0] - (high - part.ends[1]), kept[1] - (low - part.ends[0]))
        for part in value.parts
    ]
    if len(parts) == 1:
        only = parts[0]
        return Factor(only.axes, only.starts, only.weights + value.const)
    axes = union(part.axes for part in parts)
    size = 1
    for part in parts:
        size *= part.weights.size
    if size > MOST:
        return None
    starts = {a: s for part in parts for a, s in zip(part.axes, part.starts, strict=True)}
    weights = spread(parts[0].weights, parts[0].axes, axes) + value.const
    for part in parts[1:]:
        weights = weights + spread(part.weights, part.axes, axes)
    return Factor(axes, tuple(starts[axis] for axis in axes), weights)


def _shortened(part: Part, low: int, high: int) -> Factor:
    """A part with its elements brought into a range, neighbours that are then alike as one."""
    array, starts = part.array, list[Array | None]()
    if array.size < SHORT:
        return Factor(part.axes, (None,) * len(part.axes), array)
    least, greatest = part.ends
    if least < low or greatest > high:
        array = np.minimum(np.maximum(array, low), high)
    for place, axis in enumerate(part.axes):
        if axis.extent < SHORT and array.ndim == 1:
            starts.append(None)
            continue
        moved = np.moveaxis(array, place, 0) if place else array
        differ = moved[1:] != moved[:-1]
        if differ.ndim > 1:
            differ = differ.any(axis=tuple(range(1, differ.ndim)))
        changes = np.flatnonzero(differ)
        if 2 * len(changes) >= axis.extent:
            starts.append(None)
            continue
        begin = np.empty(len(changes) + 1, np.int64)
        begin[0], begin[1:] = 0, changes + 1
        starts.append(begin)
        array = array.take(begin, axis=place)
    return Factor(part.axes, tuple(starts), array)
