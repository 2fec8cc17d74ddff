"""What paired measurements of two sides prove."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Ours is better if XLA's time over ours is proven to exceed 1 and likely to exceed the first
#: number. It may be worse if the ratio is likely below the second, or possibly below the third.
BETTER, WORSE, POSSIBLY = 1.01, 0.99, 0.94
#: The possible error in the ratio of a single pair of runs.
SINGLE = 0.05


@dataclass(frozen=True)
class Ratio:
    """XLA's time over ours: the median of paired runs, and an interval that contains the true
    median with 95% confidence."""

    median: float
    low: float
    high: float

    @property
    def of_one(self) -> Ratio:
        """The same for a single pair, which gives no interval by itself."""
        return Ratio(self.median, self.median * (1 - SINGLE), self.median * (1 + SINGLE))

    @property
    def better(self) -> bool:
        """Whether ours is faster beyond noise."""
        return self.low > 1.0 and self.median > BETTER

    @property
    def worse(self) -> bool:
        """Whether ours may be slower: a loss need not be proven. A median near 1 does not suffice,
        because calls that wait for the host scatter by several percent."""
        return self.median < WORSE or self.low < POSSIBLY

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    """The ratio of times measured in pairs, at least one. The interval comes from order statistics,
    so it assumes no distribution; below six pairs it spans all of them."""
    each = sorted(their / max(our, 1e-9) for their, our in zip(theirs, ours, strict=True))
    middle = statistics.median(each)
    skipped = _skipped(len(each))
    return Ratio(middle, each[skipped], each[-1 - skipped])


def _skipped(pairs: int) -> int:
    """How many of the smallest, and of the largest, lie outside the median's 95% interval."""
    outside, skipped = 0.0, 0
    while True:
        outside += 2 * math.comb(pairs, skipped) / 2**pairs
        if outside > 0.05:
            return max(0, skipped - 1)
        skipped += 1
