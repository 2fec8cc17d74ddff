"""What a template draws from a seed: sizes, types, axes and layouts, arguments made on demand."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

T = TypeVar("T")
#: What is larger is cut down in programs of tests.
SMALL = 24


@dataclass(frozen=True)
class Leaf:
    """An array that is not made yet: its shape and dtype, and how its values are drawn."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    seed: tuple[int, ...]
    values: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def make(self) -> np.ndarray:
        return self.values(np.random.default_rng(self.seed), self.shape).astype(self.dtype)


@dataclass(frozen=True)
class Layout:
    """Where the channels of images lie: after the batch (`first`), or in the minor axis."""

    first: bool

    def shape(self, batch: int, channels: int, *spatial: int) -> tuple[int, ...]:
        return (batch, channels, *spatial) if self.first else (batch, *spatial, channels)

    @property
    def channels(self) -> int:
        """The axis of the channels."""
        return 1 if self.first else -1

    @property
    def height_and_width(self) -> tuple[int, int]:
        """The axes of an image's rows and columns."""
        return (2, 3) if self.first else (1, 2)

    def per_channel(self, values: Any) -> Any:
        """A vector with one value a channel, to be broadcast over images."""
        return values[:, None, None] if self.first else values


class Draw:
    """Draws for one template: equal seeds and names give equal programs, `small` ones for tests.

    What has a shape is a `Leaf`; its values depend on the seed, the name and its number alone. The
    first size that a template draws, mostly its batch, is `times` as large.
    """

    def __init__(self, seed: int, name: str, small: bool = False, times: int = 1):
        self.small = small
        self._times = times
        self._seed = (seed, zlib.crc32(name.encode()))
        self._random = np.random.default_rng(self._seed)
        self._leaves = 0

    # ---- choices ----

    def size(self, low: int, high: int, multiple_of: int = 1, least: int = 1) -> int:
        """A multiple from `low` to `high`, small ones as likely as large ones of the same ratio.

        Programs for tests get a smaller one, of at least `least`.
        """
        drawn = math.exp(self._random.uniform(math.log(low), math.log(high)))
        units = min(max(round(drawn / multiple_of), -(-low // multiple_of)), high // multiple_of)
        if self.small and units * multiple_of > SMALL:
            units = max((9 + units % 15) // multiple_of, -(-least // multiple_of), 1)
        times, self._times = self._times, 1
        return units * multiple_of * times

    def odd_size(self, low: int, high: int, least: int = 1) -> int:
        """An odd size."""
        return self.size(low, high, 1, least) | 1

    def choice(self, *values: T) -> T:
        return values[int(self._random.integers(len(values)))]

    def dtype(self, *names: str) -> np.dtype[Any]:
        """One of the types; without names a float of 32 or 16 bits."""
        return jnp.dtype(self.choice(*(names or ("float32", "float32", "bfloat16", "float16"))))

    def axis(self, rank: int) -> int:
        """An axis of an array of this rank."""
        return int(self._random.integers(rank))

    def layout(self) -> Layout:
        return Layout(self.choice(True, False))

    def number(self, low: float, high: float) -> float:
        """A hyperparameter, to three digits."""
        return float(f"{self._random.uniform(low, high):.3g}")

    # ---- arguments ----

    def leaf(
        self,
        shape: Sequence[int],
        dtype: Any,
        values: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray],
    ) -> Leaf:
        """An array with the values that `values(generator, shape)` draws."""
        self._leaves += 1
        return Leaf(tuple(shape), jnp.dtype(dtype), (*self._seed, self._leaves), values)

    def normal(
        self, *shape: int, dtype: Any = "float32", scale: float = 1, mean: float = 0
    ) -> Leaf:
        return self.leaf(
            shape,
            dtype,
            lambda r, s: r.standard_normal(s, np.float32) * np.float32(scale) + np.float32(mean),
        )

    def weight(self, *shape: int, dtype: Any = "float32") -> Leaf:
        """A matrix whose product keeps the variance: the axis before the last one is summed."""
        return self.normal(*shape, dtype=dtype, scale=shape[-2] ** -0.5)

    def uniform(self, *shape: int, low: float = 0, high: float = 1, dtype: Any = "float32") -> Leaf:
        return self.leaf(
            shape,
            dtype,
            lambda r, s: r.random(s, np.float32) * np.float32(high - low) + np.float32(low),
        )

    def integers(self, *shape: int, high: int, low: int = 0, dtype: Any = "int32") -> Leaf:
        """Integers from `low` to below `high`."""
        return self.leaf(shape, dtype, lambda r, s: r.integers(low, high, s, np.int64))

    def bits(self, *shape: int) -> Leaf:
        """Words of 32 random bits."""
        return self.integers(*shape, high=2**32, dtype="uint32")

    def segments(self, count: int, segments: int) -> Leaf:
        """Sorted numbers of segments, of very different lengths."""
        return self.leaf(
            (count,), "int32", lambda r, s: np.sort((segments * r.random(s) ** 1.5).astype(int))
        )

    def popular(self, *shape: int, high: int) -> Leaf:
        """Numbers below `high`, of which low ones are far more frequent: words, items, hubs."""
        return self.leaf(shape, "int32", lambda r, s: (high * r.random(s) ** 3).astype(int))

    def mask(self, *shape: int, share: float = 0.8) -> Leaf:
        """Booleans, this share of them true."""
        return self.leaf(shape, "bool", lambda r, s: r.random(s) < share)

    def lengths(self, batch: int, longest: int) -> Leaf:
        """Lengths of padded sequences, from a third of the longest."""
        return self.integers(batch, low=max(1, longest // 3), high=longest + 1)

    def key(self) -> Leaf:
        """The words of a key of jax.random."""
        return self.bits(2)

    def layers(self, *widths: int, dtype: Any = "float32") -> list[dict[str, Leaf]]:
        """Weights and biases of dense layers."""
        return [
            {"w": self.weight(a, b, dtype=dtype), "b": self.normal(b, dtype=dtype, scale=0.1)}
            for a, b in itertools.pairwise(widths)
        ]
