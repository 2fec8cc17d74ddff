"""The benchmarks of the scheduler: programs, versions, and the numbers that are made of times."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.dag import growth, launches, random_programs, six
from benchmarks.dag.program import Program
from benchmarks.dag.programs import PROGRAMS, TINY
from benchmarks.dag.scheduled import Scheduled
from benchmarks.dag.table import table
from fusionstitch.dag import Span, Timeline
from fusionstitch.dag.graph import Edge, Graph, Vertex

FOLDER = Path(six.__file__).parent
#: Vertices, edges, streams and events of an iteration, every array that is only read marked so.
COUNTS = {
    "vec": (3, 2, 2, 1),
    "bs": (10, 0, 10, 0),
    "img": (11, 11, 4, 4),
    "ml": (10, 9, 2, 1),
    "hits": (6, 6, 2, 2),
    "dl": (8, 7, 2, 1),
}


def tiny(name: str) -> Program:
    return PROGRAMS[name](TINY[name], 32, grid=1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_version_of_a_program_gives_what_numpy_does(name: str, host_compiler: str) -> None:
    row = six.measured(tiny(name), "emulate", 0.0)
    assert row["failed"] == {}
    assert set(row["same as serial"]) == set(row["ms"])
    assert max(row["same as serial"].values()) < 1e-6
    assert row["error of results"] < 1e-6
    graph = row["graph"]
    assert tuple(graph[k] for k in ("vertices", "edges", "streams", "waits")) == COUNTS[name]
    assert row["overlap"]["serial"]["cc"] == row["overlap"]["serial"]["ct"] == 0
    text = table([{"section": "six", "benchmark": name, "size": 1, "block": 32, **row}])
    assert "/".join(map(str, COUNTS[name])) in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_compile_for_gpus(name: str, nvrtc: ModuleType) -> None:
    compiled = nvrtc.compile(tiny(name).code, "sm_90")
    assert {kernel for kernel, _ in compiled.resources} == set(tiny(name).signatures)


def test_the_other_kernels_compile_for_gpus(nvrtc: ModuleType) -> None:
    for code in (random_programs.CODE, launches._CODE):
        assert nvrtc.compile(code, "sm_90").resources


def test_a_program_for_the_scheduler_names_no_stream_and_no_event() -> None:
    text = (FOLDER / "scheduled.py").read_text().partition('"""\n')[2]
    assert re.findall(r"stream|event|synchron", text) == []


def test_the_bound_is_the_longest_path_with_what_is_sent() -> None:
    program = tiny("vec")
    times = [("x", "to device", 3.0), ("y", "to device", 1.0), ("res", "to device", 0.5)]
    times += [("square", "kernel", 1.0), ("square", "kernel", 2.0), ("reduce", "kernel", 4.0)]
    spans = tuple(Span(name, kind, 0, 0.0, ms) for name, kind, ms in times)  # type: ignore[arg-type]
    graph = Graph(
        tuple(Vertex(n, str(n), 0, False) for n in range(3)),
        (Edge(0, 2, ("x1",)), Edge(1, 2, ("y1",))),
    )
    assert six.bound(program, Timeline(spans), graph) == max(3 + 1, 1 + 2) + 0.5 + 4


def test_inputs_are_as_many_as_asked_for() -> None:
    program = tiny("hits")
    scheduled = Scheduled(program, program.inputs(), backend="emulate")
    assert np.asarray(scheduled.x["rows"]).size == 3 * program.size


def test_a_row_that_failed_is_said() -> None:
    text = table([{"section": "six", "benchmark": "vec", "size": 3, "block": 4, "error": "no"}])
    assert text == "failed: six vec 3 4: no"


def test_a_long_program_leaks_nothing(host_compiler: str) -> None:
    for row in growth.rows("emulate", 20.0):
        assert row["launches"] == 2000
        assert row["after"]["streams"] <= row["before"]["streams"] + 2
        assert row["after"]["objects"] <= row["before"]["objects"] + 500
        assert "2000 launches" in table([row])
