"""Products that were merged for a library come apart again.

    dot(x, concatenate(a, b))[:, :n]    ->    dot(x, a)
    dot(concatenate(x, y), a)[m:]       ->    dot(y, a)

XLA multiplies at once what has an operand in common, and then slices the result. In a kernel that
keeps rows in registers the parts belong to different layers, and are the better apart.
"""

from __future__ import annotations

from fusionstitch.codegen.annotations import like
from fusionstitch.codegen.rewrite.region import rebuilt, with_used
from fusionstitch.hlo.dots import result_dims
from fusionstitch.hlo.graph import Graph, Op, Shape


def part_products(graph: Graph) -> Graph:
    """The region with each slice of a product of a concatenate that lies in one piece of it as the
    product of that piece."""
    if not any(_piece_of(op) for op in graph):
        return graph
    copies: dict[int, Op] = {}
    made: dict[tuple[int, int, int], Op] = {}
    ops: list[Op] = []
    for op in graph.ops[:-1]:
        found = _piece_of(op)
        if found is None:
            copies[op.id] = rebuilt(op, [copies[o.id] for o in op.operands])
            ops.append(copies[op.id])
            continue
        side, piece, dim, begin = found
        [dot] = op.operands
        key = dot.id, side, piece
        if key not in made:
            made[key] = _product(dot, side, piece, dim, copies)
            ops.append(made[key])
        copies[op.id] = _slice(op, made[key], dim, begin)
        if copies[op.id] is not made[key]:
            ops.append(copies[op.id])
    return with_used(graph.name, ops, [copies[o.id] for o in graph.root.operands])


def _piece_of(op: Op) -> tuple[int, int, int, int] | None:
    """Of a slice of a product: the operand that is a concatenate, which piece of that the slice
    lies in, along which dim of the product, and where that begins. None for anything else."""
    if op.opcode != "slice" or op.operands[0].opcode != "dot":
        return None
    [dot] = op.operands
    batch = len(dot.attrs["lhs_batch"])
    for side, operand in enumerate(dot.operands):
        if operand.opcode != "concatenate":
            continue
        dim = result_dims(dot, side).get(operand.attrs["dimension"])
        if dim is None or dim < batch or op.attrs["stride"][dim] != 1:
            continue
        begin, first = 0, op.attrs["start"][dim]
        for piece, own in enumerate(operand.operands):
            end = begin + own.dims[operand.attrs["dimension"]]
            if begin <= first and first + op.dims[dim] <= end:
                return side, piece, dim, begin
            begin = end
    return None


def _product(dot: Op, side: int, piece: int, dim: int, copies: dict[int, Op]) -> Op:
    """The product of one piece of a concatenate."""
    joined = dot.operands[side]
    own = joined.operands[piece]
    operands = [copies[o.id] for o in dot.operands]
    operands[side] = copies[own.id]
    size = own.dims[joined.attrs["dimension"]]
    dims = tuple(size if d == dim else extent for d, extent in enumerate(dot.dims))
    name = f"{dot.name}_part"
    made = Op(dot.opcode, Shape(dot.dtype, dims), tuple(operands), dot.attrs, name)
    made.source = dot.source
    return like(made, dot)


def _slice(op: Op, product: Op, dim: int, begin: int) -> Op:
    """What a slice takes of the product of its piece: all of it, mostly."""
    if op.dims == product.dims:
        return product
    start = tuple(s - begin if d == dim else s for d, s in enumerate(op.attrs["start"]))
    attrs = {**op.attrs, "start": start}
    if "limit" in attrs:
        limits = enumerate(op.attrs["limit"])
        attrs["limit"] = tuple(s - begin if d == dim else s for d, s in limits)
    made = Op("slice", op.shape, (product,), attrs, op.name)
    made.source = op.source
    return like(made, op)
