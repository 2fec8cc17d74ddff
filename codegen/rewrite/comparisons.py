"""Numbers that are compared with an extremum of them, which must be one of them to the last bit.

    m = max(x)    ...    x == m    ->    both loops that compute x round alike

A loop computes a value that another one computes too, where that is cheaper than to keep it. Such
values may differ in their last place: a short sum is one thread's in a loop and several lanes' in
another, and a product is joined with a sum here and not there. Then no element equals the maximum,
and a gradient that counts those that do divides by 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.rewrite.extents import is_short, needs_stage
from fusionstitch.codegen.rewrite.region import marked, rewrite
from fusionstitch.hlo.deciding import has_floats, is_extremum, picked
from fusionstitch.hlo.graph import Graph, Op


def mark_compared(graph: Graph) -> Graph:
    """The region with each product and short sum marked, by the attribute `alike`, of which numbers
    are made that are compared with an extremum of them."""
    compared: set[Op] = set()
    if any(map(is_extremum, graph)):
        for op in graph:
            if op.opcode == "compare":
                compared |= _matched(*op.operands)
    made_of = (op.id for op in _made_of(compared) if op.opcode == "multiply" or is_short(op))
    found = frozenset(made_of)
    return rewrite(graph, lambda op: [marked(op, "alike")] if op.id in found else None)


def _matched(left: Op, right: Op) -> set[Op]:
    """What the elements of both sides are, if one of them is an extremum."""
    (from_left, passed), (from_right, others) = picked(left), picked(right)
    return from_left & from_right if any(map(is_extremum, passed | others)) else set()


def _made_of(ops: Iterable[Op]) -> set[Op]:
    """The floats that ops are computed from where they are, themselves included."""
    found, wanted = set[Op](), list(ops)
    while wanted:
        op = wanted.pop()
        if op not in found and has_floats(op) and not needs_stage(op):
            found.add(op)
            wanted += op.operands
    return found
