"""Outputs that are joined from pieces, and may be stored so (codegen/loops/pieces.py)."""

from __future__ import annotations

from fusionstitch.codegen.rewrite.region import rebuilt, rewrite
from fusionstitch.hlo.graph import Graph, Op

#: Pieces that get loops of their own, at most.
MOST_PIECES = 32
#: Elements of an output for which that is worth it: fewer are computed by a few threads either way.
LEAST_ELEMENTS = 1 << 12


def is_alone(graph: Graph, op: Op) -> bool:
    """Whether an op of some elements is an output that nothing here reads."""
    users = graph.users[op.id]
    return op.shape.size >= LEAST_ELEMENTS and all(user is graph.root for user in users)


def is_joined(graph: Graph, op: Op) -> bool:
    """Whether an output is such a concatenate of a few pieces, or a reshape of one, in which they
    are interleaved."""
    joins = concatenate_of(op)
    few = joins.opcode == "concatenate" and 1 < len(joins.operands) <= MOST_PIECES
    return few and is_alone(graph, op) and (joins is op or len(graph.users[joins.id]) == 1)


def concatenate_of(op: Op) -> Op:
    """What an output is a reshape of, if that is a concatenate, else the output."""
    inside = op.opcode == "reshape" and op.operands[0].opcode == "concatenate"
    return op.operands[0] if inside else op


def compute_pieces(graph: Graph) -> Graph:
    """The region in which an input that is a piece of such an output is copied: what is stored is
    computed."""
    outputs = dict.fromkeys(graph.root.operands)
    joined = {concatenate_of(op).id for op in outputs if is_joined(graph, op)}
    if not any(o.opcode == "parameter" for i in joined for o in graph.ops[i].operands):
        return graph

    def computed(op: Op) -> list[Op] | None:
        if op.id not in joined:
            return None
        copies = {
            o: Op("copy", o.shape, (o,), name=f"{o.name}_copy", source=op.source)
            for o in op.operands
            if o.opcode == "parameter"
        }
        return [*copies.values(), rebuilt(op, [copies.get(o, o) for o in op.operands])]

    return rewrite(graph, computed)
