"""Inputs in which what is special is common: NaN, infinities, signed zeros, ties, duplicates."""

from __future__ import annotations

import random
from dataclasses import dataclass

import ml_dtypes
import numpy as np

FLOATS = ("float32", "float32", "float32", "float16", "bfloat16")
INTEGERS = ("int32", "int32", "uint8", "int8", "uint32", "int16")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 65, 100, 129, 257, 515)
ELEMENTS = 6000


@dataclass(frozen=True)
class Value:
    """An array that a program has: what later steps may know of it.

    `exact`: every element is what the mathematics say, with no freedom to round, so that two
    right programs agree in every bit. Only such values may decide anything (comparisons, places).
    """

    shape: tuple[int, ...]
    dtype: str
    exact: bool

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def floating(self) -> bool:
        return is_float(self.dtype)

    @property
    def integral(self) -> bool:
        return not self.floating and self.dtype != "bool"


def is_float(dtype: str) -> bool:
    return "float" in dtype


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


def shape(rng: random.Random, most: int = ELEMENTS) -> tuple[int, ...]:
    rank = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
    extents: list[int] = []
    for _ in range(rank):
        room = most // max(1, int(np.prod(extents, dtype=np.int64)))
        extents.append(rng.choice([e for e in EXTENTS if e <= max(1, room)]))
    rng.shuffle(extents)
    return tuple(extents)


def array(rng: random.Random, value: Value) -> np.ndarray:
    """Random elements of `value`'s type; every other array has special ones among them."""
    generator = np.random.default_rng(rng.getrandbits(63))
    dtype = numpy_dtype(value.dtype)
    if value.dtype == "bool":
        return generator.random(value.shape) < rng.choice((0.0, 0.1, 0.5, 1.0))
    if not value.floating:
        limits = np.iinfo(dtype)
        low, high = rng.choice(((-3, 4), (-100, 100), (limits.min, limits.max)))
        low, high = max(low, int(limits.min)), min(high, int(limits.max))
        return np.asarray(generator.integers(low, high, value.shape, endpoint=True)).astype(dtype)
    kind = rng.choice(("normal", "grid", "equal", "positive"))
    if kind == "equal":
        data = np.full(value.shape, rng.choice((0.0, 1.0, -2.0)))
    elif kind == "grid":  # ties and duplicates
        data = generator.integers(-4, 5, value.shape) / 2.0
    else:
        data = generator.normal(size=value.shape)
        data = np.abs(data) + 0.1 if kind == "positive" else data
    data = np.asarray(data, np.float64)
    if kind != "positive" and rng.random() < 0.6:
        share = rng.choice((0.02, 0.2, 0.6))
        specials = [0.0, -0.0, np.inf, -np.inf, np.nan, float(ml_dtypes.finfo(dtype).max) / 4]
        specials = rng.sample(specials, rng.randint(1, len(specials)))
        where = generator.random(value.shape) < share
        data = np.where(where, generator.choice(specials, value.shape), data)
    return np.asarray(data).astype(dtype)
