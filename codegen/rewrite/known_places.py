"""Scatters whose index vectors need no data: where each of their updates goes.

Positions have to be affine in digits of the positions of the updates (`mixed_radix.py`). Where
they are so in parts, as those of a roll or of edges that are repeated, each part is a scatter of
its own.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fusionstitch.codegen.rewrite.known_integers import (
    MOST_ELEMENTS,
    attrs_key,
    key_of,
    steps_to,
    value_of,
)
from fusionstitch.codegen.rewrite.overlap_add import MOST_JOINED, overlaps, reach
from fusionstitch.codegen.rewrite.scatter_sums import windows_of
from fusionstitch.codegen.text.expressions import FUNCTORS
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.mixed_radix import Affine, Digit, affine_boxes
from fusionstitch.hlo.verdict import Verdict, forbid

#: Elements along a dim that updates may span, relative to the dim: more lie outside in vain.
MOST_SPANNED = 4
_SEVERAL = forbid("Several updates may write the same element.")


@dataclass(frozen=True)
class Places:
    """Where some updates go.

    Attributes:
        begin, end: which updates these are, along each dim of the updates
        dims: the extents of the result, where dims with diagonals in them are one
        base: the element of it that the first of these updates goes to
        digits: for each dim of the updates the digits of the position along it, with their steps
            along `dims`: each along one of them, if any
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]
    dims: tuple[int, ...]
    base: tuple[int, ...]
    digits: tuple[tuple[Digit, ...], ...]

    @property
    def every(self) -> list[Digit]:
        return [digit for digits in self.digits for digit in digits]

    def along(self, d: int) -> list[tuple[int, int]]:
        """The digits (size, step) of positions along a dim of the result, major to minor, in
        multiples of `unit(d)`."""
        found = [(digit.size, abs(digit.steps[d])) for digit in self.every if digit.steps[d]]
        return [(n, step // self.unit(d)) for n, step in sorted(found, key=major)] or [(1, 1)]

    def unit(self, d: int) -> int:
        """What all steps along a dim of the result are multiples of."""
        return math.gcd(*(digit.steps[d] for digit in self.every)) or 1

    @property
    def still(self) -> list[int]:
        """The sizes of digits with which the place stays the same."""
        return [digit.size for digit in self.every if not any(digit.steps)]

    @property
    def meeting(self) -> list[int]:
        """How many updates meet in an element, at most, for each reason why they may."""
        return [*self.still, *(n for d in range(len(self.dims)) for n in overlaps(self.along(d)))]


def major(digit: tuple[int, int]) -> tuple[int, int]:
    """The order of digits (size, step): large steps first, and of equal ones the larger digit."""
    size, step = digit
    return -step, -size


@dataclass(frozen=True)
class Known:
    """Where all updates of a scatter go: in parts, one after the other.

    Attributes:
        cut: whether windows are dropped of which elements would have a place
        everywhere: whether no updates could meet, and each element gets one
    """

    parts: tuple[Places, ...]
    cut: bool
    everywhere: bool

    @property
    def meet(self) -> bool:
        """Whether updates may meet in an element."""
        return len(self.parts) > 1 or math.prod(self.parts[0].meeting) > 1


def known_places(op: Op) -> Known | Verdict:
    """Where the updates of a scatter go if no data decides it, or why that is not known."""
    attrs = op.attrs
    if op.shape.is_tuple or (attrs["reducer"] != REPLACE and attrs["reducer"] not in FUNCTORS):
        return forbid("It scatters by more than one known operation.")
    x, indices, updates = op.operands
    steps = steps_to(indices) if x.shape.size and updates.shape.size else None
    if steps is None:
        return forbid("The data decides where its updates go.")
    # without the ops that compute what is scattered: answers are kept
    operands = (Op("parameter", x.shape), indices, Op("parameter", updates.shape))
    bare = Op(op.opcode, op.shape, operands, attrs)
    return _found(_Asked((key_of(steps), attrs_key(op), x.shape, updates.shape), bare, steps))


@dataclass(frozen=True)
class _Asked:
    """A scatter, equal to others of the same index vectors."""

    key: Hashable
    op: Op = field(compare=False)
    steps: tuple[Op, ...] = field(compare=False)


@functools.lru_cache(maxsize=1 << 8)
def _found(asked: _Asked) -> Known | Verdict:
    op, values = asked.op, value_of(asked.steps)
    if values is None:
        return forbid("How floats round decides where its updates go.")
    sizes, starts = window_sizes(op), _starts(op, values)
    ends = np.asarray(op.dims) - sizes
    inside = ((starts >= 0) & (starts <= ends)).all(axis=-1)
    touching = ((starts > -np.asarray(sizes)) & (starts < op.dims)).all(axis=-1)
    cut = bool((touching & ~inside).any())
    parts: list[Places] = []
    for begin, form in affine_boxes(starts):
        found = _places(op, begin, form)
        if len(found.dims) < op.shape.rank:
            cut = not inside.all()
        if any(_spans_too_much(found)):
            return forbid("Most of its updates lie outside.")
        parts.append(found)
    if not parts:
        return forbid("The positions of its updates are no arithmetic progressions.")
    known = Known(tuple(parts), cut, False)
    if op.attrs["reducer"] == REPLACE and known.meet:
        if any(math.prod(part.meeting) > MOST_JOINED for part in parts):
            return _SEVERAL
        if not _differ(starts[inside], sizes, op.dims):
            return _SEVERAL
    count = int(inside.sum()) * math.prod(sizes)
    return replace(known, everywhere=not known.meet and count == op.shape.size)


def _spans_too_much(found: Places) -> Iterator[bool]:
    for d, n in enumerate(found.dims):
        *_, span = reach(found.along(d))
        yield span * found.unit(d) > MOST_SPANNED * n


def window_sizes(op: Op) -> tuple[int, ...]:
    """The extents of a window along the dims of the result."""
    updates, of = op.operands[2], {d: w for w, d in windows_of(op).items()}
    return tuple(updates.dims[of[d]] if d in of else 1 for d in range(op.shape.rank))


def _starts(op: Op, values: np.ndarray) -> np.ndarray:
    """Where the window of each index vector starts, along the dims of the result: the last dim of
    what is returned."""
    attrs = op.attrs
    vector_dim = attrs["index_vector_dim"]
    vectors = (
        values[..., None] if vector_dim == values.ndim else np.moveaxis(values, vector_dim, -1)
    )
    if vectors.dtype == np.uint64:  # the largest ones would become negative
        vectors = np.minimum(vectors, np.uint64(np.iinfo(np.int64).max // 2))
    vectors = vectors.astype(np.int64)
    starts = np.zeros((*vectors.shape[:-1], op.shape.rank), np.int64)
    for k, d in enumerate(attrs["scatter_dims_to_operand_dims"]):
        starts[..., d] = vectors[..., k]
    own = zip(attrs["input_batching_dims"], attrs["scatter_indices_batching_dims"], strict=True)
    for d, i in own:
        axis = i - (i > vector_dim)
        shape = [-1 if e == axis else 1 for e in range(vectors.ndim - 1)]
        starts[..., d] = np.arange(vectors.shape[axis]).reshape(shape)
    return starts


def _places(op: Op, at: Sequence[int], form: Affine) -> Places:
    """Where the updates go whose index vectors have this form, from number `at` on."""
    updates, windows, rank = op.operands[2], windows_of(op), op.shape.rank
    counted = iter(zip(at, form.sizes, form.digits, strict=True))
    begin, end, digits = [], [], []
    for w, n in enumerate(updates.dims):
        steps = tuple(int(d == windows.get(w)) for d in range(rank))
        first, size, own = (0, n, (Digit(n, steps),)) if w in windows else next(counted)
        begin.append(first)
        end.append(first + size)
        digits.append(tuple(digit for digit in own if digit.size > 1))
    found = Places(tuple(begin), tuple(end), op.dims, form.base, tuple(digits))
    while diagonal := [digit for digit in found.every if sum(map(bool, digit.steps)) > 1]:
        along = [d for d, step in enumerate(diagonal[0].steps) if step]
        found = _merged(found, along[0], along[-1] + 1)
    return found


def _merged(found: Places, first: int, last: int) -> Places:
    """With these dims of the result as one."""

    def merged(values: tuple[int, ...], one: int) -> tuple[int, ...]:
        return (*values[:first], one, *values[last:])

    weights = [math.prod(found.dims[d + 1 : last]) for d in range(first, last)]

    def linear(steps: tuple[int, ...]) -> tuple[int, ...]:
        return merged(steps, sum(map(operator.mul, steps[first:last], weights)))

    digits = tuple(
        tuple(Digit(digit.size, linear(digit.steps)) for digit in own) for own in found.digits
    )
    dims = merged(found.dims, math.prod(found.dims[first:last]))
    return replace(found, dims=dims, base=linear(found.base), digits=digits)


def _differ(starts: np.ndarray, sizes: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether no two windows [N, dims], which are all inside, have an element in common."""
    own = [d for d in range(len(dims)) if sizes[d] < dims[d]]
    shape = [dims[d] for d in own]
    if len(starts) * math.prod(sizes[d] for d in own) > MOST_ELEMENTS:
        return False
    at = np.zeros(len(starts), np.int64)
    for d in own:
        at = at * dims[d] + starts[:, d]
    for offset_dim, d in enumerate(own):
        stride = math.prod(shape[offset_dim + 1 :])
        at = (at[:, None] + np.arange(sizes[d]) * stride).ravel()
    return len(np.unique(at)) == len(at)
