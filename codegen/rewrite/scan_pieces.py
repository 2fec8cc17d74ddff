"""Scans in pieces: each thread joins a few neighbours, and starts from what is before them.

    y = scan(x[N])    ->    total[k] = x[B k] + ... + x[B k + B - 1]
                            before   = exclusive scan(total[N / B])
                            y[B k]   = before[k] + x[B k],   y[B k + 1] = y[B k] + x[B k + 1], ...

So x is read twice, the second time out of a cache, and the scan of the totals is in pieces as well:
each element takes two joins and a B-th of what the totals take. Totals, and what is before each,
are computed once, since all elements of a row stand on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.scan_facts import LINEAR
from fusionstitch.codegen.rewrite.scan_forms import Scan
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.costmodel.work import HALVES
from fusionstitch.hlo.deciding import EXTREMA
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: Neighbours that a thread joins, at most; few threads join fewer. Totals that are joined one after
#: the other: the text of their scan grows by the square of that.
MOST, FEWER, TOTALS = 16, (8, 4), 8
#: Groups of neighbours from which on there is work for most threads of a device.
MANY = 1 << 16
#: Bytes that threads side by side read at once each, of elements side by side.
VECTOR = 16


class Scanning:
    """Makes the ops that replace one scan: all new ones are in `chain`."""

    def __init__(self, op: Op, scan: Scan):
        self.scan, self.chain = scan, Chain(op)

    def pieces(self, whole: Callable[[Op], Op]) -> tuple[int, list[Op]]:
        """The dim of the flat result and what is interleaved along it: elements j, B + j, 2 B + j,
        ... of each j below B. They may go on after its last element."""
        source = whole(self.scan.source)
        axis = len([r for r in self._others() if r < self.scan.axes[0]])
        values = self._row(source, self.scan.axes, self.scan.start, mirrored=self.scan.mirrored)
        factors = self._factors(values, axis, whole)
        count = _neighbours(values, axis)
        if values.dtype not in HALVES or self.scan.joins in EXTREMA:
            return axis, self._scanned(values, factors, axis, self.scan.exclusive, count)
        # joined as f32 and rounded once, not after each join where something is decided by them
        wide = self._as(values, "f32"), None if factors is None else self._as(factors, "f32")
        found = self._scanned(*wide, axis, self.scan.exclusive, count)
        return axis, [self._as(one, values.dtype) for one in found]

    def _as(self, x: Op, dtype: str) -> Op:
        return self.chain.make("convert", dtype, x.dims, x)

    def _others(self) -> list[int]:
        dims = self.scan.source.dims
        return [d for d in range(len(dims)) if d not in self.scan.axes]

    def _row(self, x: Op, axes: Sequence[int], start: int, mirrored: bool) -> Op:
        """`x` with its dims `axes` as one, of which the scan's part, from its last if mirrored."""
        first, last = axes[0], axes[-1]
        size = math.prod(x.dims[d] for d in axes)
        if first != last:
            dims = (*x.dims[:first], size, *x.dims[last + 1 :])
            x = self.chain.make("reshape", x.dtype, dims, x)
        if (start, self.scan.size) != (0, size):
            x = self.chain.part(x, first, start, start + self.scan.size)
        return self.chain.like(x, "reverse", x, dimensions=(first,)) if mirrored else x

    def _factors(self, values: Op, axis: int, whole: Callable[[Op], Op]) -> Op | None:
        """The factors of the scan's steps, of the dims of its values."""
        factor, scan = self.scan.factor, self.scan
        if scan.joins != LINEAR or factor is None:
            return None
        if factor.number is not None:
            return self.chain.splat(factor.number, values)
        assert factor.op is not None
        x = whole(factor.op)
        if factor.broadcast or not factor.axes:
            dims = self._dims_of(factor.broadcast)
            return self.chain.make("broadcast", x.dtype, values.dims, x, dimensions=dims)
        along = factor.sign < 0
        start = factor.offset - scan.start - scan.size + 1 if along else factor.offset + scan.start
        row = self._row(x, factor.axes, start, mirrored=scan.mirrored != along)
        if row.dims == values.dims:
            return row
        left = [d for d in range(len(x.dims)) if d not in factor.axes[1:]]
        known = [
            d == factor.axes[0] or d in factor.rows for d in left
        ]  # those of one element are not
        kept = tuple(n for n, there in zip(row.dims, known, strict=True) if there)
        if kept != row.dims:
            row = self.chain.make("reshape", x.dtype, kept, row)
        flat = [
            axis if d == factor.axes[0] else self._dims_of((factor.rows.index(d),))[0]
            for d, there in zip(left, known, strict=True)
            if there
        ]
        return self.chain.make("broadcast", x.dtype, values.dims, row, dimensions=tuple(flat))

    def _dims_of(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Dims of the op as those of the flat result, which has one for all that are scanned."""
        first, last = self.scan.dims[0], self.scan.dims[-1]
        return tuple(d if d <= first else d - (last - first) for d in dims)

    # ---- the scan itself -------------------------------------------------------------------------

    def _scanned(
        self, values: Op, factors: Op | None, axis: int, exclusive: bool, count: int
    ) -> list[Op]:
        """What is interleaved along the scan, `count` neighbours of which are one thread's."""
        first = values.dims[axis] - 1 if self.scan.reverse else 0
        if more := -values.dims[axis] % count:
            values = self._longer(values, axis, more, self._none(values.dtype))
            factors = self._longer(factors, axis, more, 1) if factors else None
        order = list(range(count))[:: -1 if self.scan.reverse else 1]
        own = [self.chain.strided(values, axis, j, count) for j in range(count)]
        by = [
            self.chain.strided(factors, axis, j, count) if factors else None for j in range(count)
        ]
        before: Op | None = None
        if count < values.dims[axis]:
            total, factor = own[order[0]], by[order[0]]
            for j in order[1:]:
                total = self._joined(total, own[j], by[j])
                if j == first % count and by[j] is not None:  # what comes before it changes nothing
                    total = self._begun(total, own[j], axis, first // count)
                factor = self._times(factor, by[j])
            total = self._stored(total)
            factor = None if factor is None else self._stored(factor)
            size = min(TOTALS, total.dims[axis])
            parts = self._scanned(total, factor, axis, exclusive=True, count=size)
            before = self._stored(interleaved(self.chain, axis, parts, total.dims))
        results: dict[int, Op] = {}
        for j in order:
            after = own[j] if before is None else self._joined(before, own[j], by[j])
            if j == first % count and before is not None and by[j] is not None:
                after = self._begun(after, own[j], axis, first // count)
            none = self._nothing(own[j]) if before is None and exclusive else before
            results[j] = none if exclusive and none is not None else after
            before = after
        return [results[j] for j in range(count)]

    def _joined(self, before: Op, own: Op, factor: Op | None) -> Op:
        if factor is None:
            return self.chain.like(own, self.scan.joins, before, own)
        return self.chain.like(own, "add", self.chain.like(own, "multiply", factor, before), own)

    def _begun(self, after: Op, own: Op, axis: int, first: int) -> Op:
        """An element that follows nothing, at one index of an axis, is unchanged: its factor, which
        may be infinite, does not count."""
        iota = self.chain.make("iota", "s32", own.dims, dimension=axis)
        at = self.chain.splat(first, iota)
        begins = self.chain.compare(iota, "EQ", at)
        return self.chain.like(own, "select", begins, own, after)

    def _times(self, one: Op | None, other: Op | None) -> Op | None:
        if one is None or other is None:
            return None
        return self.chain.like(one, "multiply", one, other)

    def _none(self, dtype: str) -> object:
        return 0 if self.scan.joins == LINEAR else identity(self.scan.joins, dtype)

    def _nothing(self, x: Op) -> Op:
        return self.chain.splat(self._none(x.dtype), x)

    def _longer(self, x: Op, axis: int, more: int, value: object) -> Op:
        """`x` with so many elements more along a dim, which change nothing."""
        return self.chain.extended(x, axis, 0, more, self.chain.scalar(value, x.dtype))

    def _stored(self, x: Op) -> Op:
        """`x`, computed once."""
        copy = self.chain.like(x, "copy", x)
        self.chain.ops[-1] = annotated(copy, once=True)
        return self.chain.ops[-1]


def interleaved(chain: Chain, axis: int, pieces: Sequence[Op], dims: tuple[int, ...]) -> Op:
    """A value of these dims out of what is interleaved along its dim `axis`, as far as it has
    elements."""
    first = pieces[0]
    apart = (*first.dims[: axis + 1], 1, *first.dims[axis + 1 :])
    parts = [chain.make("reshape", first.dtype, apart, piece) for piece in pieces]
    joined = (*first.dims[: axis + 1], len(pieces), *first.dims[axis + 1 :])
    value = chain.make("concatenate", first.dtype, joined, *parts, dimension=axis + 1)
    size = len(pieces) * first.dims[axis]
    if size == dims[axis]:
        return chain.make("reshape", first.dtype, dims, value)
    value = chain.make("reshape", first.dtype, (*dims[:axis], size, *dims[axis + 1 :]), value)
    return chain.part(value, axis, 0, dims[axis])


def _neighbours(x: Op, axis: int) -> int:
    """How many neighbours of a row of `x` a thread joins, if possible a divisor of its length: as
    many as leave one group of totals, or a vector of those that lie side by side in memory."""
    size = x.dims[axis]
    if size <= MOST:
        return size
    if size <= MOST * TOTALS:
        enough = [n for n in range(-(-size // TOTALS), MOST + 1) if size % n == 0]
        most = enough[0] if enough else MOST
    elif all(n == 1 for n in x.dims[axis + 1 :]):
        most = max(2, VECTOR // ITEM_BYTES[x.dtype])
    else:
        most = next((n for n in (MOST, *FEWER) if x.shape.size // n >= MANY), FEWER[-1])
    return max((n for n in range(max(2, most // 2), most + 1) if size % n == 0), default=most)
