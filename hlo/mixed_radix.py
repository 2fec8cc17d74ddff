"""Integers that are affine in the digits of their position.

    0 0 1 1 2 2        digits of 3 and 2, with steps 1 and 0
    0 1 2 4 5 6 8 9    digits of 3 and 3, with steps 4 and 1; the last is cut off

A position along a dim is a number of mixed radix: its digits are the positions along the dims that
a reshape makes of it. Several integers of each position, the components of index vectors, have
steps of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

#: Progressions that a line is parted into, at most: edges at both ends, and what is between. Of
#: `FEW` each is simpler than digits of which the last numbers are cut off.
MOST, FEW = 3, 2
#: Boxes of two such lines.
MOST_BOXES = MOST**2


@dataclass(frozen=True)
class Digit:
    """A digit 0, 1, ..., `size` - 1, and how much each component grows with it."""

    size: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Affine:
    """Components of positions in a box of these `sizes`: `base` at its origin and, along each dim,
    affine in the digits of the position, major to minor. The sizes of these multiply to the extent
    of the dim, or to slightly more."""

    base: tuple[int, ...]
    sizes: tuple[int, ...]
    digits: tuple[tuple[Digit, ...], ...]


def affine_boxes(values: np.ndarray) -> Iterator[tuple[tuple[int, ...], Affine]]:
    """Where boxes begin in which `values`, whose last dim counts components, have that form. None
    for values that have no such form in a few boxes."""
    *sizes, components = values.shape
    origin = (0,) * len(sizes)
    base = values[origin]
    lines = [_line(values, d) - base for d in range(len(sizes))]
    total = base
    for d, line in enumerate(lines):
        total = total + line.reshape(*(n if e == d else 1 for e, n in enumerate(sizes)), components)
    if not np.array_equal(total, values):
        return
    parts = [_stretches(line) for line in lines]
    if not all(parts) or math.prod(map(len, parts)) > MOST_BOXES:
        return
    for box in itertools.product(*parts):
        begin = tuple(first for first, _, _ in box)
        form = Affine(
            tuple(map(int, values[begin])),
            tuple(size for _, size, _ in box),
            tuple(tuple(digits) for _, _, digits in box),
        )
        yield begin, form


def _line(values: np.ndarray, d: int) -> np.ndarray:
    """What is along one dim, from the origin on."""
    for _ in range(d):
        values = values[0]
    while values.ndim > 2:
        values = values[:, 0]
    return values


#: Part of a line: where it begins, its length, the digits of positions in it.
_Stretch = tuple[int, int, Sequence[Digit]]


def _stretches(line: np.ndarray) -> list[_Stretch]:
    """A line as one stretch whose digits fit it, else as a few progressions."""
    digits = digits_of(line)
    if digits is not None and extent(digits) == len(line):
        return [(0, len(line), digits)]
    found: list[_Stretch] = []
    begin = 0
    while begin < len(line) and len(found) < MOST:
        size = _run(line[begin:] - line[begin])
        found.append((begin, size, digits_of(line[begin : begin + size] - line[begin]) or []))
        begin += size
    if digits is not None and (begin < len(line) or len(found) > FEW):
        return [(0, len(line), digits)]
    return found if begin == len(line) else []


def _run(line: np.ndarray) -> int:
    """How long a line that starts with zeros goes on as a progression."""
    if len(line) == 1:
        return 1
    unlike = (line != np.arange(len(line))[:, None] * line[1]).any(axis=1)
    return int(np.argmax(unlike)) if unlike.any() else len(line)


def digits_of(line: np.ndarray) -> Sequence[Digit] | None:
    """The digits of the positions along a line [N, components] that starts with zeros."""
    size = len(line)
    if size == 1:
        return []
    step, run = line[1], _run(line)
    minor = Digit(run, tuple(map(int, step)))
    if run == size:
        return [minor]
    major = line[::run]
    at = np.arange(size)
    if not np.array_equal(line, major[at // run] + (at % run)[:, None] * step):
        return None
    more = digits_of(major)
    return None if more is None else [*more, minor]


def extent(digits: Sequence[Digit]) -> int:
    """How many numbers have such digits."""
    return math.prod(digit.size for digit in digits)
