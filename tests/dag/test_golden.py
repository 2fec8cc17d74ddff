"""DAGs, streams and events of known programs: those of GrCUDA's tests and of its six benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.dag import programs
from tests.dag.programs import Runner, Step

ABC = [("A", "1?"), ("B", "1?"), ("C", "1 2"), ("D", "2")]
FIGURE_3 = [("A", "1"), ("B", "1?"), ("C", "1?")]
SIX = [("A", "1? 2"), ("B", "1"), ("C", "2?"), ("D", "1? 3"), ("E", "1? 4"), ("F", "4")]
SIX_WRITTEN = [(name, uses.replace("?", "")) for name, uses in SIX]


@pytest.mark.parametrize(
    ("steps", "vertices", "edges", "streams", "waits"),
    [
        pytest.param(programs.VEC, 3, 2, 2, 1, id="VEC"),
        pytest.param(programs.BS, 10, 0, 10, 0, id="BS"),
        pytest.param(programs.ML, 10, 9, 2, 1, id="ML"),
        pytest.param(programs.HITS, 6, 6, 2, 2, id="HITS"),
        pytest.param(programs.DL, 8, 7, 2, 1, id="DL"),
        pytest.param(programs.IMG, 11, 13, 4, 6, id="IMG"),
        pytest.param(programs.IMG_ALL_CONST, 11, 11, 4, 4, id="IMG all const"),
        pytest.param(ABC, 4, 3, 2, 1, id="readers, a writer of both"),
        pytest.param(SIX, 6, 5, 3, 2, id="six"),
    ],
)
def test_counts(steps: Sequence[Step], vertices: int, edges: int, streams: int, waits: int) -> None:
    graph = Runner().run(steps)
    assert (len(graph.vertices), len(graph.edges)) == (vertices, edges)
    assert (graph.streams, graph.waits) == (streams, waits)


@pytest.mark.parametrize("steps", [programs.IMG, programs.IMG_ALL_CONST])
@pytest.mark.parametrize(
    ("options", "streams"),
    [
        ({}, 4),
        ({"const": False}, 3),
        ({"parent": "same-as-parent"}, 3),
        ({"parent": "same-as-parent", "const": False}, 1),
    ],
)
def test_streams_of_img_by_policy(
    steps: Sequence[Step], options: dict[str, Any], streams: int
) -> None:
    assert Runner(**options).run(steps).streams == streams


def test_vec_does_not_depend_on_const() -> None:
    assert Runner(const=False).run(programs.VEC).streams == 2


def test_readers_depend_on_the_writer_and_not_on_each_other() -> None:
    runner = Runner()
    graph = runner.run(FIGURE_3)
    assert graph.pairs() == [("A", "B"), ("A", "C")]
    assert graph.frontier == ("A", "B", "C")
    graph = runner.run([("D", "1")])  # and what writes then on the readers alone
    assert graph.pairs() == [("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")]
    assert graph.frontier == ("D",)


def test_edges_name_their_arrays() -> None:
    graph = Runner().run([("A", "x y"), ("B", "x? y")])
    assert [edge.arrays for edge in graph.edges] == [("x", "y")]


def test_a_graph_prints_a_line_for_each_element() -> None:
    graph = Runner().run([("A", "x y"), ("B", "x? y"), ("C", "x?"), ("D", "x y")])
    assert str(graph).splitlines() == [
        "0: A on stream 0",
        "1: B on stream 0 after 0 (x, y)",
        "2: C on stream 1 after 0 (x)",
        "3: D on stream 0 after 1 (x, y), 2 (x)",
    ]


def test_frontiers_with_and_without_const() -> None:
    runner = Runner(const=False, parent="same-as-parent")
    graph = runner.run(SIX_WRITTEN)
    assert (len(graph.edges), graph.streams) == (5, 1)
    assert graph.frontier == ("C", "D", "E", "F")
    graph = Runner().run(SIX)
    assert len(graph.edges) == 5
    assert graph.frontier == ("A", "B", "C", "D", "E", "F")


def test_disjoint_gives_the_second_child_a_stream_of_its_own() -> None:
    graph = Runner().run([("A", "1 2"), ("B", "1"), ("C", "2")])
    assert [vertex.stream for vertex in graph.vertices] == [0, 0, 1]
    assert graph.waits == 1


@pytest.mark.parametrize(("policy", "streams"), [("reuse", 2), ("always-new", 20)])
def test_streams_of_a_loop_that_is_waited_for(policy: Any, streams: int) -> None:
    runner = Runner(streams=policy)
    for _ in range(10):
        graph = runner.run([("A", "1"), ("B", "2")])
        runner.d.synchronize()
    assert graph.streams == streams


def test_reading_frees_what_came_before_it_and_nothing_else() -> None:
    runner = Runner()
    graph = runner.run([("A", "1"), ("B", "1? 2"), ("C", "3"), ("D", "2? 4")])
    assert graph.frontier == ("A", "B", "C", "D")
    runner.array("2")[0]
    graph = runner.run([])
    assert graph.frontier == ("C", "D")
    graph = runner.run([("E", "1")])  # A and B have been waited for
    assert graph.pairs() == [("A", "B"), ("B", "D")]


def test_what_is_read_on_the_host_is_waited_for_and_its_readers_are_not() -> None:
    runner = Runner()
    runner.run([("A", "1"), ("B", "1? 2")])
    runner.array("1")[0]
    assert runner.run([]).frontier == ("B",)


def test_writing_on_the_host_waits_for_the_readers() -> None:
    runner = Runner()
    runner.run([("A", "1? 2"), ("B", "1? 3"), ("C", "4")])
    runner.array("1")[0] = 1
    assert runner.run([]).frontier == ("C",)


def test_a_host_copy_that_is_valid_is_read_without_waiting() -> None:
    runner = Runner()
    runner.array("1")[0] = 7
    runner.run([("A", "1? 2")])
    assert runner.array("1")[0] == 7
    assert runner.run([]).frontier == ("A",)


def test_sync_has_one_thing_run_at_a_time() -> None:
    runner = Runner(policy="sync", timing=True)
    graph = runner.run(programs.IMG)
    assert graph.edges == ()
    assert graph.frontier == ()
    overlap = runner.d.timeline().overlap()
    assert (overlap.ct, overlap.tc, overlap.cc, overlap.tot) == (0, 0, 0, 0)
