"""Wall times: all contestants in turns, several calls in flight, one time per round."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.workloads import Workload

WARM_UP = 3
#: Calls per time taken, so that dispatch overlaps with the device.
IN_FLIGHT = 25
#: Seconds of rounds at least: hosts are disturbed in bursts, which are longer than the few rounds
#: of a short program.
LEAST_SECONDS = 2.0


class Contestant:
    """A compiled program with its arguments; a chained one keeps its state from call to call."""

    def __init__(self, run: Callable[..., Any], args: tuple[Any, ...], workload: Workload):
        self.run, self.args, self.workload = run, args, workload
        self.reset()

    def reset(self) -> None:
        """Back to the first state: a fresh copy, since the program may overwrite it."""
        import jax

        self.now = self.args
        if self.workload.chain:
            state = jax.tree.map(lambda leaf: leaf.copy(), self.args[0])
            self.now = (jax.block_until_ready(state), *self.args[1:])

    def call(self) -> Any:
        """One call; its result, whose state may belong to the next call already."""
        result = self.run(*self.now)
        if self.workload.chain:
            self.now = (self.workload.next_state(result), *self.args[1:])
        return result

    def calls(self, count: int) -> None:
        """Several calls, the last one's end awaited."""
        import jax

        for _ in range(count):
            result = self.call()
        jax.block_until_ready(result)  # calls of one device end in order


def wall_times(
    contestants: Mapping[str, Contestant],
    rounds: int,
    seconds: float = LEAST_SECONDS,
    in_flight: int = IN_FLIGHT,
) -> dict[str, list[float]]:
    """Microseconds per call, one number per contestant and round; the order turns each round.

    There are as many rounds as asked for at least, and more while `seconds` are not over. A chain
    goes on from round to round, as training does: a fresh copy of the state would have other
    addresses, and XLA would write them into every node of its CUDA graphs.
    """
    for one in contestants.values():
        one.reset()
        one.calls(WARM_UP)

    def taken(one: Contestant) -> float:
        start = time.perf_counter()
        one.calls(in_flight)
        return (time.perf_counter() - start) / in_flight * 1e6

    takers = {name: functools.partial(taken, one) for name, one in contestants.items()}
    return in_turns(takers, rounds, seconds)


def in_turns(
    takers: Mapping[str, Callable[[], float]], rounds: int, seconds: float, most: float = math.inf
) -> dict[str, list[float]]:
    """What each of `takers` measures, one number per round; the order turns each round.

    There are as many rounds as asked for at least, and more, up to `most`, while `seconds` are not
    over.
    """
    times: dict[str, list[float]] = {name: [] for name in takers}
    begun, number = time.perf_counter(), 0
    while number < rounds or (number < most and time.perf_counter() - begun < seconds):
        names = list(takers)
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            times[name].append(takers[name]())
        number += 1
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Median and quartiles of microseconds, to a tenth."""
    low, median, high = (
        statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    )
    return {"median": round(median, 1), "low": round(low, 1), "high": round(high, 1)}
