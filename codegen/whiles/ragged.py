"""Loops that run while any row goes on: what vmap makes of a while.

    while any(p(s)): s = select(p(s), f(s), s)   ->   each row runs while its own p(s) holds

A row whose p no longer holds keeps its state, so p never holds for it again: it may stop.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.rewrite.region import with_root
from fusionstitch.codegen.whiles.flat import Flat, Loop
from fusionstitch.hlo.graph import Op


def let_rows_stop(flat: Flat) -> Flat:
    """The same loops, whose conditions are those of rows where rows may stop on their own."""
    roots = list(flat.graph.root.operands)
    for loop in flat.every:
        own = _own_condition(flat, loop)
        if own is not None:
            roots[loop.condition] = own
    if roots == list(flat.graph.root.operands):
        return flat
    kept = _needed(flat.graph.ops[:-1], roots)
    graph = with_root(flat.graph.name, kept, roots)
    return Flat(graph, flat.inputs, flat.outputs, flat.loops)


def _needed(ops: Sequence[Op], roots: Sequence[Op]) -> list[Op]:
    """Those of `ops` that the roots need, and the parameters."""
    found = set(roots)
    for op in reversed(ops):
        if op in found:
            found.update(op.operands)
    return [op for op in ops if op in found or op.opcode == "parameter"]


def _own_condition(flat: Flat, loop: Loop) -> Op | None:
    """What each row asks, if rows that stop keep what they have."""
    condition = flat.root(loop.condition)
    if condition.opcode != "reduce" or condition.attrs["reducer"] != "or":
        return None
    own = condition.operands[0]
    if len(condition.attrs["dimensions"]) < own.shape.rank:
        return None
    for c in loop.carried:
        after, inside = flat.root(c.next), flat.parameter(c.inside)
        keeps = after.opcode == "select" and after.operands[2] is inside
        if not keeps or not _asks(after.operands[0], own):
            return None
    return own


def _asks(which: Op, own: Op) -> bool:
    """Whether `which` is `own`, or `own` for all elements of each row."""
    if which.opcode == "broadcast" and which.attrs["dimensions"] == tuple(range(own.shape.rank)):
        which = which.operands[0]
    return which is own
