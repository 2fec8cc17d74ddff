"""How streams and events are used: as few as the DAG needs, and copies before any waiting."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fusionstitch.dag import Span
from fusionstitch.dag.backends.emulated import Emulated
from tests.dag import programs
from tests.dag.programs import Runner


class Counted(Emulated):
    """Counts what is asked of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in ("record", "wait", "event", "stream", "synchronize"):
            self.calls[name] += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", ["VEC", "IMG", "HITS", "DL"])
def test_events_are_waited_for_across_streams_alone(name: str) -> None:
    backend = Counted()
    runner = Runner(backend=backend)
    steps = getattr(programs, name)
    for _ in range(2):  # arrays come to the device with the first
        runner.run([])
        runner.d.clear()
        before = backend.calls.copy()
        graph = runner.run(steps)
        after = backend.calls - before
        runner.d.synchronize()
    assert after["wait"] == graph.waits
    assert after["record"] == len(graph.vertices)  # a stop event each, and no start event
    assert after["event"] == after["stream"] == after["synchronize"] == 0  # they are used again


def test_work_is_framed_by_events_where_it_is_timed() -> None:
    backend = Counted()
    runner = Runner(backend=backend, timing=True)
    for _ in range(2):
        before = backend.calls.copy()
        runner.run([("A", "x y")])
        after = backend.calls - before
        runner.d.synchronize()
    assert after["record"] == 2


def spans(prefetch: bool) -> dict[str, Span]:
    runner = Runner(timing=True, prefetch=prefetch)
    runner.array("y")[0] = 1
    # C is the second child of A, on a stream of its own, and the first user of y
    runner.run([("A", "x1 x2"), ("B", "x1?"), ("C", "x2? y")])
    return {span.name: span for span in runner.d.timeline().spans}


def test_arrays_are_sent_before_parents_are_waited_for() -> None:
    early, late = spans(True), spans(False)
    assert early["y"].start < early["A"].stop
    assert late["y"].start >= late["A"].stop
    assert all(s["C"].start >= max(s["A"].stop, s["y"].stop) for s in (early, late))


def test_the_stream_that_is_idle_for_longest_is_used_again() -> None:
    runner = Runner(streams="reuse")
    runner.run([("A", "1"), ("B", "2"), ("C", "3")])
    for array in "213":
        runner.array(array)[0]
    graph = runner.run([("D", "1"), ("E", "2"), ("F", "3"), ("G", "4")])
    assert [vertex.stream for vertex in graph.vertices[3:]] == [1, 0, 2, 3]


@pytest.mark.parametrize("policy", ["reuse", "always-new"])
def test_streams_are_counted_from_new_after_clear(policy: Any) -> None:
    runner = Runner(streams=policy)
    runner.run([("A", "1"), ("B", "2")])
    runner.d.clear()
    graph = runner.run([("A", "1"), ("B", "2"), ("C", "3")])
    assert graph.streams == 3


def test_what_the_device_has_done_is_pending_until_the_host_waits() -> None:
    runner = Runner()
    runner.run([("A", "1"), ("B", "2")])
    runner.d._engine.backend.drain()
    assert runner.run([]).frontier == ("A", "B")
    assert runner.run([("C", "1? 2?")]).pairs() == [("A", "C"), ("B", "C")]


def test_the_host_may_decide_by_what_it_reads() -> None:
    runner = Runner()
    d, x = runner.d, runner.array("x")
    more = d.library(lambda a: np.add(a, 3, out=a), "pointer", name="more")
    less = d.library(lambda a: np.subtract(a, 1, out=a), "pointer", name="less")
    while x[0] < 10:
        if x[0] % 2:
            less(x)
        else:
            more(x)
    names = [vertex.name for vertex in d.graph().vertices]
    assert x[0] == 11
    assert names == ["more", *["less", "more"] * 4]
