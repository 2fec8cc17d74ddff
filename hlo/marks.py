"""What a program says about its ops by the names of JAX's scopes: JAX and XLA hand these on,
through calls, loops, derivatives and maps, as parts of the names in the metadata of ops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusionstitch.hlo.graph import Graph

#: The function that `fs.leave` runs a part in.
LEAVE = "fusionstitch_leave"
#: The scope of the original of a loop that a faster copy replaces (`hlo/row_queries.py`).
ORIGINAL = "fusionstitch_original"


def mark_of(op_name: str) -> str:
    """The mark that leaves an op of this name to XLA, "" for none."""
    return next((mark for mark in (LEAVE, ORIGINAL) if mark in op_name), "")


def leave_called(graphs: Iterable[Graph]) -> None:
    """Leaves the ops of the graphs that ops which are left call, and what those call: their names
    say so only where XLA gave a call's name to all that it runs."""
    left = (op for graph in graphs for op in graph if op.source.left)
    waiting = [(called, op.source.left) for op in left for called in op.called]
    done: set[int] = set()
    while waiting:
        graph, mark = waiting.pop()
        if id(graph) in done:
            continue
        done.add(id(graph))
        for op in graph:
            op.source = replace(op.source, left=mark)
            waiting += [(called, mark) for called in op.called]
