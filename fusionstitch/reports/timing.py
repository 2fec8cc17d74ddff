"""Wall times on a GPU: all contestants in one run, in turns, medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

WARM_UP = 3
ROUNDS = 15
#: Calls in flight per timing, so that dispatch overlaps with the device.
IN_FLIGHT = 20


def interleaved(
    calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS, in_flight: int = IN_FLIGHT
) -> dict[str, float]:
    """Median microseconds per call of each; one timing of each per round."""
    import jax

    for call in calls.values():
        for _ in range(WARM_UP):
            jax.block_until_ready(call())
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(in_flight):
                output = call()
            jax.block_until_ready(output)  # calls of one device end in order
            times[name].append((time.perf_counter() - start) / in_flight)
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}
