"""Matrices that need no data, of which few rows of each column are not 0.

    weights[i, j] = max(0, 1 - |(j + 0.5) * 2 - 0.5 - i|)    has two such rows in each column

`jax.image.resize` multiplies by such matrices, one for each dim, and so do interpolations and
differences that are written as products. Their elements are evaluated.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from fusionstitch.codegen.rewrite.known_integers import key_of, known_steps
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Elements of the largest array that is evaluated, and ops that are.
MOST_ELEMENTS, MOST_OPS = 1 << 20, 128
#: Rows of a column that may differ from 0, and elements of all columns: these go into the text.
MOST_TAPS, MOST_WEIGHTS = 16, 1 << 12
#: How many times as many rows as these a matrix must have to be worth it.
LEAST_SPARED = 4
_FLOATS = frozenset({"f32", "bf16", "f16"})
_TYPES = _FLOATS | {"s32", "u32", "pred"}


@dataclass(frozen=True)
class Band:
    """Column j of a matrix is `weights[:, j]` in the rows from `starts[j]` on, and 0 in all others.

    Attributes:
        starts: s32 [columns]
        weights: f32 [rows of each column, columns]
    """

    starts: np.ndarray
    weights: np.ndarray


def known_band(matrix: Op, contracted: int) -> Band | None:
    """The band of a matrix whose rows lie along dim `contracted`; None where data takes part, or
    where columns have too many elements that are not 0."""
    if matrix.shape.rank != 2 or matrix.dtype not in _FLOATS:
        return None
    steps = known_steps(matrix, _follows, MOST_OPS)
    return None if steps is None else _found(_Asked(key_of(steps), contracted, steps))


def _follows(op: Op) -> bool:
    """Whether the value of an op follows from its operands, and is small enough."""
    if (
        op.shape.is_tuple
        or op.shape.size > MOST_ELEMENTS
        or op.dtype not in _TYPES
        or op.source.left
    ):
        return False
    if op.opcode == "reduce":
        return isinstance(op.attrs.get("reducer"), str)
    kind = kind_of(op.opcode)
    if op.opcode in ("iota", "constant"):
        return True
    return kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and bool(op.operands) and not op.called


@dataclass(frozen=True)
class _Asked:
    """A matrix, equal to others that are computed alike."""

    key: Hashable
    contracted: int
    steps: tuple[Op, ...] = field(compare=False)


@functools.lru_cache(maxsize=1 << 6)
def _found(asked: _Asked) -> Band | None:
    values: dict[Op, np.ndarray] = {}
    for op in asked.steps:
        values[op] = np.asarray(evaluate_op(op, [values[o] for o in op.operands]))
    matrix = np.moveaxis(values[asked.steps[-1]].astype(np.float32), asked.contracted, 0)
    rows, columns = matrix.shape
    if not rows or not columns or not np.isfinite(matrix).all():
        return None
    there = matrix != 0
    first, last = there.argmax(axis=0), rows - 1 - there[::-1].argmax(axis=0)
    last = np.where(there.any(axis=0), last, first)
    taps = int((last - first).max()) + 1
    if taps > MOST_TAPS or taps * columns > MOST_WEIGHTS or taps * LEAST_SPARED > rows:
        return None
    starts = np.minimum(first, rows - taps).astype(np.int32)
    weights = np.take_along_axis(matrix, starts + np.arange(taps)[:, None], axis=0)
    return Band(starts, weights)
