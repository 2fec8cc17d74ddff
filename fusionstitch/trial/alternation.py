"""A trial on the user's own calls: two executables alternate until one has proven to be faster.

This is for programs that must not run more often than they are called. Each call is waited for, and
returns its own results.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from fusionstitch.trial.sides import ROUNDS, WARM_UPS, Times, wall_times

#: Calls of each side: warm-up calls and timed calls.
CALLS = WARM_UPS + ROUNDS


class Alternation:
    """Called instead of two executables. Calls `decided` once, with their times."""

    def __init__(
        self,
        ours: Callable[..., Any],
        theirs: Callable[..., Any],
        decided: Callable[[Times], None],
    ):
        self._sides = ours, theirs
        self._decided: Callable[[Times], None] | None = decided
        self._taken: tuple[list[float], list[float]] = ([], [])
        self._lock = threading.Lock()
        self._number = 0

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        import jax

        with self._lock:
            side, self._number = self._number % 2, self._number + 1
        began = time.perf_counter()
        results = jax.block_until_ready(self._sides[side](*args, **kwargs))
        took = (time.perf_counter() - began) * 1e6
        with self._lock:
            ours, theirs = self._taken
            self._taken[side].append(took)
            if (decided := self._decided) and min(len(ours), len(theirs)) >= CALLS:
                self._decided = None
                decided(wall_times(ours[WARM_UPS:CALLS], theirs[WARM_UPS:CALLS]))
        return results
