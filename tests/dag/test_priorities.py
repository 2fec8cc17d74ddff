"""Priorities of streams."""

from __future__ import annotations

from tests.dag.programs import Runner


def test_urgent_work_has_a_stream_of_its_priority() -> None:
    runner = Runner()
    d = runner.d
    x, y = runner.array("x"), runner.array("y")
    common = d.library(lambda *_: None, "pointer, pointer", name="common")
    urgent = d.library(lambda *_: None, "const pointer", name="urgent", priority=-1)
    common(x, y)
    urgent(x)
    common(x, y)
    urgent(y)
    # a stream has one priority: where a parent has another one, it is not passed on
    assert [vertex.stream for vertex in d.graph().vertices] == [0, 1, 2, 3]
    priorities = [e.lane.priority for e in d._engine.pending()]
    assert priorities == [0, -1, 0, -1]
    urgent(y)
    assert len({e.lane for e in d._engine.pending()}) == 5
