"""Spans of time as rectangles side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusionstitch.reports.timeline import Span

#: Below this share of the whole, neighbours are drawn as one.
SMALLEST = 1 / 1500
#: Kernels that are listed.
LISTED = 10
#: Share by which sums may differ and be called the same.
NEAR = 0.01


@dataclass(frozen=True)
class Bar:
    """A rectangle: where it starts and how wide it is, as shares of the whole, at which depth."""

    start: float
    width: float
    depth: int
    span: Span
    joined: int = 1


@dataclass(frozen=True)
class Lane:
    """One side; `us` is all of it, `planned_us` what the plan says that it takes. `longest` are
    kernels with what all their runs in a call take, `untimed` counts those without a time."""

    name: str
    us: float
    planned_us: float
    kernels: int
    bars: Sequence[Bar]
    depth: int
    longest: Sequence[tuple[Span, float]]
    untimed: int

    @property
    def differs(self) -> bool:
        """Whether the plan counts otherwise: it takes what patterns spare XLA from XLA's kernels as
        they were, and here what is left to XLA is fused again."""
        return abs(self.us - self.planned_us) > NEAR * self.planned_us


def lane(name: str, spans: Sequence[Span], whole: float, kernels: int, planned_us: float) -> Lane:
    """The spans of one side, on a scale on which `whole` is 1."""
    bars = list(_joined(list(_bars(spans, 0.0, 0, whole or 1.0))))
    depth = max((bar.depth for bar in bars), default=0) + 1
    us = sum(span.us for span in spans)
    runs = list(_runs(spans, 1))
    ranked = sorted(runs, key=lambda one: -one[1])[:LISTED]
    untimed = sum(not us for _, us in runs)
    return Lane(name, us, planned_us, kernels, bars, depth, ranked, untimed)


def _runs(spans: Sequence[Span], times: int) -> Iterator[tuple[Span, float]]:
    """Kernels, those in loops once, with what all their runs take."""
    for span in spans:
        if span.inside:
            yield from _runs(span.inside, times * span.times)
        else:
            yield span, times * span.us


def _bars(spans: Sequence[Span], start: float, depth: int, whole: float) -> Iterator[Bar]:
    for span in spans:
        width = span.us / whole
        if width:
            yield Bar(start, width, depth, span)
        if span.inside:
            yield from _bars(span.inside, start, depth + 1, whole)
        start += width


def _joined(bars: Sequence[Bar]) -> Iterator[Bar]:
    """Neighbours of one kind that are too narrow to be seen become one."""
    held: dict[int, Bar] = {}
    for bar in bars:
        before = held.get(bar.depth)
        if before is not None and _alike(before, bar):
            width = bar.start + bar.width - before.start
            held[bar.depth] = Bar(before.start, width, bar.depth, before.span, before.joined + 1)
            continue
        if before is not None:
            yield before
        held[bar.depth] = bar
    yield from held.values()


def _alike(one: Bar, other: Bar) -> bool:
    narrow = other.width < SMALLEST and one.width < 4 * SMALLEST
    return narrow and one.span.scope == other.span.scope
