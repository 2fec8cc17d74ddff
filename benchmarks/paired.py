"""Ratios of two sides that were timed in turns: their median and how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Paired:
    """The median of ratios taken round by round, and an interval that holds it at 95%."""

    median: float
    low: float
    high: float
    rounds: int

    def data(self) -> dict[str, float]:
        """For a row of results, to four digits behind the point."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> Paired:
    """Theirs over ours, round by round: above 1, ours takes less.

    The interval is from one of the sorted ratios to another, by the binomial distribution of how
    many lie below the true median: nothing is supposed of how times scatter. Of fewer than six
    rounds it is all of them, which is less sure than 95%. Raises ValueError for no rounds, or
    where the sides have not as many.
    """
    found = sorted(a / b for a, b in zip(theirs, ours, strict=True))
    if not found:
        raise ValueError("There are no rounds to compare.")
    outside = _outside(len(found))
    median = statistics.median(found)
    return Paired(median, found[outside], found[-1 - outside], len(found))


def _outside(count: int, chance: float = 0.025) -> int:
    """How many of `count` sorted values are left out at each end, where fewer than the next one
    lie below the true median with at most this chance."""
    total, number = 0.0, 0
    while (total := total + math.comb(count, number) * 0.5**count) <= chance:
        number += 1
    return max(number - 1, 0)
