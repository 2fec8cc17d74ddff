"""Bounds for integer inputs of measured programs. Indices should be spread over what they index, as
in real use. If all were 0 or 1, gathers would find each row in L1, and scatters would contend for
two rows."""

from __future__ import annotations

from fusionstitch.hlo.graph import INTEGERS, Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Bound of integers that are not indices.
LEAST = 2
#: Ops that an index passes through: conversions, wraps of negative ones, shape changes.
_HANDED_ON = frozenset({Kind.ELEMENTWISE, Kind.MOVEMENT})
#: Ops that take elements of their first operand.
_TAKING = frozenset({"gather", "dynamic-slice"})


def below(graph: Graph) -> tuple[int, ...]:
    """An exclusive upper bound for the integers of each parameter of `graph`: the smallest extent
    that they index on any path, or `LEAST` if they index nothing."""
    return tuple(_below(graph, parameter) for parameter in graph.parameters)


def _below(graph: Graph, parameter: Op) -> int:
    if parameter.dtype not in INTEGERS:
        return LEAST
    extents: list[int] = []
    seen, todo = {(graph, parameter)}, [(graph, parameter)]
    while todo:
        within, op = todo.pop()
        for user in within.users[op.id]:
            extents += _indexed(user, op)
            for one in _handed_on(within, user, op):
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
    return max(LEAST, min(extents, default=LEAST))


def _handed_on(graph: Graph, user: Op, index: Op) -> list[tuple[Graph, Op]]:
    """Results of `user` that may be the index passed on, with their graph: a loop passes its
    initial values to its iterations."""
    taken = user.opcode in _TAKING and user.operands[0] is index
    if (taken or kind_of(user.opcode) in _HANDED_ON) and user.dtype in INTEGERS:
        return [(graph, user)]
    loops = [one for one in graph.users[user.id] if one.opcode == "while"]
    if user.opcode != "tuple" or not loops:
        return []
    positions = [number for number, one in enumerate(user.operands) if one is index]
    return [
        (called, read)
        for loop in loops
        for called in loop.called
        for read in called.users[called.parameters[0].id]
        if read.opcode == "get-tuple-element" and read.attrs["index"] in positions
    ]


def _indexed(user: Op, index: Op) -> list[int]:
    """The number of positions in each dim that `index` indexes in `user`; empty if it is no
    index."""
    attrs, operands = user.attrs, user.operands
    dims = operands[0].dims if operands else ()
    if user.opcode == "gather" and operands[1] is index:
        return [dims[d] - attrs["slice_sizes"][d] + 1 for d in attrs["start_index_map"]]
    if user.opcode == "scatter" and operands[len(operands) // 2] is index:
        return [dims[d] for d in attrs["scatter_dims_to_operand_dims"]]
    if user.opcode == "dynamic-slice":
        starts = zip(operands[1:], dims, attrs["sizes"], strict=True)
        return [extent - size + 1 for start, extent, size in starts if start is index]
    if user.opcode == "dynamic-update-slice":
        starts = zip(operands[2:], dims, operands[1].dims, strict=True)
        return [extent - size + 1 for start, extent, size in starts if start is index]
    return []
