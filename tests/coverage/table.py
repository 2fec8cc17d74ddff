"""The table of coverage cases: every op a program may hold, over element types and shapes.

`CASES` maps a name to a `Case`; the files named in `FAMILIES` fill it, one per family of ops. A
case is one op with a neighbour after it (`finish`), as a lone op is no pattern.
"""

from __future__ import annotations

import importlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

FAMILIES = (
    "elementwise",
    "types",
    "movement",
    "places",
    "reductions",
    "windows",
    "dots",
    "convolutions",
    "matrices",
    "sorts",
    "complex",
    "random",
    "others",
)

FLOATS = ("float32", "bfloat16", "float16", "float64")
SIGNED = ("int32", "int8", "int16", "int64")
UNSIGNED = ("uint32", "uint8", "uint16", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
EVERY = (*NUMBERS, "bool")
#: Types that exist in 64-bit mode alone.
WIDE = ("float64", "int64", "uint64")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
MORE_FLOAT8 = (
    *("float8_e4m3", "float8_e3m4", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    "float8_e8m0fnu",
)
FOUR_BITS = ("int4", "uint4")

#: Scalars, lone elements, primes, odd tails of vectors, ranks up to 8.
SHAPES: tuple[tuple[int, ...], ...] = (
    *((33,), (5, 13), (), (127,), (4, 100), (1,), (2, 3, 7), (128,), (7, 1, 3), (1021,)),
    *((2, 3, 4, 5), (64, 6), (2, 1, 3, 2, 5), (17, 16), (2, 2, 1, 3, 2, 2), (259,)),
    *((1, 2, 2, 2, 1, 2, 3), (3, 31), (2, 1, 2, 2, 1, 2, 2, 3)),
)


@dataclass(frozen=True)
class Case:
    """`fun(*args)`: one op of `family`, of element type `dtype`, at some shape.

    `op` and `dtype` name the row and column of the page of limits; `wide` ones need 64-bit types.
    """

    name: str
    family: str
    op: str
    dtype: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    wide: bool


CASES: dict[str, Case] = {}
#: Cases of shapes alone, too large to be run.
LARGE: dict[str, Case] = {}


def add(
    family: str,
    op: str,
    dtype: str,
    fun: Callable[..., Any],
    *args: Any,
    note: str = "",
    wide: bool = False,
) -> None:
    """Enters a case; `note` tells cases of one op and type apart."""
    name = "-".join((op, dtype, note or "x".join(map(str, np.shape(args[0]))) or "scalar"))
    assert name not in CASES, name
    wide |= any(leaf.dtype.name in WIDE for leaf in jax.tree.leaves(args))
    CASES[name] = Case(name, family, op, dtype, fun, args, wide)


def add_large(family: str, op: str, fun: Callable[..., Any], *args: Any, sizes: str) -> None:
    """Enters a case of f32 whose arguments are shapes, and which `sizes` describes."""
    name = f"{op}: {sizes}"
    assert name not in LARGE, name
    LARGE[name] = Case(name, family, op, "float32", fun, args, wide=False)


_turn = itertools.cycle(SHAPES)


def shape(least: int = 0) -> tuple[int, ...]:
    """The next shape of at least `least` dimensions."""
    return next(s for s in _turn if len(s) >= least)


def finish(y: Any) -> Any:
    """`y` after an op that it can be fused with, which hides nothing."""
    if y.dtype == bool:
        return lax.select(y, jnp.full(y.shape, 3, jnp.int32), jnp.full(y.shape, 5, jnp.int32))
    if y.dtype.name in FLOAT8 + MORE_FLOAT8:
        return y.astype(jnp.float32) * 3.0
    if jnp.issubdtype(y.dtype, jnp.inexact):
        return lax.neg(y)
    return lax.bitwise_xor(y, jnp.full(y.shape, 5, y.dtype))


def finished(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun` with `finish` after each of its results."""
    return lambda *args: jax.tree.map(finish, fun(*args))


def draw(dims: Sequence[int], dtype: str, low: float = -4.0, high: float = 4.0) -> np.ndarray:
    """Random values: floats and small integers of [low, high), coin tosses."""
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    rng = np.random.default_rng(zlib.crc32(repr((tuple(dims), dtype, low, high)).encode()))
    if dtype == "bool":
        return np.asarray(rng.random(dims) < 0.5)
    if dtype in INTEGERS + FOUR_BITS:
        if dtype[0] == "u":
            low = max(low, 0)
        return np.asarray(rng.integers(int(low), int(high), dims, endpoint=True)).astype(kind)
    return np.asarray(rng.uniform(low, high, dims)).astype(kind)


def any_bits(dims: Sequence[int], dtype: str, seed: int = 0) -> np.ndarray:
    """Integers of the whole range of their type, the extremes and small ones among them."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *dims])
    value = rng.integers(limits.min, limits.max, dims, dtype=dtype, endpoint=True)
    edges = np.array([0, 1, limits.max, limits.min, 2, limits.max - 1], dtype)
    pick = rng.integers(0, 12, dims)
    return np.asarray(np.where(pick < 6, edges[pick % 6], value))


def cases() -> dict[str, Case]:
    """The whole table."""
    for family in FAMILIES:
        importlib.import_module(f"tests.coverage.{family}")
    return CASES


def large_cases() -> dict[str, Case]:
    """What is planned for its sizes and never run."""
    importlib.import_module("tests.coverage.sizes")
    return LARGE


def groups(most: int = 36) -> Iterator[tuple[str, list[Case]]]:
    """The table in pieces to be compiled as one program each: of one family and one width."""
    table = cases().values()
    for family in FAMILIES:
        for wide in (False, True):
            found = [c for c in table if c.family == family and c.wide is wide]
            count = -(-len(found) // most)
            for number in range(count):
                name = f"{family}{'-64' if wide else ''}-{number}"
                yield name, found[number::count]
