"""Reports of the tuner."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.brief import brief, count, listed
from fusionstitch.tuning.record import Record


@dataclass(frozen=True)
class Result:
    """The result for one pattern.

    Attributes:
        name: name of its kernel
        count: how often the program contains it
        record: its best schedule, and times
        points: (modelled, measured) microseconds of each measured schedule
        error: why there is no record
    """

    name: str
    count: int
    record: Record | None
    points: tuple[tuple[float, float], ...] = ()
    error: str = ""

    def __repr__(self) -> str:
        said = f"{self.record.us:.2f} us, XLA {self.record.xla_us:.2f} us" if self.record else ""
        schedules = count(self.points, "schedule")
        return brief(f"Result {self.name}: {self.count} times, {schedules}, {said or self.error}")


@dataclass(frozen=True)
class TuneReport:
    """The result of `fs.tune`; print it for a table.

    Attributes:
        workload: name of the tuned program
        device: name of the device profile
        gpu: the GPU's own name
        seconds: duration of the tuning
        results: one for each pattern
        complete: whether a larger budget would do no more
    """

    workload: str
    device: str
    gpu: str
    seconds: float
    results: tuple[Result, ...]
    complete: bool

    def __post_init__(self) -> None:
        listed(self, "results")

    def __repr__(self) -> str:
        return brief(
            f"TuneReport of {self.workload}: {count(self.results, 'pattern')} tuned on {self.gpu} "
            f"({self.device}) in {self.seconds:.0f} s"
        )

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's rank correlation of modelled and measured times, over all schedules of all
        patterns; None if it is undefined."""
        return spearman([point for result in self.results for point in result.points])

    @property
    def rank_correlations(self) -> tuple[float | None, ...]:
        """The same for each pattern."""
        return tuple(spearman(result.points) for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON; times are in microseconds."""
        data = dataclasses.asdict(self)
        for result, one, rho in zip(
            data["results"], self.results, self.rank_correlations, strict=True
        ):
            result["record"] = one.record.to_dict() if one.record else None
            result["points"] = [list(point) for point in one.points]
            result["rank_correlation"] = rho
        return {**data, "results": list(data["results"]), "rank_correlation": self.rank_correlation}

    def __str__(self) -> str:
        state = "" if self.complete else ", stopped by the budget: run it again to go on"
        lines = [
            f"{self.workload}: {len(self.results)} patterns tuned on {self.gpu} ({self.device}) "
            f"in {self.seconds:.0f} s{state}",
            f"  {'pattern (times in us)':<42} {'x':>3} {'default':>9} {'tuned':>9} {'XLA':>9} "
            f"{'vs XLA':>7}  schedule",
        ]
        for result in self.results:
            record = result.record
            if record is None:
                lines.append(f"  {result.name:<42} {result.count:>3} {result.error}")
                continue
            lost = " (XLA is faster: left to it)" if record.us >= record.xla_us else ""
            lines.append(
                f"  {result.name:<42} {result.count:>3} {record.default_us:>9.2f} "
                f"{record.us:>9.2f} {record.xla_us:>9.2f} {record.xla_us / record.us:>6.2f}x  "
                f"{'the one below' if record.template else 'default'}{lost}"
            )
            lines += (f"    {line}" for line in record.template.splitlines())
        rho = self.rank_correlation
        tried = sum(len(result.points) for result in self.results)
        said = "undefined" if rho is None else f"{rho:.2f}"
        lines.append(f"  model against measured: rank correlation {said} over {tried} schedules")
        return "\n".join(lines)


def spearman(points: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation; None for fewer than two points, or if one side is constant."""
    if len(points) < 2:
        return None
    first, second = (_ranks([point[side] for point in points]) for side in (0, 1))
    middle = (len(points) - 1) / 2
    pairs = [(a - middle, b - middle) for a, b in zip(first, second, strict=True)]
    spread = sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs)
    return sum(a * b for a, b in pairs) / spread**0.5 if spread else None


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 0; equal values share their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            ranks[index] = (start + end - 1) / 2
        start = end
    return ranks
