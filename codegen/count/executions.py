"""How often a statement runs: the executions that are left of all combinations of its axes.

They are a product of factors, which share no axis, and of what is only known at points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fusionstitch.codegen.count.axes import Array, Axes, Axis
from fusionstitch.codegen.count.conditions import Chance, Condition, chance_of
from fusionstitch.codegen.count.factors import POINTS, Factor, evenly, product
from fusionstitch.codegen.count.values import Large, Points, Sum, Unknown, at, ends


@dataclass(frozen=True, eq=False)
class Executions:
    """Those of a statement: all combinations of `axes`, weighed by `factors`, and by `chances` as
    far as points tell; `times` as often."""

    axes: Axes
    factors: tuple[Factor, ...] = ()
    times: int = 1
    chances: tuple[Chance, ...] = ()
    known: dict[Factor | Chance, Executions] = field(default_factory=dict)

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
            found |= factor.points
        for axis in self.axes:
            if axis not in found:
                found[axis] = (evenly(axis.number) * axis.extent).astype(np.int64)
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
        found = self.known.get(condition)
        if found is None:
            found = self.known[condition] = self._where(condition)
        return found

    def _where(self, condition: Factor | Chance) -> Executions:
        if isinstance(condition, Factor):
            axes = frozenset(condition.axes)
            shared = [one for one in self.factors if not axes.isdisjoint(one.axes)]
            joined = product([*shared, condition]) if shared else condition
            if joined is not None:
                apart = tuple(one for one in self.factors if one not in shared)
                return Executions(self.axes, (*apart, joined), self.times, self.chances)
        chances = (*self.chances, chance_of(condition))
        return Executions(self.axes, self.factors, self.times, chances)

    def along(self, axis: Axis) -> Executions:
        """Each of them once for every index of one more axis."""
        return Executions((*self.axes, axis), self.factors, self.times, self.chances)

    def repeated(self, times: int) -> Executions:
        return Executions(self.axes, self.factors, self.times * times, self.chances)

    def greatest(self, value: int | Sum | Large) -> int:
        """The greatest value that an integer has, at the points if it is large."""
        if isinstance(value, Large):
            return int(np.max(at(value, self.points)))
        return ends(value)[1]
