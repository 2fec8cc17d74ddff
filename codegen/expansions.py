"""Ops that code generation knows in terms of other ops: rewritten before anything is scheduled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codegen.bitcasts import expand_bitcast
from codegen.monoids import Monoids
from codegen.region import rewrite
from codegen.windows import expand_window
from hlo.graph import Graph, Op

#: opcode -> a rule that gives the ops in its place, or None where the op stays as it is.
EXPANSIONS: Mapping[str, Callable[[Op], list[Op] | None]] = {
    "bitcast-convert": expand_bitcast,
}


def expand(graph: Graph, numerics: str) -> Graph:
    """A region without the ops that the rules can take apart."""
    monoids = Monoids(numerics)
    if any(op.opcode == "reduce-window" for op in graph):  # which become reductions
        graph = rewrite(
            graph, lambda op: expand_window(op) if op.opcode == "reduce-window" else None
        )
    rules = {
        **EXPANSIONS,
        "reduce": monoids.expand_reduce,
        "get-tuple-element": monoids.expand_member,
    }
    if not any(op.opcode in rules for op in graph):
        return graph
    return rewrite(graph, lambda op: rules[op.opcode](op) if op.opcode in rules else None)
