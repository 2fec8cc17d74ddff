"""Ops that cost nothing wherever they are read: what follows from constants and positions alone."""

from __future__ import annotations

from fusionstitch.hlo.graph import Graph, of_graph
from fusionstitch.hlo.semantics import Kind, kind_of

#: Kinds of ops that follow from their operands element by element.
FREE_KINDS = frozenset({Kind.ELEMENTWISE, Kind.MOVEMENT})


@of_graph
def free_bits(graph: Graph) -> int:
    """Bitset of the ops that depend on no parameter and cost no traffic: constants, iotas, and
    elementwise or index-map ops of them that are not left to XLA. They are duplicated into every
    pattern that reads them."""
    bits = 0
    for op in graph:
        kind = kind_of(op.opcode)
        follows = kind in FREE_KINDS and not op.source.left
        if kind is Kind.SOURCE or (follows and all(bits >> o.id & 1 for o in op.operands)):
            bits |= 1 << op.id
    return bits
