"""Loops that run while any row goes on: what vmap makes of a while.

    while any(p(s)): s = select(p(s), f(s), s)   ->   each row runs while its own p(s) holds

A row whose p no longer holds keeps its state, so p never holds for it again: it may stop. The
condition may also depend on what is the same for all rows, such as a number of iterations.

Rows may also keep their state by a carried mask that stays set only where p holds:

    while any(p(s)): s, m = select(m, f(s), s), m & p(f(s))   ->   each row runs while its m holds

or by the opposite of one, until they are done:

    while not all(d): s, d = select(d, s, f(s)), d | q(f(s))   ->   each row runs until its d holds

Where p depends only on masks that are never set again, it never holds again whatever the rest
becomes: a row has to keep only what is read after the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.rewrite.region import with_root
from fusionstitch.codegen.while_loops.flat import Carried, Flat, Loop, conjuncts, made_of
from fusionstitch.codegen.while_loops.unchanged_rows import holds_only_with, preserves
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.rewrite import splat


def let_rows_stop(flat: Flat) -> Flat:
    """The same loops, whose conditions are those of rows where rows may stop on their own."""
    roots, ops = list(flat.graph.root.operands), list(flat.graph.ops[:-1])
    for loop in flat.every:
        found = own_condition(flat, loop)
        if found is not None:
            roots[loop.condition] = found.goes_on
            ops += found.made
    if roots == list(flat.graph.root.operands):
        return flat
    live = _needed(ops, roots)
    graph = with_root(flat.graph.name, live, roots)
    return Flat(graph, flat.inputs, flat.outputs, flat.loops)


def _needed(ops: Sequence[Op], roots: Sequence[Op]) -> list[Op]:
    """Those of `ops` that the roots need, and the parameters."""
    found = set(roots)
    for op in reversed(ops):
        if op in found:
            found.update(op.operands)
    return [op for op in ops if op in found or op.opcode == "parameter"]


@dataclass(frozen=True, eq=False)
class Own:
    """The condition of a row: whether `going` holds for it, which the loop's condition joins over
    all rows by the op `every`. `goes_on` adds the conditions that are the same for all rows; `made`
    are the ops made for that."""

    going: Op
    every: Op
    goes_on: Op
    made: tuple[Op, ...]


def own_condition(flat: Flat, loop: Loop) -> Own | None:
    """The condition of each row, if rows that stop keep what they have."""
    every = conjuncts(flat.root(loop.condition))
    condition, *others = sorted(every, key=lambda op: _of_each(op) is None)
    own = going = _of_each(condition)
    if own is None:
        return None
    alike = _alike(flat, loop) if others else set()
    changes = [c for c in loop.carried if c not in alike and _is_read(flat, c)]
    if not _may_stop(flat, changes, own):
        found = (flat.parameter(c.inside) for c in changes if _goes_on_with(flat, loop, c, own))
        masks = [mask for mask in found if _may_stop(flat, changes, mask)]
        if not masks:
            return None
        own = masks[0]
    inside = {flat.parameter(c.inside).id for c in loop.carried if c not in alike}
    changing = {flat.parameter(c.inside).id for c in alike}
    for other in others:  # it must be the same for all rows
        if other.shape.rank or _reads(other, inside):
            return None
    if _reads(own, changing) or any(flat.graph.users[flat.parameter(c.after).id] for c in alike):
        return None
    goes_on, made = own, [going] if going is own and any_of(condition) is None else []
    for other in others:
        spread = Op("broadcast", own.shape, (other,), {"dimensions": ()}, "both")
        goes_on = Op("and", own.shape, (goes_on, spread), name="goes_on")
        made += [spread, goes_on]
    return Own(own, condition, goes_on, tuple(made))


def _of_each(op: Op) -> Op | None:
    """The mask that an op tests for any element. It may have to be made, where the op tests that
    not all elements have the opposite."""
    if op.opcode != "not" or not _is_join(op.operands[0], "and", True):
        return any_of(op)
    done = op.operands[0].operands[0]
    return Op("not", done.shape, (done,), name="going")


def _is_join(op: Op, reducer: str, start: bool) -> bool:
    """Whether an op joins all elements of a predicate."""
    if op.opcode != "reduce" or op.attrs["reducer"] != reducer or op.shape != Shape("pred", ()):
        return False
    begun = splat(op.operands[1])
    return begun is not None and bool(begun) is start


def any_of(op: Op) -> Op | None:
    """The mask that an op tests for any element."""
    return op.operands[0] if _is_join(op, "or", False) else None


def _is_read(flat: Flat, c: Carried) -> bool:
    """Whether anything reads a carried value."""
    return any(flat.graph.users[flat.parameter(number).id] for number in (c.inside, c.after))


def _may_stop(flat: Flat, changes: Sequence[Carried], own: Op) -> bool:
    """Whether a row for which `own` does not hold may stop: it keeps all that is carried, or what
    is read after the loop, and `own` holds for it no more."""
    if _all_preserved(flat, changes, own):
        return True
    nexts = {flat.parameter(c.inside): flat.root(c.next) for c in changes}
    falls = all(
        holds_only_with(nexts[one], one) if one in nexts else _all_preserved(flat, changes, one)
        for one in conjuncts(own)
    )
    return falls and _all_preserved(flat, [c for c in changes if _is_read_after(flat, c)], own)


def _is_read_after(flat: Flat, c: Carried) -> bool:
    return bool(flat.graph.users[flat.parameter(c.after).id])


def _all_preserved(flat: Flat, carried: Sequence[Carried], own: Op) -> bool:
    """Whether a row for which `own` does not hold keeps all that is carried."""
    return all(preserves(flat, c, own) for c in carried)


# ---- masks ---------------------------------------------------------------------------------------


def _goes_on_with(flat: Flat, loop: Loop, mask: Carried, own: Op) -> bool:
    """Whether a mask holds for a row only if `own` does: at first, and after each iteration."""
    inside = flat.parameter(mask.inside)
    if inside.shape != own.shape or inside.dtype != "pred":
        return False
    firsts = {flat.parameter(c.inside): flat.root(c.first) for c in loop.carried}
    nexts = {flat.parameter(c.inside): flat.root(c.next) for c in loop.carried}
    first, after = (conjuncts(flat.root(number)) for number in (mask.first, mask.next))
    if inside not in after:
        return False  # it may hold again
    return all(
        (_known(one, firsts) or any(_equal(one, other, firsts) for other in first))
        and any(_equal(one, other, nexts, inside) for other in after)
        for one in conjuncts(own)
    )


def _known(op: Op, values: Mapping[Op, Op]) -> bool:
    """Whether a comparison of constants holds, of these values of what is carried."""
    numbers = [splat(values.get(operand, operand)) for operand in op.operands]
    if op.opcode != "compare" or any(number is None for number in numbers):
        return False
    return bool(np.all(evaluate_op(op, [np.asarray(number) for number in numbers])))


def _equal(op: Op, other: Op, values: Mapping[Op, Op], mask: Op | None = None) -> bool:
    """Whether `other` is what an op is of these values of what is carried, for rows for which the
    `mask` holds."""
    if op in values:
        return _given(values[op], mask) is other
    if op is other:
        return not _reads(op, {parameter.id for parameter in values})
    if op.opcode == "constant" or op.opcode != other.opcode:
        return splat(op) is not None and splat(op) == splat(other) and op.shape == other.shape
    alike = (op.shape, op.attrs, op.called) == (other.shape, other.attrs, other.called)
    alike = alike and annotations_of(op) == annotations_of(other)
    pairs = zip(op.operands, other.operands, strict=False)
    return alike and bool(op.operands) and all(_equal(a, b, values, mask) for a, b in pairs)


def _given(op: Op, mask: Op | None) -> Op:
    """What an op is where a mask holds."""
    while mask is not None and op.opcode == "select":
        which, yes, no = op.operands
        if which is mask:
            op = yes
        elif which.opcode == "not" and which.operands[0] is mask:
            op = no
        else:
            break
    return op


def _alike(flat: Flat, loop: Loop) -> set[Carried]:
    """The scalars that are the same for all rows: made of each other, and of what stays."""
    found = {c for c in loop.carried if not flat.parameter(c.inside).shape.rank}
    carried = {flat.parameter(c.inside).id: c for c in loop.carried}
    while True:
        others = {i for i, c in carried.items() if c not in found}
        same = {c for c in found if not _reads(flat.root(c.next), others)}
        if same == found:
            return found
        found = same


def _reads(op: Op, parameters: Set[int]) -> bool:
    """Whether an op is made of one of the parameters."""
    return any(o.id in parameters for one in (op, *made_of([op])) for o in (one, *one.operands))
