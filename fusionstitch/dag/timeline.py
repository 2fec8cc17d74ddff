"""When the device did what, and how much work overlapped: CT, TC, CC and TOT."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fusionstitch.dag.backends.backend import Backend
from fusionstitch.dag.element import Element, Storage

Kind = Literal["kernel", "to device", "to host"]


@dataclass(frozen=True)
class Span:
    """One kernel or transfer; times are milliseconds since the scheduler was made."""

    name: str
    kind: Kind
    stream: int
    start: float
    stop: float

    @property
    def milliseconds(self) -> float:
        return self.stop - self.start


@dataclass(frozen=True)
class Overlap:
    """The shares of time that overlapped with other work, from 0 to 1, as in GrCUDA's paper.

    Attributes:
        ct: share of the kernels' time during which something was transferred
        tc: share of the transfers' time during which a kernel ran
        cc: share of the kernels' time during which an earlier kernel was still running
        tot: share of all time during which anything earlier was still running
        cc_both_ways: share of the kernels' time during which another kernel ran
    """

    ct: float
    tc: float
    cc: float
    tot: float
    cc_both_ways: float


@dataclass(frozen=True)
class Timeline:
    """The spans of a scheduler in the order of their starts."""

    spans: tuple[Span, ...]

    def overlap(self) -> Overlap:
        """How much work overlapped."""
        kernels = [span for span in self.spans if span.kind == "kernel"]
        transfers = [span for span in self.spans if span.kind != "kernel"]
        return Overlap(
            ct=_share(kernels, [transfers] * len(kernels)),
            tc=_share(transfers, [kernels] * len(transfers)),
            cc=_share(kernels, [kernels[:i] for i in range(len(kernels))]),
            tot=_share(self.spans, [self.spans[:i] for i in range(len(self.spans))]),
            cc_both_ways=_share(
                kernels, [kernels[:i] + kernels[i + 1 :] for i in range(len(kernels))]
            ),
        )

    @property
    def milliseconds(self) -> float:
        """From the first start to the last stop."""
        if not self.spans:
            return 0.0
        return max(span.stop for span in self.spans) - self.spans[0].start


def _share(spans: Sequence[Span], others: Sequence[Sequence[Span]]) -> float:
    total = sum(span.milliseconds for span in spans)
    beside = sum(_covered(span, other) for span, other in zip(spans, others, strict=True))
    return beside / total if total > 0 else 0.0


def _covered(span: Span, others: Sequence[Span]) -> float:
    """Milliseconds of a span during which any of the others ran."""
    covered, reached = 0.0, span.start
    for other in sorted(others, key=lambda o: o.start):
        start, stop = max(other.start, reached), min(other.stop, span.stop)
        if stop > start:
            covered += stop - start
            reached = stop
    return covered


class Clock:
    """Collects the spans of a scheduler that times its work.

    `transfers` has the most recent transfers that were waited for. `history` has the milliseconds
    of every timed launch of each kernel.
    """

    def __init__(self, backend: Backend, remembered: int) -> None:
        self._backend = backend
        self._zero = backend.event(True)
        backend.record(self._zero, backend.stream(0))
        backend.synchronize(self._zero)
        self.transfers: deque[Span] = deque(maxlen=remembered)
        self.history: dict[Any, list[float]] = {}

    def span(self, element: Element) -> tuple[float, float]:
        """The span of an element that has run. Stores its transfers."""
        for storage, begun, sent in element.sent:
            if begun is not None:
                self.transferred(storage, "to device", element.lane.number, begun, sent)
        start, stop = self._after(element.begun), self._after(element.done)
        self.history.setdefault(element.work.kernel, []).append(stop - start)
        return start, stop

    def transferred(
        self, storage: Storage, kind: Kind, stream: int, begun: Any, arrived: Any
    ) -> None:
        """Stores a finished transfer."""
        span = Span(storage.label, kind, stream, self._after(begun), self._after(arrived))
        self.transfers.append(span)

    def timeline(self, elements: Iterable[Element]) -> Timeline:
        """The timeline of elements that have run, with all stored transfers."""
        spans = [*self.transfers]
        for element in elements:
            if element.span is not None:
                name, stream = element.work.name, element.lane.number
                spans.append(Span(name, "kernel", stream, *element.span))
        return Timeline(tuple(sorted(spans, key=lambda span: (span.start, span.stop))))

    def _after(self, event: Any) -> float:
        return self._backend.milliseconds(self._zero, event)
