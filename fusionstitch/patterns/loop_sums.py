"""Sums over the iterations of a loop, as one product or one sum after the loop.

    for t: acc += dot(x[t], d)    ->    for t: stack[t] = d
                                        acc += dot(x, stack)       over t as well

The gradient of a weight is such a sum of products over a batch, that of a bias a sum of reductions.
Inside the loop it mixes the rows of the batch, which are otherwise independent, and it is many
small products instead of a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusionstitch.hlo.graph import FLOATS, Module, Op
from fusionstitch.hlo.rewrite import is_positive_zero, splat
from fusionstitch.hlo.stacking import AfterLoop, Summed
from fusionstitch.hlo.tuples import resolved, unhindered
from fusionstitch.patterns.open_loops import OpenLoop, open_loops

#: Ops that reorder the elements of a sum, or select some: the same for each term.
_MOVES = frozenset({"transpose", "slice", "reshape", "copy"})


def loop_sums(module: Module) -> list[AfterLoop]:
    """The sums worth moving out of loops: of floats, if what must be stored for them is no more
    than what the loop reads and writes anyway."""
    found = (_sums(loop) for loop in open_loops(module))
    return [sums for sums in found if sums is not None]


def _sums(loop: OpenLoop) -> AfterLoop | None:
    sums = tuple(_terms(loop)) if loop.streamed else ()
    at = _order(loop, sums) if sums else None
    if at is None:
        return None
    operands = [op for one in sums for op in _summands(one.term)]
    new = [op for op in dict.fromkeys(operands) if loop.ahead.get(op.id) is not at]
    if sum(op.shape.bytes for op in new) * loop.trips > loop.streamed:
        return None
    stacks = {op.id: len(loop.results) + number for number, op in enumerate(new)}
    cone = loop.cone(operands, stacks)
    return AfterLoop(loop.graph, loop.op, loop.trips, at, tuple(new), cone, sums=sums)


def _terms(loop: OpenLoop) -> Iterator[Summed]:
    """The elements that are only added to."""
    for index, result in enumerate(loop.results):
        inside = loop.inside.get(index)
        if inside is None or index in loop.asked or result.opcode != "add":
            continue
        if result.dtype not in FLOATS or not loop.is_read_once(inside):
            continue
        addends = _addends(loop, result)
        found = [_summed(inside, addend) for addend in addends if addend is not inside]
        if inside in addends and None not in found:
            yield from (one for one in found if one is not None)


def _addends(loop: OpenLoop, op: Op) -> list[Op]:
    """The addends of an op, directly or through other additions that only it reads."""
    found, wanted = list[Op](), [op]
    while wanted:
        one = resolved(wanted.pop())
        if one.opcode == "add" and loop.is_read_once(one):
            wanted += reversed(one.operands)
        else:
            found.append(one)
    return found


def _summed(inside: Op, term: Op) -> Summed | None:
    moves: list[Op] = []
    while _is_move(term):
        moves.append(term)
        term = resolved(term.operands[0])
    return Summed(inside, tuple(moves), term) if _adds_up(term) else None


def _summands(term: Op) -> list[Op]:
    """The operands of a sum that vary by iteration."""
    return [unhindered(op) for op in term.operands[: 2 if term.opcode == "dot" else 1]]


def _order(loop: OpenLoop, sums: Iterable[Summed]) -> Op | None:
    """The position of an iteration in stacks: the one at which terms read stacks, else its
    number."""
    for one in sums:
        for operand in _summands(one.term):
            position = loop.ahead.get(operand.id)
            if position is not None and loop.is_order(position):
                return position
    own = loop.inside.get(loop.count.index)
    return own if own is not None and loop.is_order(own) else None


def _is_move(op: Op) -> bool:
    """Whether each element of a result is an element of the operand."""
    ones = op.opcode == "reduce" and all(
        op.operands[0].dims[d] == 1 for d in op.attrs["dimensions"]
    )
    return op.opcode in _MOVES or (ones and _adds_up(op))


def _adds_up(op: Op) -> bool:
    """Whether an op is a sum: of products, or of elements."""
    if op.opcode == "dot":
        return bool(op.attrs["lhs_contract"])
    if op.opcode != "reduce" or op.attrs["reducer"] != "add":
        return False
    start = splat(op.operands[1])
    return start is not None and is_positive_zero(start)
