"""Floats between positions and indices, as bounds: which integers they give, however they round.

    floor((iota + 0.5) * 64 / 128)    is 0, 0, 1, 1, ...

What resizes an image by nearest neighbours counts so. Compilers may contract or reorder such a few
operations, so each result is known to lie between two bounds, and an integer is known if both give
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of

#: The least and the largest that an array's elements may be, in f64.
Bounds = tuple[np.ndarray, np.ndarray]
#: Floats that are followed.
FOLLOWED = frozenset({"f32", "f64"})
#: By how much of a result an operation may be off: twice what a fast division of f32 is.
SLACK = 2.0**-21
#: Integers below which all are floats of their own.
LARGE = 2.0**23

_ROUNDED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round-nearest-even": np.rint,
}
_COMBINED: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
}
_MONOTONE: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "maximum": np.maximum,
    "minimum": np.minimum,
}
#: Ops of floats that are followed, other than those that move elements.
OPCODES = frozenset({*_ROUNDED, *_COMBINED, *_MONOTONE, "convert", "iota", "constant"})


def bounds_of(op: Op, operands: Sequence[Bounds]) -> Bounds | None:
    """The bounds of an op of floats, or of what is rounded to integers; None where they may be
    different ones, or no numbers."""
    with np.errstate(all="ignore"):
        found = _bounds(op, operands)
    if found is None or not all(np.isfinite(side).all() for side in found):
        return None
    return found


def _bounds(op: Op, operands: Sequence[Bounds]) -> Bounds | None:
    if op.opcode in _COMBINED:
        x, y = operands
        if op.opcode == "divide" and (np.sign(y[0]) * np.sign(y[1]) <= 0).any():
            return None
        sides = [_COMBINED[op.opcode](a, b) for a in x for b in y]
        return _rounded(np.minimum.reduce(sides), np.maximum.reduce(sides), op)
    if op.opcode in _MONOTONE:
        [low, high] = (_MONOTONE[op.opcode](*sides) for sides in zip(*operands, strict=True))
        return low, high
    if op.opcode == "convert" and op.dtype not in FOLLOWED:
        return _decided(np.trunc, operands[0])
    if op.opcode == "convert":
        return _rounded(*operands[0], op)
    if op.opcode in _ROUNDED:
        return _decided(_ROUNDED[op.opcode], operands[0])
    if kind_of(op.opcode) in (Kind.MOVEMENT, Kind.SOURCE):
        low, high = (evaluate_op(op, [x[side] for x in operands]) for side in (0, 1))
        return _wide(low), _wide(high)
    return None


def _rounded(low: np.ndarray, high: np.ndarray, op: Op) -> Bounds:
    """The bounds of a result with these. What needs no rounding gets none, except that of a
    division, which devices approximate."""
    exact = (low == high) & (low.astype(NUMPY_DTYPES[op.dtype]) == low) & (op.opcode != "divide")
    slack = np.where(exact, 0, SLACK)
    return low - slack * np.abs(low), high + slack * np.abs(high)


def _decided(rounded: Callable[[np.ndarray], np.ndarray], bounds: Bounds) -> Bounds | None:
    low, high = map(rounded, bounds)
    small = (np.abs(low) < LARGE).all()
    return (low, high) if small and np.array_equal(low, high) else None


def _wide(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float64)


def as_bounds(value: np.ndarray) -> Bounds:
    """Those of what is known exactly."""
    return _wide(value), _wide(value)


def as_integers(bounds: Bounds, dtype: str) -> np.ndarray:
    """The elements of what was rounded to integers of a type."""
    return np.asarray(bounds[0]).astype(NUMPY_DTYPES[dtype])
