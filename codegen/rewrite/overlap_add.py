"""Overlap-add without a scatter: each element sums the windows that overlap it.

    y[hop i + j] += v[i, j]        with windows of m hops
    y = flat(sum over k < m of v'[:, k] moved on by k rows)        v' = v as [n, m, hop]

That is a join of padded slices, or a reduction where they are many. Where the result is an affine
number of more digits, the windows of one digit are the frames of the next one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import Op

#: Windows over an element that are joined one by one, along one digit and in all: more are reduced.
MOST_JOINED, MOST_TERMS = 16, 64


@dataclass(frozen=True)
class Moved:
    """Updates on their way to their elements: one array, or where they replace elements (`reducer`)
    a second one that says which elements they replace. `neutral` is what surrounds each."""

    chain: Chain
    arrays: tuple[Op, ...]
    neutral: tuple[Op, ...]
    reducer: str

    @property
    def dims(self) -> tuple[int, ...]:
        return self.arrays[0].dims

    def reshaped(self, dims: tuple[int, ...]) -> Moved:
        if dims == self.dims:
            return self
        return self._with([self.chain.make("reshape", x.dtype, dims, x) for x in self.arrays])

    def split(self, axis: int, sizes: Sequence[int]) -> Moved:
        """With one dim as several."""
        return self.reshaped((*self.dims[:axis], *sizes, *self.dims[axis + 1 :]))

    def merged(self, axis: int, count: int = 2) -> Moved:
        """With several dims as one."""
        size = math.prod(self.dims[axis : axis + count])
        return self.reshaped((*self.dims[:axis], size, *self.dims[axis + count :]))

    def in_order(self, order: tuple[int, ...]) -> Moved:
        return self._with([self.chain.in_order(x, order) for x in self.arrays])

    def reversed(self, axis: int) -> Moved:
        arrays = [self.chain.like(x, "reverse", x, dimensions=(axis,)) for x in self.arrays]
        return self._with(arrays)

    def padded(self, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Moved:
        """Surrounded by what is neutral; negative edges cut."""
        if not (any(low) or any(high) or any(interior)):
            return self
        edges = {"low": tuple(low), "high": tuple(high), "interior": tuple(interior)}
        sizes = zip(self.dims, low, high, interior, strict=True)
        dims = tuple(n + (n - 1) * i + a + b for n, a, b, i in sizes)
        both = zip(self.arrays, self.neutral, strict=True)
        return self._with([self.chain.make("pad", x.dtype, dims, x, v, **edges) for x, v in both])

    def extended(self, axis: int, low: int, high: int, interior: int = 0) -> Moved:
        """Padded along one dim."""
        rank = range(len(self.dims))
        before, after, between = (
            [n if d == axis else 0 for d in rank] for n in (low, high, interior)
        )
        return self.padded(before, after, between)

    def part(self, begin: tuple[int, ...], end: tuple[int, ...]) -> Moved:
        """What is inside of a box."""
        dims = tuple(b - a for a, b in zip(begin, end, strict=True))
        if dims == self.dims:
            return self
        attrs = {"start": begin, "limit": end, "stride": (1,) * len(dims)}
        return self._with(
            [self.chain.make("slice", x.dtype, dims, x, **attrs) for x in self.arrays]
        )

    def parts(self, axis: int) -> list[Moved]:
        """What is at each position along a dim, without that dim."""
        rest = (*self.dims[:axis], *self.dims[axis + 1 :])
        found = []
        for k in range(self.dims[axis]):
            one = [self.chain.part(x, axis, k, k + 1) for x in self.arrays]
            found.append(self._with(one).reshaped(rest))
        return found

    def reduced(self, axis: int) -> Moved:
        """With what is along a dim reduced. Nothing that replaces collides, so that any is all."""
        dims = (*self.dims[:axis], *self.dims[axis + 1 :])
        if self.dims[axis] == 1:
            return self.reshaped(dims)
        assert self.reducer != REPLACE
        attrs = {"dimensions": (axis,), "reducer": self.reducer}
        both = zip(self.arrays, self.neutral, strict=True)
        return self._with(
            [self.chain.make("reduce", x.dtype, dims, x, v, **attrs) for x, v in both]
        )

    def joined(self, other: Moved) -> Moved:
        """Joined with another one, element by element; where both replace, none collides."""
        chain = self.chain
        (x, *there), (y, *here) = self.arrays, other.arrays
        if self.reducer != REPLACE:
            return self._with([chain.like(x, self.reducer, x, y)])
        either = chain.like(there[0], "or", there[0], here[0])
        return self._with([chain.like(x, "select", here[0], y, x), either])

    def _with(self, arrays: Sequence[Op]) -> Moved:
        return replace(self, arrays=tuple(arrays))


def most_joined(counts: Sequence[int]) -> int:
    """Up to how many windows are joined one by one, where elements are in so many of each kind."""
    fits = (
        n
        for n in counts
        if n <= MOST_JOINED and math.prod(k for k in counts if k <= n) <= MOST_TERMS
    )
    return max(fits, default=1)


def collapsed(moved: Moved, axis: int, most: int) -> Moved:
    """`moved` with all that is along a dim joined: one by one if that is at most so much."""
    if moved.dims[axis] > most:
        return moved.reduced(axis)
    return functools.reduce(Moved.joined, moved.parts(axis))


def overlapped(moved: Moved, axis: int, digits: Sequence[tuple[int, int]], most: int) -> Moved:
    """`moved` with dims from `axis` on as one: these are digits (size, step), major to minor, of
    positions along it, of which the steps have no divisor in common. At most so many windows are
    joined one by one."""
    at = axis + len(digits) - 1
    widths = list(reach(digits))
    moved = moved.extended(at, 0, 0, digits[-1][1] - 1)
    for (_, hop), width in zip(reversed(digits[:-1]), widths[1:], strict=True):
        at -= 1
        moved = _added(moved, at, hop, most)
        moved = moved.extended(at, 0, width - moved.dims[at])
    return moved


def overlaps(digits: Sequence[tuple[int, int]]) -> list[int]:
    """How many windows an element is in, at most, for each digit but the minor one."""
    pairs = zip(reversed(digits[:-1]), reach(digits), strict=False)
    return [min(count, -(-width // hop)) for (count, hop), width in pairs]


def reach(digits: Sequence[tuple[int, int]]) -> Iterator[int]:
    """How many elements the minor digit spans, the minor two, and so on."""
    width = 1
    for count, hop in reversed(digits):
        width += (count - 1) * hop
        yield width


def _added(moved: Moved, at: int, hop: int, most: int) -> Moved:
    """Windows [count, width] from dim `at` on, added up where they overlap, with some more at the
    end of the result."""
    count, width = moved.dims[at : at + 2]
    hops = -(-width // hop)
    moved = moved.extended(at + 1, 0, hops * hop - width)
    if hops == 1:
        return moved.merged(at)
    moved = moved.split(at + 1, (hops, hop))
    few, many = (at + 1, at) if hops <= count else (at, at + 1)
    number = moved.dims[few]
    if number <= most:
        rows = [part.extended(at, k, number - 1 - k) for k, part in enumerate(moved.parts(few))]
        return functools.reduce(Moved.joined, rows).merged(at)
    skewed = _skewed(moved.extended(many, number - 1, number - 1), few, many)
    return skewed.reduced(at + 1).merged(at)


def _skewed(moved: Moved, few: int, many: int) -> Moved:
    """Dims q and k instead of these two neighbours: element k along `few` and, along `many`, that
    which k moves on to q."""
    chain, at, number = moved.chain, min(few, many), moved.dims[few]
    dims = (moved.dims[many] - number + 1, number)
    q, k = (chain.make("iota", "s32", dims, dimension=d) for d in (0, 1))
    last = chain.like(q, "add", q, chain.integers(number - 1, dims))
    place = {many: chain.like(q, "subtract", last, k), few: k}
    vectors = [chain.make("reshape", "s32", (*dims, 1), place[d]) for d in (at, at + 1)]
    indices = chain.make("concatenate", "s32", (*dims, 2), *vectors, dimension=2)
    rank = range(len(moved.dims))
    attrs = {
        "offset_dims": tuple(d for d in rank if d not in (at, at + 1)),
        "collapsed_slice_dims": (at, at + 1),
        "start_index_map": (at, at + 1),
        "operand_batching_dims": (),
        "start_indices_batching_dims": (),
        "index_vector_dim": 2,
        "slice_sizes": tuple(1 if d in (at, at + 1) else n for d, n in enumerate(moved.dims)),
    }
    result = (*moved.dims[:at], *dims, *moved.dims[at + 2 :])
    [x] = moved.arrays
    found = chain.make("gather", x.dtype, result, x, indices, **attrs)
    return replace(moved, arrays=(found,))
