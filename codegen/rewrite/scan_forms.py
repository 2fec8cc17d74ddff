"""Prefix scans, however they are written: which values of a region are scans of which others.

JAX writes a scan by an associative function as a tree of strided slices, joined pairs, pads with
gaps between the elements, and concatenates. XLA makes running reductions blocks whose totals are
scanned in turn. Programs also add shifted copies to themselves. What all have in common is what
each element stands for: an interval of the elements of one array, joined in order. Slices, pads,
reshapes and reversals move intervals (`scan_moves.py`), and a join of two that touch is the
interval of both (`scan_joins.py`). A value of which element p stands for all elements up to p is a
scan, whatever made it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.rewrite.scan_facts import (
    LINEAR,
    MOST_FACTS,
    Array,
    Fact,
    Factor,
    Known,
    Rows,
)
from fusionstitch.codegen.rewrite.scan_joins import JOINS
from fusionstitch.codegen.rewrite.scan_moves import MOVES
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import Graph, Op

#: Elements of the shortest row that is a scan, and of all that move or join what is looked at.
LEAST, MOST = 8, 1 << 24
#: Ops of a region that move and join as a scan does, at least.
LEAST_OPS = 6
_RULES = {**MOVES, **JOINS}


@dataclass(frozen=True)
class Scan:
    """A value that is a scan of `source` along its dims `axes`, from `start` on, `size` elements:
    in their order or from the last one on (`mirrored`), from the first element of the result or
    from its last (`reverse`), each with or without (`exclusive`) its own. `rows` are the dims of
    the source that the result's others are; it has the scanned ones as its dims `dims`."""

    source: Op
    axes: tuple[int, ...]
    rows: Rows
    dims: tuple[int, ...]
    start: int
    size: int
    mirrored: bool
    reverse: bool
    exclusive: bool
    joins: str
    factor: Factor | None


@dataclass(frozen=True)
class Moved:
    """A value of which element p along its dim `dim` is element p - `by` of a `scan`, or nothing
    that is joined, where the scan has none."""

    scan: Op
    dim: int
    by: int
    nothing: float


def find_scans(graph: Graph) -> dict[Op, Scan | Moved]:
    """The values of a region that are scans, and those that are parts of a scan before them, such
    as the sum of all but the last few."""
    moves = sum(op.opcode in ("slice", "pad", "concatenate", "reduce-window") for op in graph.ops)
    windows = (op.attrs["size"] for op in graph.ops if op.opcode == "reduce-window")
    if moves < LEAST_OPS and not any(math.prod(size) >= LEAST for size in windows):
        return {}
    whole: dict[Op, Fact] = {}
    known = Known(MOST // sum(op.opcode in _RULES for op in graph.ops))
    found: dict[Op, Scan | Moved] = {}
    for op in graph.ops[:-1]:
        rule = _RULES.get(op.opcode)
        if rule is None or op.shape.is_tuple:
            continue
        facts = list(rule(known, op))[:MOST_FACTS]
        if facts:
            known.facts[op] = facts
        for fact in facts:
            if (scan := _complete(op, fact)) is not None:
                found[op], whole[op] = scan, fact
                break
            if (moved := _moved(op, fact, whole)) is not None:
                found[op] = moved
                break
    return found


def _moved(op: Op, fact: Fact, whole: Mapping[Op, Fact]) -> Moved | None:
    """What a value takes of one of the `whole` scans, if it joins elements and is not a slice that
    says so already."""
    dims = [d for d, n in enumerate(fact.low.shape) if n > 1]
    if fact.joins is None or len(dims) != 1 or fact.empty.all():
        return None
    nothing = 0.0 if fact.joins == LINEAR else float(identity(fact.joins, op.dtype))
    for scan, base in reversed([*whole.items()]):
        same = base.alike(fact) and (base.joins, base.factor) == (fact.joins, fact.factor)
        if not same or scan in op.operands or not base.varies(dims) or not fact.filled(nothing):
            continue
        by = _distance(fact, base)
        if by is not None:
            return Moved(scan, dims[0], by, nothing)
    return None


def _distance(fact: Fact, base: Fact) -> int | None:
    """How much later along a row the elements of a scan are met again, if all are."""
    low, high, none = (a.reshape(-1) for a in (fact.low, fact.high, fact.empty))
    first = int(none.argmin())
    begun, ended = base.low.reshape(-1), base.high.reshape(-1)
    at = np.flatnonzero((begun == low[first]) & (ended == high[first]))
    if not at.size:
        return None
    by = first - int(at[0])
    position = np.arange(low.size) - by
    there = (position >= 0) & (position < begun.size)
    if (there == none).any():
        return None
    inside = position[there]
    same = (begun[inside] == low[there]).all() and (ended[inside] == high[there]).all()
    return by if same else None


def _complete(op: Op, fact: Fact) -> Scan | None:
    """The scan that a value is, if each element stands for all before it, or all after it."""
    dims = tuple(d for d, n in enumerate(fact.low.shape) if n > 1)
    size = fact.low.size
    if fact.joins is None or size < LEAST or not _has_rows(op, fact, dims):
        return None
    none = 0.0 if fact.joins == LINEAR else float(identity(fact.joins, op.dtype))
    some = ~fact.empty.reshape(-1)
    count = int(some.sum())
    if count < size - 1 or not fact.filled(none):
        return None
    exclusive = count < size
    low, high = fact.low.reshape(-1)[some], fact.high.reshape(-1)[some]
    first, last = int(low.min()), int(high.max())
    extent = math.prod(fact.source.dims[d] for d in fact.axes)
    for mirrored, reverse, lows, highs in _orders(size, first, last, own=not exclusive):
        if (low == lows[some]).all() and (high == highs[some]).all():
            # what no element stands for belongs to the row as well
            start = first - (exclusive and mirrored != reverse)
            if start >= 0 and start + size <= extent:
                where = fact.source, fact.axes, fact.rows, dims, start, size
                how = mirrored, reverse, exclusive, fact.joins, fact.factor
                return Scan(*where, *how)
    return None


def _orders(
    size: int, first: int, last: int, own: bool
) -> Iterator[tuple[bool, bool, Array, Array]]:
    """Whether a scan of the elements from `first` to `last` is mirrored, and reversed, and the
    bounds of what each of its elements stands for."""
    position = np.arange(size)
    begun, ended = np.full(size, first), np.full(size, last)
    yield False, False, begun, first + position + own
    yield True, False, last - position - own, ended
    yield False, True, last - size + position + 1 - own, ended
    yield True, True, begun, first + size - position - 1 + own


def _has_rows(op: Op, fact: Fact, dims: tuple[int, ...]) -> bool:
    """Whether a value varies along neighboring dims, at the position of those of its source, and
    has all rows of that along others, in their order."""
    if not dims or dims != tuple(range(dims[0], dims[-1] + 1)):
        return False
    source, axes = fact.source.dims, fact.axes
    rows = [row for d, row in enumerate(fact.rows) if d not in dims and op.dims[d] > 1]
    ours = op.dims[: dims[0]], op.dims[dims[-1] + 1 :]
    theirs = source[: axes[0]], source[axes[-1] + 1 :]
    return ours == theirs and rows == [d for d, n in enumerate(source) if d not in axes and n > 1]
