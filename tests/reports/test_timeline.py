"""Timelines and traces: everything that runs, and what the report says it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusionstitch.hlo.graph import ids
from fusionstitch.reports import timeline, units
from fusionstitch.reports.page.lanes import lane
from fusionstitch.reports.report import Report
from fusionstitch.reports.timeline import Span


def test_each_op_is_in_one_unit(report: Report) -> None:
    stitched = report.trial.stitched
    for plan in stitched.plans:
        for own in (units.stitched(plan, stitched), units.under_xla(plan.program, stitched)):
            members = [i for unit in own for i in ids(unit.bits)]
            assert len(members) == len(set(members))
            place = {i: n for n, unit in enumerate(own) for i in ids(unit.bits)}
            for n, reads in enumerate(units.dependences(plan.graph, own)):
                assert all(other < n for other in reads), "a unit stands before what it reads"
            assert all(op.id in place for op in plan.program if op.opcode in ("sort", "while"))


def test_times_add_up_to_those_of_the_report(report: Report) -> None:
    stitched = report.trial.stitched
    xla, ours = timeline.under_xla(stitched), timeline.ours(stitched)
    assert sum(span.us for span in ours) == pytest.approx(report.modelled_us)
    assert sum(span.us for span in xla) == pytest.approx(report.modelled_xla_us)
    loops = [span for span in ours if span.inside]
    assert [span.times for span in loops] == [7]
    named = {span.kernel for span in timeline.kernels(ours) if span.kernel}
    assert named == {kernel.name for kernel in stitched.kernels}
    assert {span.scope for span in timeline.kernels(ours)} >= {"loop", ""}


def test_trace(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    data = report.to_trace(path)
    assert json.loads(path.read_text()) == data
    events = [event for event in data["traceEvents"] if event["ph"] == "X"]
    names = [e["args"]["name"] for e in data["traceEvents"] if e["ph"] == "M"]
    assert names == ["XLA alone (modelled)", "fusionstitch (modelled)", "compiling (measured)"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events)
    assert any(event["name"] == "6 more like it" for event in events)
    ours = [event for event in events if event["pid"] == 2]
    assert max(e["ts"] + e["dur"] for e in ours) == pytest.approx(report.modelled_us)
    assert {"plan", "codegen"} <= {event["name"] for event in events if event["pid"] == 3}
    kernel = next(e for e in ours if "kernel" in e["args"])
    assert kernel["args"]["from"]


def test_lanes_join_what_is_too_narrow_to_be_seen() -> None:
    spans = [Span("a", 10.0, 1), *(Span(f"n{n}", 0.001, 1) for n in range(50))]
    spans += [Span("loop", 5.0, 1, times=5, inside=(Span("b", 1.0, 1, scope="grid"),))]
    whole = sum(span.us for span in spans)
    found = lane("XLA", spans, whole, 52, planned_us=whole)
    assert (found.depth, found.differs) == (2, False)
    upper = [bar for bar in found.bars if bar.depth == 0]
    joined = [bar.joined for bar in upper]
    assert (joined[0], sum(joined), joined[-1]) == (1, 52, 1)
    assert len(joined) < 10
    assert sum(bar.width for bar in upper) == pytest.approx(1)
    [inner] = [bar for bar in found.bars if bar.depth == 1]
    assert (inner.span.name, inner.start) == ("b", pytest.approx(10.05 / whole))
    assert [(span.name, us) for span, us in found.longest[:2]] == [("a", 10.0), ("b", 5.0)]
    assert lane("XLA", [*spans, Span("sort", 0.0, 1)], whole, 53, planned_us=whole).untimed == 1
    assert lane("XLA", spans, whole, 52, planned_us=0.9 * whole).differs
