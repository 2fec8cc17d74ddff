"""Files from a scheduler: the DAG for Graphviz, the timeline for Chrome and Perfetto."""

from __future__ import annotations

import json
from pathlib import Path

from fusionstitch.dag.access import HOST_STREAM
from fusionstitch.dag.graph import Graph
from fusionstitch.dag.timeline import Timeline
from fusionstitch.hlo.errors import OptionError


def write(path: str | Path, graph: Graph, timeline: Timeline | None) -> None:
    """Writes the graph to a file that ends in .dot, or the timeline to one in .json.

    Raises OptionError for another ending, and for a timeline if nothing was timed.
    """
    path = Path(path)
    if path.suffix == ".dot":
        path.write_text(graph.dot(), "utf-8")
    elif path.suffix != ".json":
        raise OptionError(
            f"{path} ends in neither .dot, for the graph, nor .json, for a trace of the timeline."
        )
    elif timeline is None:
        raise OptionError(
            f"There are no times to write to {path}: make the scheduler with timing=True."
        )
    else:
        path.write_text(json.dumps(chrome_trace(timeline)), "utf-8")


def chrome_trace(timeline: Timeline) -> dict[str, object]:
    """Trace events: one row per stream, times in microseconds."""
    streams = sorted({span.stream for span in timeline.spans})
    names = [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": 0,
            "tid": stream,
            "args": {"name": "reads of the host" if stream == HOST_STREAM else f"stream {stream}"},
        }
        for stream in streams
    ]
    spans = [
        {
            "ph": "X",
            "name": span.name,
            "cat": span.kind,
            "pid": 0,
            "tid": span.stream,
            "ts": span.start * 1e3,
            "dur": span.milliseconds * 1e3,
        }
        for span in timeline.spans
    ]
    return {"traceEvents": [*names, *spans], "displayTimeUnit": "ms"}
