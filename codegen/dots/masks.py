"""Elements that a mask leaves out: what a select by positions alone makes nil.

    x = select(row >= column, s, -1e30)     p = exp(x - m)     sum(p)     dot(p, v)

Where the condition does not hold, x is a constant. If that is far below m, its exponential is zero,
and so is every product with p: sums are as they would be without the element, and so is a maximum
that m comes from. So a whole block of columns that the mask leaves out need not be computed, if a
look at m allows it. (A value weighed with such a zero counts as a number, though it may be none.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.codegen.dots.online import Key, Running
from fusionstitch.codegen.index_maps.index import Index, constant
from fusionstitch.codegen.index_maps.maps import Indices, reads
from fusionstitch.codegen.loops.stages import body_reads, inlined_reads
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: The difference of two integers is not negative where a comparison of them holds.
_DIRECTIONS = {"GE": (1, 0), "GT": (1, -1), "LE": (-1, 0), "LT": (-1, -1)}


@dataclass(frozen=True)
class Mask:
    """A condition of positions: true where `margin`, an index, is not negative."""

    margin: Index


@dataclass(frozen=True)
class Nil:
    """What a value is where a mask does not hold: `constant`, or zero if `constant` less all of
    `below` is far below zero."""

    constant: float | None = None
    below: tuple[tuple[float, Key], ...] = ()

    @property
    def is_zero(self) -> bool:
        return self.constant == 0


def find_mask(op: Op, dims: Indices, inner: Indices, whole: frozenset[int]) -> Mask | None:
    """The mask over what a reduction or dot sums up at an index, the first one met."""
    for value, at in _values(op, dims, inner, whole):
        if value.opcode == "select" and splat(value.operands[2]) is not None:
            margin = _margin(value.operands[0], at)
            if margin is not None:
                return Mask(margin)
    return None


def _values(op: Op, dims: Indices, inner: Indices, whole: frozenset[int]) -> Iterator[Key]:
    """Everything that the terms of a reduction are computed from inside it."""
    seen: set[Key] = set()
    todo = body_reads(op, dims, inner)
    while todo:
        key = todo.pop()
        if key in seen or key[0].opcode == "parameter" or key[0].id in whole:
            continue
        seen.add(key)
        yield key
        todo += inlined_reads(*key)


#: Ops looked through to find out what positions decide, or what is nil.
_DEEPEST = 16


def _margin(op: Op, at: Indices, deep: int = _DEEPEST) -> Index | None:
    """The index that is not negative where a condition holds, if there is one."""
    if not deep:
        return None
    if kind_of(op.opcode) is Kind.MOVEMENT:
        (read, *others) = reads(op, at)
        return None if others else _margin(op.operands[0], read.index, deep - 1)
    if op.opcode == "select" and [_truth(x) for x in op.operands[1:]] == [True, False]:
        return _margin(op.operands[0], at, deep - 1)
    if op.opcode != "compare" or op.attrs["direction"] not in _DIRECTIONS:
        return None
    left, right = (_position(x, at) for x in op.operands)
    if left is None or right is None:
        return None
    sign, shift = _DIRECTIONS[op.attrs["direction"]]
    return left * sign + right * -sign + shift


def _truth(op: Op) -> bool | None:
    value = splat(op)
    return None if value is None else bool(value)


def _position(op: Op, at: Indices, deep: int = _DEEPEST) -> Index | None:
    """An integer that positions alone decide, as an index."""
    if not deep:
        return None
    value = splat(op)
    if value is not None:
        return constant(int(value))
    if op.opcode == "iota":
        return at[op.attrs["dimension"]]
    if op.opcode in ("convert", "broadcast", "reshape", "transpose", "slice"):
        (read,) = reads(op, at)
        return _position(op.operands[0], read.index, deep - 1)
    if op.opcode in ("add", "subtract"):
        left, right = (_position(x, at, deep - 1) for x in op.operands)
        if left is None or right is None:
            return None
        return left + (right if op.opcode == "add" else right * -1)
    return None


def nil_terms(
    op: Op, dims: Indices, inner: Indices, mask: Mask, running: Running
) -> tuple[tuple[float, Key], ...] | None:
    """The conditions under which what a reduction sums up is nil where `mask` does not hold: each
    constant is far below a value of the row. None if it is not nil."""
    walk = _Walk(mask, running)
    if op.opcode == "dot":
        found = [walk.value(*read) for read in body_reads(op, dims, inner)]
        zeros = [nil for nil in found if nil is not None and nil.is_zero]
        return zeros[0].below if zeros else None
    (read,) = body_reads(op, dims, inner)
    nil = walk.value(*read)
    if nil is None or nil.constant is None:
        return None
    if op.id in running.extrema and op.attrs["reducer"] == "maximum":
        return (*nil.below, (nil.constant, (op, dims)))
    return nil.below if nil.is_zero and op.attrs["reducer"] == "add" else None


@dataclass(frozen=True)
class _Walk:
    mask: Mask
    running: Running

    def value(self, op: Op, at: Indices, deep: int = _DEEPEST) -> Nil | None:
        """What `op` is where the mask does not hold; None if that is not known."""
        value = splat(op)
        if value is not None:
            return Nil(float(value))
        if op.id in self.running.whole or op.opcode == "parameter" or not deep:
            return None
        if kind_of(op.opcode) is Kind.MOVEMENT:
            read, *others = reads(op, at)
            return None if others else self.value(op.operands[read.operand], read.index, deep - 1)
        if op.opcode == "select":
            values = op.operands[1:]
            if _margin(op.operands[0], at) == self.mask.margin:
                return self.value(values[1], at, deep - 1)
            both = [self.value(x, at, deep - 1) for x in values]
            return both[0] if both[0] is not None and both[0] == both[1] else None
        if op.opcode in ("convert", "copy"):
            return self.value(op.operands[0], at, deep - 1)
        if op.opcode == "exponential":
            return self._exponential(op.operands[0], at, deep - 1)
        if op.opcode == "multiply":
            found = [self.value(x, at, deep - 1) for x in op.operands]
            return next((nil for nil in found if nil is not None and nil.is_zero), None)
        if op.opcode in ("divide", "negate"):
            nil = self.value(op.operands[0], at, deep - 1)
            return nil if nil is not None and nil.is_zero else None
        return None

    def _exponential(self, op: Op, at: Indices, deep: int) -> Nil | None:
        """Zero, for a constant less a value."""
        if op.opcode != "subtract":
            return None
        nil = self.value(op.operands[0], at, deep)
        if nil is None or nil.constant is None:
            return None
        value = op.operands[1]
        while kind_of(value.opcode) is Kind.MOVEMENT and len(found := reads(value, at)) == 1:
            value, at = value.operands[found[0].operand], found[0].index
        return Nil(0.0, (*nil.below, (nil.constant, (value, at))))


def bounded(margin: Index, inside: frozenset[str]) -> Index:
    """`margin` with what the variables `inside` can add to it at most."""
    parts: list[Index] = []
    most = margin.const
    for term, coefficient in margin.terms:
        part = Index(((term, coefficient),))
        names = {v.name for v in part.variables}
        if names & inside:
            most += part.hi
        else:
            parts.append(part)
    total = constant(most)
    for part in parts:
        total = total + part
    return total
