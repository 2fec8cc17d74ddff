"""Seeded inputs of the programs, made by NumPy on the host so that no JAX program is compiled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

#: What a program's maker returns: a function of arrays and what it is called with.
Program = tuple[Callable[..., Any], tuple[Any, ...]]


class Draw:
    """Random arrays, the same ones in every process."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0, dtype: Any = jnp.float32) -> np.ndarray:
        """Normal values around zero."""
        values = self._random.standard_normal(shape, np.float32)
        return (values * np.float32(scale)).astype(dtype)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: Any = jnp.float32
    ) -> np.ndarray:
        """Values in [low, high)."""
        values = self._random.random(shape, np.float32)
        return (low + np.float32(high - low) * values).astype(dtype)

    def integers(self, *shape: int, low: int = 0, high: int, dtype: Any = np.int32) -> np.ndarray:
        """Whole numbers in [low, high)."""
        return self._random.integers(low, high, shape, dtype)

    def chance(self, share: float, *shape: int) -> np.ndarray:
        """Truths, this share of them true."""
        return self._random.random(shape, np.float32) < share

    def weight(self, rows: int, columns: int, dtype: Any = jnp.float32) -> np.ndarray:
        """A matrix that keeps the size of what it is multiplied with."""
        return self.normal(rows, columns, scale=rows**-0.5, dtype=dtype)

    def layers(self, *widths: int) -> list[dict[str, np.ndarray]]:
        """Weights and biases of dense layers."""
        return [
            {"w": self.weight(rows, columns), "b": self.normal(columns, scale=0.1)}
            for rows, columns in itertools.pairwise(widths)
        ]

    def key(self) -> np.ndarray:
        """The words of a threefry key."""
        return self._random.integers(0, 2**32, 2, np.uint32)
