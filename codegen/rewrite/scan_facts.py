"""What is known of the values of a region while its scans are looked for: intervals of elements.

Each element of a value may stand for an interval of the elements of one array, joined in order
(`Fact`). Two kinds of joins are known: reducers, and that of linear recurrences,
y = a * before + b. Their steps (a, b) join as (a2 * a1, a2 * b1 + b2): products of the factors, and
sums of products.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusionstitch.hlo.graph import Op

#: What may be known of one value at once.
MOST_FACTS = 4
#: The joins of linear recurrences, beside reducers.
LINEAR = "linear"
#: By how much of it a constant factor may differ from a power of the first one.
NEAR = 1e-5

Array = NDArray[Any]
#: Which dim of a source each dim of a value is; None: one that varies, or of one element.
Rows = tuple[int | None, ...]


@dataclass(frozen=True)
class Factor:
    """What a linear recurrence multiplies by: a number, a value that is the same along the row
    (`broadcast` gives it the dims of an op), or elements of `op` along `axes`: those of step z at
    sign * z + offset."""

    number: float | None = None
    op: Op | None = None
    broadcast: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    rows: Rows = ()
    sign: int = 1
    offset: int = 0

    def same(self, other: Factor) -> bool:
        if self.number is not None and other.number is not None:
            return abs(self.number - other.number) <= NEAR * abs(self.number)
        return self == other


@dataclass(frozen=True, eq=False)
class Fact:
    """What the elements of a value stand for: those of `source` from `low` to `high` along its dims
    `axes`, counted through, joined by `joins` (None: each is one element). `rows` says which dim of
    the source each other dim is. Bounds have a dim for each of the value's, of one element where
    they do not vary. Where nothing is joined, the value is `fill`, which is no number elsewhere."""

    source: Op
    axes: tuple[int, ...]
    rows: Rows
    low: Array
    high: Array
    fill: Array
    joins: str | None = None
    factor: Factor | None = None

    @functools.cached_property
    def empty(self) -> Array:
        """Where nothing is joined."""
        return np.asarray(self.low == self.high)

    def moved(self, move: Callable[[Array], Array], rows: Rows) -> Fact:
        """The same of a value that has these elements at other indices."""
        low, high, fill = (move(a) for a in (self.low, self.high, self.fill))
        return replace(self, low=low, high=high, fill=fill, rows=rows)

    def chosen(self, make: Callable[[Callable[[Fact], Array]], Array]) -> Fact:
        """One of the same kind, of whose arrays each is made of those of several facts."""
        low, high, fill = make(_low), make(_high), make(_fill)
        return replace(self, low=low, high=high, fill=fill)

    def filled(self, value: float) -> bool:
        """Whether the value is this wherever nothing is joined."""
        return bool((self.fill[self.empty] == value).all())

    def varies(self, dims: Iterable[int]) -> bool:
        """Whether elements along each of these dims stand for others."""
        return all(self.low.shape[d] > 1 for d in dims)

    def alike(self, other: Fact) -> bool:
        """Whether both are of the same elements, in arrays that have them in the same dims."""
        same = self.source is other.source and self.axes == other.axes and self.rows == other.rows
        return same and self.low.ndim == other.low.ndim


def _low(fact: Fact) -> Array:
    return fact.low


def _high(fact: Fact) -> Array:
    return fact.high


def _fill(fact: Fact) -> Array:
    return fact.fill


class Known:
    """What is known of each value so far, of rows of at most so many elements."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.facts: dict[Op, list[Fact]] = {}
        #: products of a factor and what was joined before it; the factor is the same along the row
        #: where nothing is known of its elements
        self.products: dict[Op, list[tuple[Op, Fact | None, Fact]]] = {}
        #: values that are powers of others: (root, exponent)
        self.powers: dict[Op, list[tuple[Op, int]]] = {}

    def of(self, op: Op, *axes: tuple[int, ...]) -> Iterator[Fact]:
        """What is known of a value, and that its elements along some dims are its own."""
        yield from self.facts.get(op, ())
        for along in axes:
            size = math.prod(op.dims[d] for d in along)
            if 1 < size <= self.most and along[0] >= 0:
                yield _own(op, along, size)


def _own(op: Op, along: tuple[int, ...], size: int) -> Fact:
    shape = tuple(n if d in along else 1 for d, n in enumerate(op.dims))
    low = np.arange(size, dtype=np.int64).reshape(shape)
    rows = tuple(None if d in along or n == 1 else d for d, n in enumerate(op.dims))
    return Fact(op, along, rows, low, low + 1, np.full(shape, np.nan))


def common(facts: Iterable[Fact]) -> Fact | None:
    """A fact with what values joined by the same have in common: single elements, and what has no
    elements, are joined by anything."""
    found: Fact | None = None
    for fact in facts:
        if found is None or found.joins is None:
            found = fact
        elif fact.joins not in (None, found.joins) or not _same_factors(fact, found):
            return None
    return found


def _same_factors(one: Fact, other: Fact) -> bool:
    known = one.factor is not None and other.factor is not None
    return not known or one.factor.same(other.factor)  # type: ignore[union-attr, arg-type]


def filling(empty: Array, value: float) -> Array:
    """The value of what joins nothing, and no number elsewhere."""
    return np.where(empty, value, np.nan)
