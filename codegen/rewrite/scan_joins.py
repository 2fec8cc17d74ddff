"""What joins elements that stand for intervals: two that touch are the interval of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fusionstitch.codegen.rewrite.chain import JOINING
from fusionstitch.codegen.rewrite.scan_facts import (
    LINEAR,
    MOST_FACTS,
    NEAR,
    Array,
    Fact,
    Factor,
    Known,
    common,
    filling,
)
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import FLOATS, Op
from fusionstitch.hlo.rewrite import splat


def window(known: Known, op: Op) -> Iterator[Fact]:
    """Windows of neighbours, where all elements of the operand touch."""
    attrs, x = op.attrs, op.operands[0]
    reducer = attrs["reducer"]
    along = [d for d, n in enumerate(attrs["size"]) if n > 1]
    plain = all(set(attrs[k]) == {1} for k in ("stride", "base_dilation", "window_dilation"))
    if reducer not in JOINING or len(along) != 1 or not plain:
        return
    none = float(identity(reducer, op.dtype))
    if splat(op.operands[1]) != none:
        return
    [d] = along
    n = x.dims[d]
    first = np.arange(op.dims[d]) - attrs["low"][d]
    start, end = np.clip(first, 0, n), np.clip(first + attrs["size"][d], 0, n)
    some = end > start
    for fact in known.of(x, (d,), (d - 1, d)):
        if fact.low.shape[d] != n or fact.joins not in (None, reducer) or not fact.filled(none):
            continue
        low, high = _bounds(fact, d)
        if (low[..., 1:] == high[..., :-1]).all():
            lo = np.moveaxis(np.where(some, low[..., np.minimum(start, n - 1)], 0), -1, d)
            hi = np.moveaxis(np.where(some, high[..., np.maximum(end - 1, 0)], 0), -1, d)
            fill = filling(lo == hi, none)
            yield replace(fact, low=lo, high=hi, fill=fill, joins=reducer)


def _bounds(fact: Fact, dim: int) -> tuple[Array, Array]:
    """The bounds of a fact, a dim last; what joins nothing lies at the end of what is before it, or
    before all others."""
    low, high, empty = (np.moveaxis(a, dim, -1) for a in (fact.low, fact.high, fact.empty))
    position = np.where(empty, -1, np.arange(empty.shape[-1]))
    last = np.maximum.accumulate(position, -1)
    ended = np.take_along_axis(high, np.maximum(last, 0), -1)
    first = np.take_along_axis(low, (last >= 0).argmax(-1)[..., None], -1)
    there = np.where(last >= 0, ended, first)
    return np.where(empty, there, low), np.where(empty, there, high)


def join(known: Known, op: Op) -> Iterator[Fact]:
    """Two values by a reducer, or by what a linear recurrence is made of."""
    u, v = op.operands
    if op.opcode == "multiply":
        _note_power(known, op)
        _note_products(known, op)
    if op.opcode == "add":
        yield from _recurrence(known, u, v)
        yield from _recurrence(known, v, u)
    for one in known.of(u, *_read_by(known, u, v)):
        for other in known.of(v, *_read_by(known, v, u)):
            if one.alike(other):
                gaps = _without_gaps(one, other) if op.opcode == "add" else None
                found = gaps or _neighbours(op, one, other)
                if found is not None:
                    yield found


def _read_by(known: Known, op: Op, other: Op) -> list[tuple[int, ...]]:
    """The dims of a value along which another one has its elements at other indices."""
    return list(dict.fromkeys(fact.axes for fact in known.of(other) if fact.source is op))


def _without_gaps(one: Fact, other: Fact) -> Fact | None:
    """The sum of two values of which each has zeros where the other has something."""
    first, second = (fact.empty & (fact.fill == 0) for fact in (one, other))
    joined = common([one, other])
    if joined is None or not (first | second).all():
        return None
    return joined.chosen(lambda of: np.where(first, of(other), of(one)))


def _neighbours(op: Op, one: Fact, other: Fact) -> Fact | None:
    """What touches, joined by the reducer."""
    reducer = op.opcode
    none = float(identity(reducer, op.dtype))
    if any(f.joins not in (None, reducer) or not f.filled(none) for f in (one, other)):
        return None
    either = one.empty | other.empty
    for before, after in ((one, other), (other, one)):
        if ((before.high == after.low) | either).all():
            low = np.where(before.empty, after.low, before.low)
            high = np.where(after.empty, before.high, after.high)
            fill = filling(low == high, none)
            return replace(before, low=low, high=high, fill=fill, joins=reducer)
    return None


def _note_power(known: Known, op: Op) -> None:
    u, v = (known.powers.get(o, [(o, 1)]) for o in op.operands)
    both = [(r, m + n) for r, m in u for s, n in v if r is s]
    if both:
        known.powers[op] = [*both[:MOST_FACTS], (op, 1)]


def _note_products(known: Known, op: Op) -> None:
    """A factor times what was joined before it, either way around."""
    if op.dtype not in FLOATS:
        return
    found: list[tuple[Op, Fact | None, Fact]] = []
    u, v = op.operands
    for factor, value in ((u, v), (v, u)):
        before = [f for f in known.of(value) if f.joins in (None, LINEAR) and f.filled(0.0)]
        factors: list[Fact | None] = [
            f for f in known.of(factor) if f.joins in (None, "multiply") and not f.empty.any()
        ]
        if factor.opcode in ("broadcast", "reshape"):
            factors.append(None)
        found += [(factor, f, one) for f in factors for one in before]
    if found:
        known.products[op] = found[: 2 * MOST_FACTS]


def _recurrence(known: Known, product: Op, value: Op) -> Iterator[Fact]:
    """factor * before + own"""
    for factor, carried, before in known.products.get(product, ()):
        for own in known.of(value):
            if own.joins not in (None, LINEAR) or not own.alike(before) or own.empty.any():
                continue
            forward = (before.high == own.low) | before.empty
            backward = (before.low == own.high) | before.empty
            if not forward.all() and not backward.all():
                continue
            first = next((f.factor for f in (before, own) if f.factor is not None), None)
            found = _factor(known, factor, carried, own, first)
            if found is None or not all(
                f.factor is None or f.factor.same(found) for f in (before, own)
            ):
                continue
            low = np.where(before.empty, own.low, np.minimum(before.low, own.low))
            high = np.where(before.empty, own.high, np.maximum(before.high, own.high))
            fill = filling(low == high, 0.0)
            yield replace(own, low=low, high=high, fill=fill, joins=LINEAR, factor=first or found)


def _factor(
    known: Known, op: Op, carried: Fact | None, own: Fact, first: Factor | None
) -> Factor | None:
    """What the steps that `own` joins multiply by, if `op` is the product of their factors."""
    steps = own.high - own.low
    if carried is None:
        count = int(steps.flat[0])
        return _same_factor(known, op, count, first) if (steps == count).all() else None
    if carried.low.ndim != own.low.ndim or (carried.high - carried.low != steps).any():
        return None
    for sign, offset in ((1, carried.low - own.low), (-1, carried.low + own.high - 1)):
        if (offset == offset.flat[0]).all():
            where = carried.axes, carried.rows, sign, int(offset.flat[0])
            found = Factor(None, carried.source, (), *where)
            if first is None or first.same(found):
                return found
    return None


def _same_factor(known: Known, op: Op, count: int, first: Factor | None) -> Factor | None:
    """The factor of each step, if `op` is the same along the row, and a power of it."""
    number = splat(op)
    if number is not None:
        if count == 1:
            return Factor(float(number))
        root = None if first is None else first.number
        near = root is not None and abs(root**count - number) <= NEAR * abs(number) * count
        return first if near else None
    powers = known.powers.get(op.operands[0], [(op.operands[0], 1)])
    of = next((root for root, exponent in powers if exponent == count), None)
    if op.opcode == "reshape":  # of a row that is one element
        return first if first is not None and of is first.op else None
    return None if of is None else Factor(op=of, broadcast=op.attrs["dimensions"])


JOINS: dict[str, Callable[[Known, Op], Iterator[Fact]]] = {
    "reduce-window": window,
    **dict.fromkeys(JOINING, join),
}
