"""Numbers that are compared with an extremum of them, which must be one of them to the last bit.

    m = max(x)    ...    x == m    ->    both loops that compute x round alike

An extremum that leaves the kernel may be compared by another one, and what is compared with an
input may be what another one has found the extremum of.

A loop recomputes a value of another one where that is cheaper than to store it. Such values may
differ in their last bit: a short sum is one thread's in one loop and several lanes' in another, and
a product is fused with a sum here and not there. Then no element equals the maximum, and a gradient
that counts those that do divides by 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.extents import is_short, needs_stage
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.hlo.deciding import has_floats, is_extremum, picked
from fusionstitch.hlo.graph import Graph, Op


def mark_compared(graph: Graph) -> Graph:
    """The region with each product and short sum annotated as `alike` of which numbers are made
    that are compared with an extremum of them."""
    compared: set[Op] = set()
    for op in graph:
        if op.opcode == "compare":
            compared |= _matched(*op.operands)
    for op in graph.root.operands:
        of, passed = picked(op)
        compared |= of if any(map(is_extremum, passed)) else set()
    made_of = (op.id for op in _made_of(compared) if op.opcode == "multiply" or is_short(op))
    found = frozenset(made_of)
    return rewrite(graph, lambda op: [annotated(op, alike=True)] if op.id in found else None)


def _matched(left: Op, right: Op) -> set[Op]:
    """What the elements of both sides are, if one of them is an extremum; what is compared with
    fewer numbers of an input."""
    (from_left, passed), (from_right, others) = picked(left), picked(right)
    if any(map(is_extremum, passed | others)):
        return from_left & from_right
    sides = ((from_left, passed), (from_right, others))
    return from_left | from_right if any(_is_given(*side, left) for side in sides) else set()


def meets_others(op: Op) -> bool:
    """Whether an op compares numbers with fewer ones of an input: with extrema of them, perhaps."""
    if op.opcode != "compare":
        return False
    return any(_is_given(*picked(side), op) for side in op.operands)


def _is_given(of: set[Op], passed: set[Op], to: Op) -> bool:
    """Whether numbers are an input's, and each stands for several of what they are compared to."""
    given = any(op.opcode == "parameter" for op in of)
    return given and any(op.shape.size < to.shape.size for op in of | passed)


def _made_of(ops: Iterable[Op]) -> set[Op]:
    """The floats that ops are computed from where they are, themselves included."""
    found, todo = set[Op](), list(ops)
    while todo:
        op = todo.pop()
        if op not in found and has_floats(op) and not needs_stage(op):
            found.add(op)
            todo += op.operands
    return found
