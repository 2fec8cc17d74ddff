"""What the iterations of a loop add up, as one product or one sum behind the loop.

    for t: acc += dot(x[t], d)    ->    for t: stack[t] = d
                                        acc += dot(x, stack)       over t as well

The gradient of a weight is such a sum of products over a batch, that of a bias one of reductions.
Inside the loop it mixes the rows of the batch, which else have nothing to do with each other, and
it is a small product many times instead of a large one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import FLOATS, Module, Op
from fusionstitch.hlo.rewrite import is_positive_zero, splat
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.stacking import Joined, Lifted, LoopSums, Stacked, StackedInput, Summed
from fusionstitch.hlo.trips import Counted, carried
from fusionstitch.patterns.open_loops import OpenLoop, is_taken_apart, open_loops, resolved

#: Ops that give the elements of a sum in another order, or some of them: the same for each term.
_MOVES = frozenset({"transpose", "slice", "reshape", "copy"})


def loop_sums(module: Module) -> list[LoopSums]:
    """The sums worth taking out of loops: of floats, over as many iterations as the program says,
    where what has to be kept for that is no more than what the loop reads and writes anyway."""
    found = (_Finder(loop).sums() for loop in open_loops(module))
    return [sums for sums in found if sums is not None]


class _Finder:
    def __init__(self, loop: OpenLoop):
        self.loop, self.body, self.results = loop, loop.body, loop.results
        elements = [(carried(op), op) for op in self.body]
        indices = Counter(index for index, _ in elements)
        self.inside = {
            index: op for index, op in elements if index is not None and indices[index] == 1
        }
        self.asked = {carried(op) for op in loop.condition}
        self.readers = Counter(self.results)
        for op in self.body.ops:
            if op is not self.body.root and not self._is_seen_through(op):
                self.readers.update({resolved(operand) for operand in op.operands})

    def sums(self) -> LoopSums | None:
        count = self.loop.count
        if count is None or count.trips < 2 or not self.loop.streamed(count.trips):
            return None
        terms = list(self._terms())
        order = self._order(count, terms)
        if order is None:
            return None
        self.at, self.trips = order, count.trips
        self.stacks: dict[int, Stacked] = {}
        summed = [self._summed(*term) for term in terms]
        added = sum(one.value.shape.bytes * count.trips for one in self.stacks.values())
        if not summed or added > self.loop.streamed(count.trips):
            return None
        stacks = tuple(self.stacks.values())
        return LoopSums(self.loop.graph, self.loop.op, count.trips, order, stacks, tuple(summed))

    def _is_seen_through(self, op: Op) -> bool:
        """Whether an op of the body is a tuple of which elements are taken, or one of those."""
        return resolved(op) is not op or (op.opcode == "tuple" and is_taken_apart(self.body, op))

    def _terms(self) -> Iterator[tuple[Op, tuple[Op, ...], Op]]:
        """What is only added to: its element of what is carried, the moves of what is added, and
        the sum that those begin with."""
        for index, result in enumerate(self.results):
            inside = self.inside.get(index)
            if inside is None or index in self.asked or result.opcode != "add":
                continue
            if result.dtype not in FLOATS or self.readers[inside] > 1 or self.readers[result] > 1:
                continue
            first, second = map(resolved, result.operands)
            if inside not in (first, second):
                continue
            term, moves = second if first is inside else first, list[Op]()
            while _is_move(term):
                moves.append(term)
                term = resolved(term.operands[0])
            if _adds_up(term):
                yield inside, tuple(moves), term

    def _order(self, count: Counted, terms: Sequence[tuple[Op, tuple[Op, ...], Op]]) -> Op | None:
        """The place of an iteration in stacks: where terms read of them, or else its number."""
        for _, _, term in terms:
            for operand in term.operands[:2]:
                for op in _back(operand):
                    if op.opcode == "dynamic-slice":
                        place = resolved(op.operands[1])
                        if self._is_order(place, count):
                            return place
        own = self.inside.get(count.index)
        return own if own is not None and self._is_order(own, count) else None

    def _is_order(self, place: Op, count: Counted) -> bool:
        """Whether iterations have one place each, from the first on or from the last."""
        every = count.start + count.step * np.arange(count.trips)
        found = self._evaluated(place, count, every)
        first = np.arange(count.trips)
        return found is not None and any(np.array_equal(found, o) for o in (first, first[::-1]))

    def _evaluated(self, op: Op, count: Counted, every: np.ndarray) -> np.ndarray | None:
        """A scalar integer in every iteration, None where it is made of more than the counter."""
        if carried(op) == count.index:
            return every.astype(np.int64)
        if (value := splat(op)) is not None:
            return np.asarray(value)
        if kind_of(op.opcode) is not Kind.ELEMENTWISE or op.shape.rank:
            return None
        values = [self._evaluated(resolved(o), count, every) for o in op.operands]
        known = [value for value in values if value is not None]
        return evaluate_op(op, known) if len(known) == len(values) else None

    def _summed(self, inside: Op, moves: tuple[Op, ...], term: Op) -> Summed:
        count = 2 if term.opcode == "dot" else 1
        operands = [self._lifted(resolved(operand)) for operand in term.operands[:count]]
        return Summed(inside, moves, term, tuple(operands))

    def _lifted(self, op: Op) -> Lifted:
        """What all iterations have as `op`, one behind the other: a stack that the loop reads, or
        one that it is to write."""
        return self._read(op) or self.stacks.setdefault(op.id, Stacked(op, len(self.stacks)))

    def _read(self, op: Op) -> Lifted | None:
        op = _unhindered(op)
        if op.opcode == "concatenate":
            parts = [self._read(resolved(operand)) for operand in op.operands]
            known = tuple(part for part in parts if part is not None)
            return Joined(op, known) if len(known) == len(parts) else None
        read = self.loop.read(op)
        return StackedInput(op, read.index) if read and read.place is self.at else None


def _unhindered(op: Op) -> Op:
    """What an op is before the barriers that keep XLA from computing it only once: what
    `jax.checkpoint` computes again reads behind them."""
    op = resolved(op)
    while op.opcode == "get-tuple-element" and op.operands[0].opcode == "opt-barrier":
        given = op.operands[0].operands[0]
        if given.opcode != "tuple":
            break
        op = resolved(given.operands[op.attrs["index"]])
    return op


def _is_move(op: Op) -> bool:
    """Whether each element of a result is one of the operand."""
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


def _back(op: Op) -> Iterator[Op]:
    """An op, and through joins and reshapes what it is made of."""
    op = _unhindered(op)
    yield op
    if op.opcode in ("concatenate", "reshape"):
        for operand in op.operands:
            yield from _back(operand)
