"""Outputs that are joined from pieces, and may be stored so (codegen/loops/pieces.py)."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.region import rebuilt, rewrite, with_used
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


@dataclass(frozen=True)
class _Part:
    """A part of a concatenate: `extent` runs of `rest` elements, which follow each other in
    memory."""

    op: Op
    extent: int
    rest: int


def flat_joins(graph: Graph) -> Graph:
    """The region in which a stack of stacks, as of a matrix's rows, is one concatenate."""
    once = {op.id for op in graph.ops if len(graph.users[op.id]) == 1}
    flat, inside = set[int](), set[int]()
    for op in reversed(graph.ops[:-1]):
        if op.id not in inside and (nested := _nested(op, once)) and _is_even(op, once):
            flat.add(op.id)
            inside |= nested
    if not flat:
        return graph
    found = rewrite(graph, lambda op: _flat(op, once) if op.id in flat else None)
    return with_used(found.name, found.ops[:-1], found.root.operands)


def _joined_by(op: Op, once: Set[int]) -> list[Op]:
    """The concatenates that all operands of one are, if nothing else reads them and their pieces
    follow each other in its memory; none otherwise."""
    if op.opcode != "concatenate":
        return []
    before = math.prod(op.dims[: op.attrs["dimension"]])
    found = []
    for operand in op.operands:
        joins = concatenate_of(operand)
        if joins.opcode != "concatenate" or not {operand.id, joins.id} <= once:
            return []
        if math.prod(joins.dims[: joins.attrs["dimension"]]) != before:
            return []
        found.append(joins)
    return found


def _nested(op: Op, once: Set[int]) -> set[int]:
    """The ids of the concatenates within one."""
    inner = _joined_by(op, once)
    return {joins.id for joins in inner}.union(*(_nested(joins, once) for joins in inner))


def _parts(op: Op, once: Set[int]) -> list[_Part]:
    """What a concatenate consists of in the end."""
    if inner := _joined_by(op, once):
        return [part for joins in inner for part in _parts(joins, once)]
    axis = op.attrs["dimension"]
    rest = math.prod(op.dims[axis + 1 :])
    return [_Part(operand, operand.dims[axis], rest) for operand in op.operands]


def _is_even(op: Op, once: Set[int]) -> bool:
    """Whether a few parts with runs of one length are what a concatenate consists of."""
    parts = _parts(op, once)
    return len({part.rest for part in parts}) == 1 and len(parts) <= MOST_PIECES


def _flat(op: Op, once: Set[int]) -> list[Op]:
    """The ops of a concatenate of concatenates."""
    chain, axis, parts = Chain(op), op.attrs["dimension"], _parts(op, once)
    before, rest, pieces = op.dims[:axis], parts[0].rest, []
    for part in parts:
        dims = (*before, part.extent, rest)
        same = part.op.dims == dims
        pieces.append(part.op if same else chain.make("reshape", op.dtype, dims, part.op))
    dims = (*before, sum(part.extent for part in parts), rest)
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
