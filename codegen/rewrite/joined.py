"""Outputs that are joined from pieces, and may be stored so (codegen/loops/pieces.py)."""

from __future__ import annotations

import math

from fusionstitch.codegen.rewrite.chain import Chain
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


def flat_joins(graph: Graph) -> Graph:
    """The region in which a stack of stacks, as of a matrix's rows, is one concatenate."""
    nested = {op.id for op in graph.ops[:-1] if _is_nested(graph, op)}
    if not nested:
        return graph
    return flat_joins(rewrite(graph, lambda op: _flat(op) if op.id in nested else None))


def _is_nested(graph: Graph, op: Op) -> bool:
    """Whether an op joins concatenates that nothing else reads, in which pieces follow each other
    as they do in memory."""
    if op.opcode != "concatenate":
        return False
    before, inner = math.prod(op.dims[: op.attrs["dimension"]]), map(concatenate_of, op.operands)
    rests, pieces = set[int](), 0
    for operand, joins in zip(op.operands, inner, strict=True):
        alone = all(len(graph.users[one.id]) == 1 for one in (operand, joins))
        if joins.opcode != "concatenate" or not alone:
            return False
        axis = joins.attrs["dimension"]
        if math.prod(joins.dims[:axis]) != before:
            return False
        rests.add(math.prod(joins.dims[axis + 1 :]))
        pieces += len(joins.operands)
    return len(rests) == 1 and pieces <= MOST_PIECES


def _flat(op: Op) -> list[Op]:
    """The ops of a concatenate of concatenates."""
    chain, axis = Chain(op), op.attrs["dimension"]
    before, pieces = op.dims[:axis], []
    for joins in map(concatenate_of, op.operands):
        inner = joins.attrs["dimension"]
        rest = math.prod(joins.dims[inner + 1 :])
        for piece in joins.operands:
            dims = (*before, piece.dims[inner], rest)
            same = piece.dims == dims
            pieces.append(piece if same else chain.make("reshape", op.dtype, dims, piece))
    dims = (*before, sum(piece.dims[axis] for piece in pieces), pieces[0].dims[axis + 1])
    joined = chain.make("concatenate", op.dtype, dims, *pieces, dimension=axis)
    chain.make("reshape", op.dtype, op.dims, joined)
    return chain.done()


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
