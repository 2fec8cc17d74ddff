"""What paired measurements of two sides prove."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Ours is better, or worse, where the interval of XLA's time over ours lies beyond these.
BETTER, WORSE = 1.01, 0.98
#: What a single pair of runs proves: each ratio may be off by so much.
_SINGLE = 0.05


@dataclass(frozen=True)
class Ratio:
    """XLA's time over ours: the median of paired runs, and an interval that holds the true median
    with 95% confidence."""

    median: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """Whether ours is faster beyond noise."""
        return self.low > 1.0 and self.median > BETTER

    @property
    def worse(self) -> bool:
        """Whether ours is slower beyond noise."""
        return self.high < WORSE

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    """That of times measured in pairs, at least one. The interval is of order statistics, so it
    supposes nothing of how times scatter; below six pairs it spans all of them."""
    each = sorted(their / max(our, 1e-9) for their, our in zip(theirs, ours, strict=True))
    middle = statistics.median(each)
    if len(each) == 1:
        return Ratio(middle, middle * (1 - _SINGLE), middle * (1 + _SINGLE))
    skipped = _skipped(len(each))
    return Ratio(middle, each[skipped], each[-1 - skipped])


def _skipped(pairs: int) -> int:
    """How many of the least, and of the largest, lie outside of the median's 95% interval."""
    outside, skipped = 0.0, 0
    while True:
        outside += 2 * math.comb(pairs, skipped) / 2**pairs
        if outside > 0.05:
            return max(0, skipped - 1)
        skipped += 1
