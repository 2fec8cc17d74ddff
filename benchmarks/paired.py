"""Ratios of two sides that were timed in turns: their median and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fusionstitch.trial.ratios import ratio


@dataclass(frozen=True)
class Paired:
    """The median of ratios taken round by round, and an interval that holds it at 95%."""

    median: float
    low: float
    high: float
    rounds: int

    def data(self) -> dict[str, float]:
        """For a row of results, to four digits after the point."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> Paired:
    """Theirs over ours, round by round: above 1, ours takes less.

    The interval is that by which trials are decided (`fusionstitch.trial.ratios`). Raises
    ValueError for no rounds, or where the sides have not as many.
    """
    if not theirs:
        raise ValueError("There are no rounds to compare.")
    found = ratio(theirs, ours)
    return Paired(found.median, found.low, found.high, len(theirs))
