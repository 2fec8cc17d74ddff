"""Sequences along an axis that are known without their elements: arithmetic progressions that may
start again and again.

Index arithmetic of kernels is mostly of this kind: a number is divided into digits, and each is
multiplied by a stride. An axis of a million blocks is counted as fast as one of a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Progression:
    """Element `i`, below `extent`, is `start + step * (i // run % period)`."""

    extent: int
    step: int
    start: int
    run: int
    period: int

    @classmethod
    def of(cls, extent: int, step: int, start: int, run: int, period: int) -> Progression:
        """With the least period that gives the same sequence."""
        return cls(extent, step, start, run, min(period, -(-extent // run)))

    @property
    def array(self) -> Array:
        """The elements."""
        return self.at(np.arange(self.extent))

    def at(self, indices: Array) -> Array:
        """Some of the elements."""
        found = indices
        if self.run > 1:
            found = found // self.run
        if self.repeats:
            found = found % self.period
        if self.step != 1:
            found = found * self.step
        return found + self.start if self.start else found

    @property
    def repeats(self) -> bool:
        """Whether it starts again within the axis."""
        return self.period * self.run < self.extent

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest element."""
        last = self.start + self.step * (self.period - 1)
        return min(self.start, last), max(self.start, last)

    @property
    def unit(self) -> int:
        """What all elements are multiples of, beside the first."""
        return abs(self.step) if self.period > 1 else 0

    def times(self, factor: int) -> Progression:
        """All elements as many times as large."""
        return Progression(
            self.extent, self.step * factor, self.start * factor, self.run, self.period
        )

    def plus(self, const: int) -> Progression:
        """All elements with a constant added."""
        return Progression(self.extent, self.step, self.start + const, self.run, self.period)

    def divided(self, divisor: int, remainder: bool) -> Progression | None:
        """Quotients or remainders of the elements, None where they are no such sequence."""
        whole, over = divmod(self.start, divisor)
        start = over if remainder else whole
        if self.step % divisor == 0:
            step = 0 if remainder else self.step // divisor
            return Progression(self.extent, step, start, self.run, self.period)
        if self.step <= 0 or divisor % self.step or not 0 <= over < self.step:
            return None
        steps = divisor // self.step
        if self.repeats and self.period % steps:
            return None
        if remainder:
            return Progression.of(self.extent, self.step, start, self.run, min(steps, self.period))
        period = -(-self.period // steps)
        return Progression.of(self.extent, 1, start, self.run * steps, period)

    def begins(self, low: int, high: int) -> Array:
        """Where it is first another element than before once all are brought into a range, 0 as
        the first of these."""
        if self.step < 0:
            return self.times(-1).begins(-high, -low)
        first, last = 1, 0  # of a period, where it changes
        if self.step and low < high:
            first = max(1, (low - self.start) // self.step + 1)
            last = min(self.period - 1, -((self.start - high) // self.step))
        if first > last:
            return np.zeros(1, np.int64)
        within = np.concatenate(([0], np.arange(first, last + 1)))
        whole = np.arange(-(-self.extent // (self.period * self.run)))
        found = (whole[:, None] * self.period + within).ravel() * self.run
        return found[found < self.extent]
