"""Times, overlap, history, and the files of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusionstitch.dag import Span, Timeline
from tests.dag import programs
from tests.dag.programs import Runner


def timeline(*spans: tuple[str, float, float]) -> Timeline:
    kinds = {"k": "kernel", "d": "to device", "h": "to host"}
    return Timeline(
        tuple(Span("x", kinds[kind], 0, start, stop) for kind, start, stop in spans)  # type: ignore[arg-type]
    )


def test_overlap_is_that_of_the_paper() -> None:
    # two transfers, one of which a kernel runs beside, and a second kernel half beside the first
    found = timeline(("d", 0, 2), ("k", 1, 5), ("d", 4, 5), ("k", 4, 6)).overlap()
    assert found.ct == pytest.approx((2 + 1) / 6)
    assert found.tc == pytest.approx((1 + 1) / 3)
    assert found.cc == pytest.approx(1 / 6)
    assert found.tot == pytest.approx((0 + 1 + 1 + 1) / 9)
    assert found.cc_both_ways == pytest.approx((1 + 1) / 6)


def test_what_several_others_cover_counts_once() -> None:
    found = timeline(("k", 0, 4), ("k", 0, 4), ("d", 1, 3)).overlap()
    assert (found.tc, found.cc, found.tot) == (1, 0.5, 0.6)


def test_nothing_overlaps_with_nothing() -> None:
    assert timeline().overlap().tot == 0
    assert timeline().milliseconds == 0
    assert timeline(("k", 1, 2), ("k", 3, 5)).milliseconds == 4


def test_kernels_of_img_run_beside_each_other() -> None:
    runner = Runner(timing=True)
    for name in ("im", "ks", "kl", "ku"):
        runner.array(name)[0] = 1
    runner.run(programs.IMG)
    overlap = runner.d.timeline().overlap()
    assert overlap.cc > 0.2
    assert len(runner.d.timeline().spans) == 11 + 4


def test_without_const_less_runs_beside_each_other() -> None:
    times = []
    for const in (True, False):
        runner = Runner(timing=True, const=const)
        runner.run(programs.IMG)
        times.append(runner.d.timeline().milliseconds)
    assert times[0] < times[1]


def test_reads_and_writes_of_the_host_are_transfers() -> None:
    runner = Runner(timing=True)
    runner.array("x")[0] = 1
    runner.run([("A", "x y")])
    runner.array("y")[...]
    kinds = {(span.name, span.kind) for span in runner.d.timeline().spans}
    assert kinds == {("x", "to device"), ("A", "kernel"), ("y", "to host")}


def test_history_grows_by_one_for_each_launch() -> None:
    runner = Runner(timing=True)
    call = runner.d.library(lambda _: None, "pointer", name="k")
    for count in range(1, 4):
        call(runner.array("x"))
        assert len(runner.d.history(call)) == count
    assert all(ms > 0 for ms in runner.d.history(call))
    runner.d.clear()
    assert runner.d.history(call) == []
    assert runner.d.timeline().spans == ()


def test_files(tmp_path: Path) -> None:
    runner = Runner(timing=True)
    runner.run([('say "hi"', "x"), ("B", "x? y")])
    runner.d.export(tmp_path / "a.dot")
    runner.d.export(tmp_path / "a.json")
    dot = (tmp_path / "a.dot").read_text()
    assert 'n0 [label="say \\"hi\\"", fillcolor="/set312/1"' in dot
    assert 'n0 -> n1 [label="x"];' in dot
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    kernels = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in kernels] == ['say "hi"', "B"]
    assert kernels[1]["ts"] >= kernels[0]["ts"] + kernels[0]["dur"]
    assert {"name": "stream 0"} in [event.get("args") for event in events]
