"""What grown graphs are made of: typed values, element types, extents."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from tests.graphs import Builder

FLOATS = ("f32", "bf16", "f64", "f16")
INTEGERS = ("s32", "s8", "u8", "u32", "s64", "s16", "u16", "u64")
DTYPES = (
    *("f32", "f32", "f32", "bf16", "s32", "pred", "f32"),
    *("f64", "s8", "u8", "u32", "s64", "f16"),
)
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 100, 128)
LONG = (257, 512, 1000, 1024, 2048, 5000)
#: Largest number of elements of a value, by how large the graph may be.
SIZES = (600, 4096, 20_000, 140_000)
#: Largest magnitude of a float; sums and products beyond it are scaled down.
BOUND = 256.0
INTEGER_OPS = (
    *("add", "subtract", "multiply", "maximum", "minimum", "and", "xor", "divide", "remainder"),
)
COMPARISONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


@dataclass(frozen=True)
class Value:
    """An op, whether its floats have no rounding error, and a bound of their magnitude."""

    op: Op
    exact: bool = True
    bound: float = 2.0

    @property
    def dtype(self) -> str:
        return self.op.dtype

    @property
    def dims(self) -> tuple[int, ...]:
        return self.op.dims


@dataclass(frozen=True, eq=False)
class Grown:
    """A graph, and the seed of values for its parameters."""

    graph: Graph
    seed: int

    @functools.cached_property
    def args(self) -> tuple[np.ndarray, ...]:
        return tuple(
            drawn(p.dims, p.dtype, self.seed + n) for n, p in enumerate(self.graph.parameters)
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """A failure prints the source of its graph: of its batch Hypothesis prints nothing."""
        printer.text(f"Grown({len(self.graph)} ops)")


class TypedBuilder(Builder):
    """Constants of every type."""

    def constant(self, value: Any, dtype: str = "f32") -> Op:
        array = np.asarray(value).astype(NUMPY_DTYPES[dtype])
        return self.op("constant", Shape(dtype, array.shape), value=array)


def drawn(dims: Sequence[int], dtype: str, seed: int) -> np.ndarray:
    """Small multiples of 1/4, small integers, or coin tosses."""
    rng = np.random.default_rng([seed, *dims])
    if dtype == "pred":
        return rng.random(dims) < 0.5
    if dtype in INTEGERS:
        low = 0 if dtype[0] == "u" else -9
        return np.asarray(rng.integers(low, low + 19, dims)).astype(NUMPY_DTYPES[dtype])
    return np.asarray(rng.integers(-8, 9, dims) / 4).astype(NUMPY_DTYPES[dtype])
