"""Loops that run while any row goes on: what vmap makes of a while.

    while any(p(s)): s = select(p(s), f(s), s)   ->   each row runs while its own p(s) holds

A row whose p no longer holds keeps its state, so p never holds for it again: it may stop. The
condition may ask besides for what is the same for all rows, as a number of iterations is.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from fusionstitch.codegen.rewrite.region import with_root
from fusionstitch.codegen.whiles.flat import Carried, Flat, Loop, made_of
from fusionstitch.hlo.graph import INTEGERS, Op


def let_rows_stop(flat: Flat) -> Flat:
    """The same loops, whose conditions are those of rows where rows may stop on their own."""
    roots, ops = list(flat.graph.root.operands), list(flat.graph.ops[:-1])
    for loop in flat.every:
        found = _own_condition(flat, loop)
        if found is not None:
            roots[loop.condition], made = found
            ops += made
    if roots == list(flat.graph.root.operands):
        return flat
    kept = _needed(ops, roots)
    graph = with_root(flat.graph.name, kept, roots)
    return Flat(graph, flat.inputs, flat.outputs, flat.loops)


def _needed(ops: Sequence[Op], roots: Sequence[Op]) -> list[Op]:
    """Those of `ops` that the roots need, and the parameters."""
    found = set(roots)
    for op in reversed(ops):
        if op in found:
            found.update(op.operands)
    return [op for op in ops if op in found or op.opcode == "parameter"]


def _own_condition(flat: Flat, loop: Loop) -> tuple[Op, list[Op]] | None:
    """What each row asks, and the ops made for that, if rows that stop keep what they have."""
    asked, *others = _conjuncts(flat.root(loop.condition))
    if asked.opcode != "reduce" or asked.attrs["reducer"] != "or":
        return None
    own = asked.operands[0]
    if len(asked.attrs["dimensions"]) < own.shape.rank:
        return None
    alike = _alike(flat, loop) if others else set()
    for c in loop.carried:
        if c not in alike and not _keeps(flat.root(c.next), flat.parameter(c.inside), own):
            return None
    inside = {flat.parameter(c.inside).id for c in loop.carried if c not in alike}
    changing = {flat.parameter(c.inside).id for c in alike}
    for other in others:  # all rows must be told the same
        if other.shape.rank or _reads(other, inside):
            return None
    if _reads(own, changing) or any(flat.graph.users[flat.parameter(c.after).id] for c in alike):
        return None
    asks, made = own, list[Op]()
    for other in others:
        spread = Op("broadcast", own.shape, (other,), {"dimensions": ()}, "both")
        asks = Op("and", own.shape, (asks, spread), name="goes_on")
        made += [spread, asks]
    return asks, made


def _conjuncts(condition: Op) -> list[Op]:
    """What must hold, a reduction first."""
    if condition.opcode == "and" and not condition.shape.rank:
        found = [one for operand in condition.operands for one in _conjuncts(operand)]
        return sorted(found, key=lambda op: op.opcode != "reduce")
    return [condition]


def _alike(flat: Flat, loop: Loop) -> set[Carried]:
    """The scalars that are the same for all rows: made of each other, and of what stays."""
    found = {c for c in loop.carried if not flat.parameter(c.inside).shape.rank}
    carried = {flat.parameter(c.inside).id: c for c in loop.carried}
    while True:
        others = {i for i, c in carried.items() if c not in found}
        kept = {c for c in found if not _reads(flat.root(c.next), others)}
        if kept == found:
            return found
        found = kept


def _reads(op: Op, parameters: Set[int]) -> bool:
    """Whether an op is made of one of the parameters."""
    return any(o.id in parameters for one in (op, *made_of([op])) for o in (one, *one.operands))


def _keeps(after: Op, inside: Op, own: Op) -> bool:
    """Whether a row for which `own` does not hold keeps what it has of a carried value."""
    if after.opcode == "select":
        which, yes, no = after.operands
        if which.opcode == "not":
            which, yes, no = which.operands[0], no, yes
        return no is inside and _asks(which, own)
    if after.opcode != "add" or inside not in after.operands or after.dtype not in INTEGERS:
        return False
    added = after.operands[1] if after.operands[0] is inside else after.operands[0]
    return added.opcode == "convert" and _asks(added.operands[0], own)


def _asks(which: Op, own: Op) -> bool:
    """Whether `which` holds for elements of a row only if `own` does."""
    if which.opcode == "broadcast" and which.attrs["dimensions"] == tuple(range(own.shape.rank)):
        which = which.operands[0]
    if which is own:
        return True
    return which.opcode == "and" and any(_asks(operand, own) for operand in which.operands)
