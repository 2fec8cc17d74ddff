"""Which elements of a buffer an address may be, as a start and steps from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: Tries to find an element of two sets; beyond, they are taken to have one in common.
_MOST_TRIES = 4096


Steps = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Elements:
    """The integers `first + sum(step * k)`, with `k` from 0 up to its count, which it does not
    reach, for each (step, count) of `steps`. Steps are positive, counts more than one."""

    first: int
    steps: Steps = ()

    @property
    def last(self) -> int:
        return self.first + sum(step * (count - 1) for step, count in self.steps)

    @property
    def alone(self) -> int | None:
        """The integer that it is, if it is one."""
        return None if self.steps else self.first

    def __add__(self, other: Elements) -> Elements:
        return _joined(self.first + other.first, (*self.steps, *other.steps))

    def __mul__(self, factor: int) -> Elements:
        if factor == 0:
            return Elements(0)
        steps = tuple((step * factor, count) for step, count in self.steps)
        back = sum(step * (count - 1) for step, count in steps if step < 0)
        return _joined(self.first * factor + back, ((abs(s), n) for s, n in steps))

    def __floordiv__(self, divisor: int) -> Elements:
        if all(step % divisor == 0 for step, _ in self.steps):
            steps = tuple((step // divisor, count) for step, count in self.steps)
            return Elements(self.first // divisor, steps)
        return between(self.first // divisor, self.last // divisor)

    def __mod__(self, divisor: int) -> Elements:
        if self.first // divisor == self.last // divisor:
            return Elements(self.first % divisor, self.steps)
        common = math.gcd(divisor, *(step for step, _ in self.steps))
        return _joined(self.first % common, ((common, divisor // common),))

    def below(self, limit: int) -> Elements:
        """Those that may be less than a limit; all of them where that is not known."""
        if len(self.steps) != 1 or self.last < limit or self.first >= limit:
            return self
        [(step, _)] = self.steps
        return _joined(self.first, ((step, (limit - 1 - self.first) // step + 1),))

    def meets(self, other: Elements) -> bool:
        """Whether two sets may have an integer in common; exact but for sets of many odd steps."""
        return Common(self.steps, other.steps).at(other.first - self.first)


def between(first: int, last: int) -> Elements:
    """All integers from one to another."""
    return _joined(first, ((1, last - first + 1),))


def _joined(first: int, steps: Iterable[tuple[int, int]]) -> Elements:
    """The same with as few steps as they can be: those of one length are one, and so are shorter
    ones and those that begin where these end."""
    counts: dict[int, int] = {}
    for step, count in steps:
        counts[step] = counts.get(step, 1) + count - 1
    found: list[tuple[int, int]] = []
    for step, count in sorted(counts.items()):
        if count > 1 and found and step == found[-1][0] * found[-1][1]:
            shorter, many = found.pop()
            found.append((shorter, many * count))
        elif count > 1:
            found.append((step, count))
    return Elements(first, tuple(found))


class Common:
    """Whether sets of these steps and sets of those may have an integer in common. The search is
    for integers, each within bounds, whose multiples of the steps sum up to the distance between
    the first elements. It tries the largest steps first, which leave little for the others."""

    def __init__(self, steps: Steps, others: Steps):
        bounds: dict[int, tuple[int, int]] = {}
        for step, count in steps:
            low, high = bounds.get(step, (0, 0))
            bounds[step] = low, high + count - 1
        for step, count in others:
            low, high = bounds.get(step, (0, 0))
            bounds[step] = low - count + 1, high
        self.terms = [(step, *bounds[step]) for step in sorted(bounds, reverse=True)]
        #: from each term on: the least and the greatest sum, and what all are multiples of
        self.rest = [(0, 0, 0)]
        for step, low, high in reversed(self.terms):
            least, most, common = self.rest[-1]
            self.rest.append((least + step * low, most + step * high, math.gcd(common, step)))
        self.rest.reverse()
        self._known: dict[int, bool] = {}

    def at(self, distance: int) -> bool:
        """Whether sets have one where the others begin so far after the first."""
        found = self._known.get(distance)
        if found is None:
            found, _ = self._finds(0, distance, _MOST_TRIES)
            self._known[distance] = found
        return found

    def _finds(self, number: int, target: int, tries: int) -> tuple[bool, int]:
        """Whether there are such integers, and how many tries are left."""
        least, most, common = self.rest[number]
        if not least <= target <= most or (target % common if common else target):
            return False, tries
        if number == len(self.terms) or tries <= 0:
            return True, tries
        step, low, high = self.terms[number]
        least, most, _ = self.rest[number + 1]
        first, last = max(low, -((most - target) // step)), min(high, (target - least) // step)
        for factor in range(first, last + 1):
            found, tries = self._finds(number + 1, target - step * factor, tries - 1)
            if found:
                return True, tries
        return False, tries
