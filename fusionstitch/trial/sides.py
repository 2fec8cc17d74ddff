"""Two programs that do the same work, timed alternately."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fusionstitch.trial.ratios import BETTER, WORSE, Ratio, ratio
from fusionstitch.trial.runs import Runs

#: Runs before timing starts: XLA records its CUDA graphs again for other addresses.
WARM_UPS = 4
#: Rounds in which each side is timed; the most rounds, if the first ones do not decide; and how
#: many times as long those may take.
ROUNDS, MOST_ROUNDS, OPEN = 10, 60, 2
#: The most calls in a row. For the host clock: enough that waiting for the last one hardly counts.
#: For the device clock: calls between two readings.
WALL_CALLS, SPAN_CALLS = 32, 8
#: Each side of a run of at least this many seconds runs once.
LONG_S = 1.0


class Clock(Protocol):
    """Times consecutive calls: microseconds of one."""

    def us(self, calls: Sequence[Callable[[], Any]]) -> float: ...


class Wall:
    """The host's clock, until the results of the last call are ready."""

    def us(self, calls: Sequence[Callable[[], Any]]) -> float:
        import jax

        began = time.perf_counter()
        for call in calls:
            results = call()
        jax.block_until_ready(results)
        return (time.perf_counter() - began) / len(calls) * 1e6


@dataclass(frozen=True)
class Times:
    """Median microseconds of one run of each side.

    Attributes:
        span_us: ours on the device, from the first kernel to the last; None if it cannot be
            measured, as with several devices
        xla_span_us: the same of XLA's executable
        wall_us: ours by the host's clock, of consecutive calls in flight
        xla_wall_us: the same of XLA's executable
        span: XLA's span over ours, of alternating runs
        wall: XLA's wall time over ours
        rounds: how often each side was timed
    """

    span_us: float | None
    xla_span_us: float | None
    wall_us: float
    xla_wall_us: float
    span: Ratio | None
    wall: Ratio
    rounds: int

    @property
    def won(self) -> bool:
        """Whether ours is faster beyond noise by one clock, and not likely slower by either."""
        ratios = [one for one in (self.span, self.wall) if one is not None]
        return any(one.better for one in ratios) and not any(one.worse for one in ratios)

    @property
    def is_settled(self) -> bool:
        """Whether more rounds would hardly change the winner."""
        ratios = [one for one in (self.span, self.wall) if one is not None]
        lost = any(one.high < WORSE for one in ratios) or all(one.high < BETTER for one in ratios)
        return lost or (self.won and all(one.low > WORSE for one in ratios))

    def __str__(self) -> str:
        walls = f"{self.wall_us:.1f} us a call, XLA's {self.xla_wall_us:.1f}"
        if self.span_us is None:
            return walls
        return f"{self.span_us:.1f} us on the device, XLA's {self.xla_span_us:.1f}; {walls}"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Times:
        """Raises KeyError or TypeError for invalid data."""
        given = {name: data[name] for name in (field.name for field in dataclasses.fields(cls))}
        given["wall"] = Ratio(**given["wall"])
        given["span"] = None if given["span"] is None else Ratio(**given["span"])
        return cls(**given)


def warmed(function: Callable[..., Any], runs: Runs, most_s: float) -> float:
    """Runs a program until it is warm; returns the seconds of its last run, which is awaited. A
    long program runs only as often as `most_s` allows."""
    took = 0.0
    for number in range(WARM_UPS):
        [call] = runs.calls(function, 1)
        took = Wall().us([call]) / 1e6
        if number and took * (WARM_UPS - number) > most_s:
            break
        if took > LONG_S:
            break
    return took


def timed(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    runs: Runs,
    span: Clock | None,
    each_s: float,
    most_s: float,
    wall: Clock | None = None,
) -> Times:
    """Runs both sides alternately; both are warm. A run takes about `each_s` seconds, and all
    together take `most_s`, but each side runs at least once."""
    wall = wall or Wall()
    clocks = [wall] if span is None else [wall, span]
    most = [runs.most_calls(calls) for calls in (WALL_CALLS, SPAN_CALLS)[: len(clocks)]]
    rounds, most_rounds, calls = _shared_out(each_s, most_s, most)
    found: list[tuple[list[float], list[float]]] = [([], []) for _ in clocks]
    for number in range(most_rounds):
        for which, clock in enumerate(clocks):
            # the second one finds the caches as the first one left them
            order = (0, 1) if number % 2 == 0 else (1, 0)
            for side in order:
                made = runs.calls((ours, theirs)[side], calls[which])
                found[which][side].append(clock.us(made))
        if (number + 1) % rounds == 0 and (times := _times(*found)).is_settled:
            break
    return times


def _times(
    wall: tuple[list[float], list[float]], span: tuple[list[float], list[float]] | None = None
) -> Times:
    """Times from readings of the host's clock, and of the device's: ours and XLA's."""
    times = wall_times(*wall)
    if span is None:
        return times
    ours_us, theirs_us = span
    return dataclasses.replace(
        times,
        span_us=statistics.median(ours_us),
        xla_span_us=statistics.median(theirs_us),
        span=_ratio(ours_us, theirs_us),
    )


def wall_times(ours: Sequence[float], theirs: Sequence[float]) -> Times:
    """Times from the host's clock alone: microseconds of pairs of runs."""
    return Times(
        span_us=None,
        xla_span_us=None,
        wall_us=statistics.median(ours),
        xla_wall_us=statistics.median(theirs),
        span=None,
        wall=_ratio(ours, theirs),
        rounds=len(ours),
    )


def _shared_out(each_s: float, most_s: float, most: Sequence[int]) -> tuple[int, int, list[int]]:
    """The rounds, the most rounds (a multiple of those), and calls in a row by each clock, up to
    `most`, that fit into `most_s`."""
    if each_s > LONG_S:
        return 1, 1, [1] * len(most)
    runs = most_s / max(each_s, 1e-6) / 2  # of each side
    if runs < ROUNDS * len(most):
        rounds = max(1, int(runs / len(most)))
        return rounds, rounds, [1] * len(most)
    part = min(1.0, runs / ROUNDS / sum(most))
    calls = [max(1, int(part * calls)) for calls in most]
    while sum(calls) > max(len(most), runs / ROUNDS):
        calls[calls.index(max(calls))] -= 1
    times = max(1, min(MOST_ROUNDS // ROUNDS, int(OPEN * runs / ROUNDS / sum(calls))))
    return ROUNDS, times * ROUNDS, calls


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    found = ratio(theirs, ours)
    return found if len(ours) > 1 else found.of_one
