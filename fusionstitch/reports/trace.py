"""A report as a Chrome trace, for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusionstitch.reports import timeline
from fusionstitch.reports.timeline import Span

if TYPE_CHECKING:
    from fusionstitch.reports.figures import Figures
    from fusionstitch.reports.trial import Trial

#: Processes of the trace: what they are called, in order.
XLA, OURS, PASSES = 1, 2, 3
#: Between two iterations that stand for all there is one event for the rest.
SHOWN = 1
Event = dict[str, Any]


def trace(
    xla: Sequence[Span], ours: Sequence[Span], passes: Mapping[str, float], about: Mapping[str, Any]
) -> dict[str, Any]:
    """The trace of one call: kernels under XLA and stitched, by the model, and the `passes` of
    the compiler, in seconds as they were measured. `about` is said of all of it."""
    events: list[Event] = []
    for process, name, spans in (
        (XLA, "XLA alone (modelled)", xla),
        (OURS, "fusionstitch (modelled)", ours),
    ):
        events += [_named(process, name), *_events(spans, process, 0.0)]
    events += [_named(PASSES, "compiling (measured)"), *_passes(passes)]
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(about)}


def of_report(report: Figures, trial: Trial | None) -> dict[str, Any]:
    """The trace of a report and the `trial` it comes from."""
    about = {"workload": report.workload, "device": report.device, "backend": report.backend}
    if trial is None:
        return trace([], [], {}, about)
    stitched = trial.stitched
    return trace(timeline.under_xla(stitched), timeline.ours(stitched), stitched.timings, about)


def _named(process: int, name: str) -> Event:
    return {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}


def _events(spans: Sequence[Span], process: int, start: float) -> Iterator[Event]:
    """Spans one after the other. Of a loop's iterations the first one is shown."""
    for span in spans:
        yield _event(span, process, start)
        if span.inside:
            once = sum(one.us for one in span.inside)
            yield from _events(span.inside, process, start)
            if span.times > SHOWN:
                rest = Span(f"{span.times - SHOWN} more like it", span.us - once, span.ops)
                yield _event(rest, process, start + once)
        start += span.us


def _event(span: Span, process: int, start: float) -> Event:
    facts = {
        "ops": span.ops,
        "from": list(span.source),
        "scope": span.scope,
        "kernel": span.kernel,
        "iterations": span.times if span.inside else 0,
    }
    return {
        "ph": "X",
        "pid": process,
        "tid": 0,
        "cat": span.scope or "xla",
        "name": span.name,
        "ts": start,
        "dur": span.us,
        "args": {name: fact for name, fact in facts.items() if fact},
    }


def _passes(passes: Mapping[str, float]) -> Iterator[Event]:
    start = 0.0
    for name, seconds in passes.items():
        yield _event(Span(name, seconds * 1e6, 0), PASSES, start) | {"cat": "pass"}
        start += seconds * 1e6
