"""Steepest descent: from one schedule to the fastest near it, and on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def descend(
    first: T,
    cost: float,
    near: Callable[[T], Iterable[tuple[float, T]]],
    *,
    worth: float,
    steps: int | None = None,
) -> tuple[float, T]:
    """The cheapest that was found, with its cost.

    Each step goes to the cheapest of those `near` the best one so far, if that costs less than
    `worth` times as much. There are at most `steps` steps (None: until no step is worth it). `cost`
    is that of `first`, in the units in which `near` gives costs.
    """
    best = cost, first
    while steps is None or steps > 0:
        found = min(near(best[1]), key=lambda one: one[0], default=best)
        if found[0] >= worth * best[0]:
            break
        best, steps = found, None if steps is None else steps - 1
    return best
