"""Values that are made of single elements of larger ones, and summed up by another loop.

    loss = sum(log_softmax(x)[row, label[row]])

The sum runs when all rows are done. If it picks the elements, all of what they are picked from has
to wait for it in memory. If the loop that has a row picks its element, that element alone does.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from fusionstitch.codegen.rewrite.extents import needs_stage
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Movement by which the data picks elements.
_PICKING = frozenset({"gather", "dynamic-slice"})
#: How many times as large a value is that should not wait for the sum.
LEAST_LARGER = 4


def picked(graph: Graph, stored: Container[int]) -> frozenset[int]:
    """The ids of the elementwise values of a region that sums read, and that pick elements of
    larger values which are computed once; `stored` are the ids of what is."""
    found: set[int] = set()
    for op in graph.ops[:-1]:
        if needs_stage(op) and op.opcode != "dot":
            value = _computed(op.operands[0])
            if value.id not in stored and value.shape.rank and _picks(value, stored):
                found.add(value.id)
    return frozenset(found)


def _computed(op: Op) -> Op:
    """The value that a view of it shows, or that the parts of a split sum are filled up from."""
    while op.opcode in ("reshape", "transpose", "pad"):
        op = op.operands[0]
    return op


def _picks(value: Op, stored: Container[int]) -> bool:
    """Whether what is computed with an elementwise value picks elements of a larger one that is
    computed once."""
    if kind_of(value.opcode) is not Kind.ELEMENTWISE:
        return False
    sources = [op.operands[0] for op in _made_of(value, stored) if op.opcode in _PICKING]
    return any(
        one.id in stored and one.shape.size >= LEAST_LARGER * value.shape.size
        for source in sources
        for one in _made_of(source, stored)
    )


def _made_of(value: Op, stored: Container[int]) -> Iterator[Op]:
    """A value and all that it is computed with, down to what is computed once."""
    todo, seen = [value], {value.id}
    while todo:
        op = todo.pop()
        yield op
        if op.id in stored:
            continue
        for operand in op.operands:
            if operand.id not in seen:
                seen.add(operand.id)
                todo.append(operand)
