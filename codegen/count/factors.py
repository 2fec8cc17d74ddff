"""Weights of executions along axes of their own.

A factor has a weight for each combination of its axes: 1 where a condition holds, 0 where it does
not, or how many iterations a loop takes. Along an axis, neighbours that are alike are counted once:
a factor has `starts`, the first of each run of them. So a kernel of thousands of blocks, all of
which but the last do the same, takes two of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fusionstitch.codegen.count.axes import MOST, Array, Axes, Axis, spread, union

#: Points at which conditions with too many combinations are evaluated.
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
            left = np.add.reduce(left, -1) if starts is None else left.dot(lengths(starts, axis))
        return int(left)

    @cached_property
    def points(self) -> dict[Axis, Array]:
        """Points of its axes, as many of each combination as its weight says. All executions
        derived from it share the points, which never change."""
        return _drawn(self)


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
        for dim, axis in enumerate(one.axes):
            wanted, own_starts = starts[axes.index(axis)], one.starts[dim]
            if own_starts is None or wanted is own_starts:
                continue
            at = np.arange(axis.extent) if wanted is None else wanted
            here = here.take(own_starts.searchsorted(at, "right") - 1, axis=dim)
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


def _drawn(factor: Factor) -> dict[Axis, Array]:
    weights = factor.weights.astype(float)
    for dim, (axis, starts) in enumerate(zip(factor.axes, factor.starts, strict=True)):
        if starts is not None:
            shape = [-1 if one == dim else 1 for one in range(weights.ndim)]
            weights = weights * lengths(starts, axis).reshape(shape)
    rising = weights.cumsum()
    taken = rising.searchsorted(evenly(factor.axes[0].number) * rising[-1], "right")
    positions = np.unravel_index(np.minimum(taken, rising.size - 1), weights.shape)
    found = {}
    for axis, starts, position in zip(factor.axes, factor.starts, positions, strict=True):
        if starts is None:
            found[axis] = position
        else:  # any of the run
            inside = evenly(axis.number + len(_PRIMES) // 2) * lengths(starts, axis)[position]
            found[axis] = starts[position] + inside.astype(np.int64)
    return found


@functools.cache
def evenly(number: int) -> Array:
    """Points between 0 and 1: multiples of the root of a prime, modulo one, are spread evenly, and
    those of different primes independently of each other."""
    root = math.sqrt(_PRIMES[number % len(_PRIMES)])
    found: Array = np.arange(1, POINTS + 1) * root % 1
    return found
