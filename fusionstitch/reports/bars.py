"""A time under XLA, stitched, and its floor: what bar charts of pages and cards are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionstitch.costmodel.xla_truth import MEASURED, MODELLED
from fusionstitch.hlo import cards

if TYPE_CHECKING:
    from fusionstitch.plan.plan import Chosen
    from fusionstitch.reports.figures import Figures


#: Patterns whose bars a card shows.
SHOWN = 12
#: Heads of the columns of bars in a card.
HEAD = ("", "XLA above ours, | floor", "XLA", "ours", "floor", "left to win", "times")


@dataclass(frozen=True)
class Bar:
    """Microseconds of all runs in a call. `times` says where they are from: "modelled", "scaled" to
    what the program was measured to take under XLA, or "measured"; the floor is always modelled."""

    name: str
    xla_us: float
    ours_us: float
    floor_us: float
    bound_by: str = ""
    at_least: bool = False
    times: str = MODELLED

    @property
    def left_us(self) -> float:
        """What is left to win: the time above the floor."""
        return max(0.0, self.ours_us - self.floor_us)

    @property
    def rank(self) -> tuple[float, float]:
        """By which bars are sorted: those with most left to win first."""
        return -self.left_us, -self.ours_us

    @property
    def drawn(self) -> cards.Bar:
        """As a row of a card."""
        times = (self.xla_us, self.ours_us, self.floor_us, self.left_us)
        texts = (*(f"{us:.1f} us" for us in times), self.times)
        return cards.Bar(self.name, self.xla_us, self.ours_us, self.floor_us, texts)


def of_program(report: Figures) -> Bar | None:
    """A call of the whole program, by its wall time where both sides were measured; None where it
    computes nothing that the model has a time for."""
    floor, over = report.floor_us, report.over_floor
    if not floor or not over or not over["fusionstitch"]:
        return None
    xla, ours, measured = report.call_us
    least, times = (floor["total"], MEASURED) if measured else (floor["priced"], MODELLED)
    return Bar(report.workload, xla, ours, least, floor["bound_by"], floor["at_least"], times)


def of_patterns(report: Figures) -> list[Bar]:
    """The patterns of a report, those with most left to win first."""
    return sorted(map(_of_pattern, report.patterns), key=lambda bar: bar.rank)


def card(report: Figures) -> str:
    """The bars of a report as a part of its card: the whole program, then its patterns."""
    program = of_program(report)
    found = [*([program] if program else []), *of_patterns(report)[:SHOWN]]
    return cards.bars(HEAD, (bar.drawn for bar in found))


def _of_pattern(one: dict[str, Any]) -> Bar:
    found, runs = one["measured_us"], one["runs"]
    if found and found["patterns"] == 1:
        xla, ours, times = runs * found["xla_us"], runs * found["ours_us"], MEASURED
    else:
        ours, times = one["modelled_us"], one["xla_source"]
        xla = ours + one["wins_us"]
    return Bar(one["kernel"], xla, ours, one["floor_us"], times=times)


def compared(uses: Iterable[tuple[Chosen, int]]) -> tuple[float, float, str]:
    """(under XLA, ours, where they are from) of the patterns of a kernel with their runs. Measured
    are those that were compared alone, with the kernels of XLA's that they touch."""
    uses = list(uses)
    alone = [(one.measured, n) for one, n in uses if one.measured and one.measured.patterns == 1]
    if len(alone) == len(uses):
        xla, ours = (sum(n * getattr(m, key) for m, n in alone) for key in ("xla_us", "ours_us"))
        return xla, ours, MEASURED
    sources = {one.xla_source for one, _ in uses}
    times = sources.pop() if len(sources) == 1 else MODELLED
    return (
        sum(n * one.spared_us for one, n in uses),
        sum(n * one.modelled_us for one, n in uses),
        times,
    )
