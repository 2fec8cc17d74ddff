"""NumPy references of elementwise ops: opcode -> function of arrays.

Arrays of 8- and 16-bit floats arrive widened to float32 and every result is rounded to its
declared type by the caller, as XLA does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray


def _is_integer(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _divide(x: Array, y: Array) -> Array:
    """Integers: truncated; x/0 is -1 (all bits set), the smallest number over -1 is itself."""
    if not _is_integer(x):
        return np.true_divide(x, y)
    safe = np.where(y == 0, np.ones_like(y), y)
    if x.dtype.kind == "i":
        safe = np.where(safe == -1, np.ones_like(y), safe)
        quotient = np.where(y == -1, np.negative(x), (x - np.fmod(x, safe)) // safe)
    else:
        quotient = x // safe
    return np.where(y == 0, np.invert(np.zeros_like(x)), quotient)


def _remainder(x: Array, y: Array) -> Array:
    """Has the sign of x; for integers x%0 is x."""
    if not _is_integer(x):
        return np.fmod(x, y)
    unit = (y == 0) | (y == -1) if x.dtype.kind == "i" else y == 0
    rest = np.fmod(x, np.where(unit, np.ones_like(y), y))
    return np.where(y == 0, x, rest)


def _power(x: Array, y: Array) -> Array:
    """Integers: with a negative exponent 0, but for bases 1 and -1."""
    if not _is_integer(x):
        return np.power(x, y)
    positive = np.power(x, np.where(y < 0, y & 1, y))
    return np.where((y < 0) & (np.abs(x) != 1), np.zeros_like(x), positive)


def _bits(x: Array) -> int:
    return 8 * x.dtype.itemsize


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _shift_left(x: Array, y: Array) -> Array:
    count = _unsigned(np.asarray(y))
    inside = count < _bits(x)
    return np.where(inside, np.left_shift(x, np.where(inside, y, np.zeros_like(y))), 0)


def _shift_right_logical(x: Array, y: Array) -> Array:
    count = _unsigned(np.asarray(y))
    inside = count < _bits(x)
    shifted = np.right_shift(_unsigned(x), np.where(inside, count, np.zeros_like(count)))
    return np.where(inside, shifted, np.zeros_like(shifted)).view(x.dtype)


def _shift_right_arithmetic(x: Array, y: Array) -> Array:
    last = np.asarray(_bits(x) - 1, _unsigned(np.asarray(y)).dtype)
    count = np.minimum(_unsigned(np.asarray(y)), last)
    signed = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    return np.right_shift(signed, count.view(signed.dtype)).view(x.dtype)


def _maximum(x: Array, y: Array) -> Array:
    """Propagates NaN; 0.0 is above -0.0."""
    larger = np.maximum(x, y)
    if larger.dtype.kind != "f":
        return larger
    return np.where(x == y, np.where(np.signbit(x), y, x), larger)


def _minimum(x: Array, y: Array) -> Array:
    """Propagates NaN; -0.0 is below 0.0."""
    smaller = np.minimum(x, y)
    if smaller.dtype.kind != "f":
        return smaller
    return np.where(x == y, np.where(np.signbit(x), x, y), smaller)


def _sign(x: Array) -> Array:
    """Keeps zeros of either sign and NaN."""
    return np.where(x == 0, x, np.sign(x))


def _inverse_erf(x: float) -> float:
    """By Newton's method, from an approximation by elementary functions (S. Winitzki)."""
    size = abs(x)
    if not 0 < size < 1:
        return x if size == 0 else (math.copysign(math.inf, x) if size == 1 else math.nan)
    part, log = 0.147, math.log1p(-x * x)
    begin = 2 / (math.pi * part) + log / 2
    found = math.sqrt(math.sqrt(begin * begin - log / part) - begin)
    for _ in range(4):
        off = math.erf(found) - size if size < 0.5 else (1 - size) - math.erfc(found)
        found -= off / (2 / math.sqrt(math.pi) * math.exp(-found * found))
    return math.copysign(found, x)


def _round_away(x: Array) -> Array:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), np.copysign(whole, x))


def _count_leading_zeros(x: Array) -> Array:
    left = _unsigned(x).astype(np.uint64)
    length = np.zeros(x.shape, np.int64)
    while left.any():
        length += left != 0
        left = left >> np.uint64(1)
    return (_bits(x) - length).astype(x.dtype)


def total_order_key(x: Array) -> Array:
    """Signed integers that order floats from -NaN over -0 < +0 to +NaN."""
    bits = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """XLA's convert: to pred by comparing with 0; floats to integers saturate, NaN becomes 0."""
    if dtype == np.bool_:
        return x != 0
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real
    if dtype.kind in "iu" and x.dtype.kind not in "iub":
        limits = np.iinfo(dtype)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0))
        inside = (wide > limits.min) & (wide < limits.max)
        edge = np.where(wide <= limits.min, dtype.type(limits.min), dtype.type(limits.max))
        return np.where(inside, np.where(inside, wide, 0).astype(dtype), edge)
    return x.astype(dtype)


COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}

ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide,
    "remainder": _remainder,
    "power": _power,
    "maximum": _maximum,
    "minimum": _minimum,
    "atan2": np.arctan2,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift-left": _shift_left,
    "shift-right-logical": _shift_right_logical,
    "shift-right-arithmetic": _shift_right_arithmetic,
    "abs": np.abs,
    "negate": np.negative,
    "sign": _sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round-nearest-even": np.rint,
    "round-nearest-afz": _round_away,
    "is-finite": np.isfinite,
    "popcnt": lambda x: np.bitwise_count(_unsigned(x)),
    "count-leading-zeros": _count_leading_zeros,
    "select": np.where,
    "clamp": lambda low, x, high: _minimum(_maximum(low, x), high),
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "inverse-erf": np.vectorize(_inverse_erf, otypes=[np.float64]),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "real": np.real,
    "imag": np.imag,
    "complex": lambda real, imag: real + 1j * imag,
    "copy": lambda x: x,
}
