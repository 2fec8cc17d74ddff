"""Elements that a mask leaves out: what a select by positions alone makes nil.

    x = select(row >= column, s, -1e30)     p = exp(x - m)     sum(p)     dot(p, v)

Where the condition does not hold, x is a constant. If that is far below m, its exponential is zero,
and so is every product with p: sums are as they would be without the element, and so is a maximum
that m comes from. So a whole block of columns that the mask leaves out need not be computed, if a
look at m allows it. (A value weighed with such a zero counts as a number, though it may be none.)
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from fusionstitch.codegen.dots.online import Key, Running
from fusionstitch.codegen.index_maps.index import Index, constant
from fusionstitch.codegen.index_maps.maps import Indices, reads
from fusionstitch.codegen.loops.stages import body_reads, inlined_reads
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Differences of two integers, by sign and what is added, that are not negative where a comparison
#: of them holds.
_DIRECTIONS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "GE": ((1, 0),),
    "GT": ((1, -1),),
    "LE": ((-1, 0),),
    "LT": ((-1, -1),),
    "EQ": ((1, 0), (-1, 0)),
    "NE": (),
}
_OPPOSITES = {"GE": "LT", "LT": "GE", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}


@dataclass(frozen=True)
class Mask:
    """A condition that does not hold where `margin`, an index of positions, is negative."""

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


def find_masks(op: Op, dims: Indices, inner: Indices, whole: frozenset[int]) -> tuple[Mask, ...]:
    """The masks over what a reduction or dot sums up at an index, in the order they are met."""
    found: dict[Mask, None] = {}
    for value, at in _values(op, dims, inner, whole):
        if value.opcode != "select" or value.dtype == "pred":
            continue
        condition, *values = value.operands
        for holds, other in ((True, values[1]), (False, values[0])):
            if splat(other) is not None:
                found |= dict.fromkeys(map(Mask, _margins(condition, at, holds)))
    return tuple(found)


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


def _margins(op: Op, at: Indices, holds: bool, deep: int = _DEEPEST) -> tuple[Index, ...]:
    """Indices none of which is negative where a condition holds, or where it does not."""
    if not deep:
        return ()
    if kind_of(op.opcode) is Kind.MOVEMENT:
        (read, *others) = reads(op, at)
        return () if others else _margins(op.operands[0], read.index, holds, deep - 1)
    if op.opcode == "not":
        return _margins(op.operands[0], at, not holds, deep - 1)
    if op.opcode == ("and" if holds else "or"):
        return tuple(i for x in op.operands for i in _margins(x, at, holds, deep - 1))
    if op.opcode == "select":
        return _of_choice(op, at, holds, deep)
    if op.opcode != "compare":
        return ()
    left, right = (_position(x, at) for x in op.operands)
    if left is None or right is None:
        return ()
    direction = op.attrs["direction"]
    known = _DIRECTIONS[direction if holds else _OPPOSITES[direction]]
    return tuple(left * sign + right * -sign + shift for sign, shift in known)


def _of_choice(op: Op, at: Indices, holds: bool, deep: int) -> tuple[Index, ...]:
    """Those of a choice between two conditions of which one is a constant: where it is something
    else, the other one was chosen."""
    condition, *values = op.operands
    for chosen, other, value in ((True, values[1], values[0]), (False, values[0], values[1])):
        if _truth(other) is (not holds):
            own = _margins(value, at, holds, deep - 1) if _truth(value) is None else ()
            return (*_margins(condition, at, chosen, deep - 1), *own)
    return ()


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
            condition, *values = op.operands
            for holds, other in ((True, values[1]), (False, values[0])):
                if self.mask.margin in _margins(condition, at, holds):
                    return self.value(other, at, deep - 1)
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


def bounded(margin: Index, inside: Container[str]) -> Index:
    """`margin` with what terms of the variables `inside` can add to it at most."""
    total = constant(margin.const)
    for term, coefficient in margin.terms:
        part = Index(((term, coefficient),))
        total += part.hi if any(v.name in inside for v in part.variables) else part
    return total
