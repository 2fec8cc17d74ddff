"""What a program says about its ops by the names of JAX's scopes: JAX and XLA hand these on,
through calls, loops, derivatives and maps, as parts of the names in the metadata of ops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fusionstitch.hlo.graph import Graph

#: The function that `fs.leave` runs a part in.
LEAVE = "fusionstitch_leave"


def is_left(op_name: str) -> bool:
    """Whether an op of this name is to stay XLA's."""
    return LEAVE in op_name


def leave_called(graphs: Iterable[Graph]) -> None:
    """Leaves the ops of the graphs that ops which are left call, and what those call: their names
    say so only where XLA gave a call's name to all that it runs."""
    waiting = [called for graph in graphs for op in graph if op.source.left for called in op.called]
    done: set[int] = set()
    while waiting:
        graph = waiting.pop()
        if id(graph) in done:
            continue
        done.add(id(graph))
        for op in graph:
            op.source = replace(op.source, left=True)
            waiting += op.called
