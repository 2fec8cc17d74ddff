"""What integer inputs may hold when a program is measured: as indices they are to be spread over
what they index, as in use. Where all of them were 0 or 1, gathers would find each row in L1, and
scatters would wait for two rows."""

from __future__ import annotations

from fusionstitch.hlo.graph import INTEGERS, Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Integers that index nothing are below this.
LEAST = 2
#: What an index goes through on its way: conversions, wraps of negative ones, shapes.
_HANDED_ON = frozenset({Kind.ELEMENTWISE, Kind.MOVEMENT})


def below(graph: Graph) -> tuple[int, ...]:
    """For each parameter of `graph` a number that its integers are to be below: the least extent
    that they index on any way, `LEAST` where they index nothing."""
    return tuple(_below(graph, parameter) for parameter in graph.parameters)


def _below(graph: Graph, parameter: Op) -> int:
    if parameter.dtype not in INTEGERS:
        return LEAST
    extents: list[int] = []
    seen, todo = {parameter.id}, [parameter]
    while todo:
        op = todo.pop()
        for user in graph.users[op.id]:
            extents += _indexed(user, op)
            handed_on = kind_of(user.opcode) in _HANDED_ON and user.dtype in INTEGERS
            if handed_on and user.id not in seen:
                seen.add(user.id)
                todo.append(user)
    return max(LEAST, min(extents, default=LEAST))


def _indexed(user: Op, index: Op) -> list[int]:
    """How many places of each dim that `index` indexes in `user`; none where it is no index."""
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
