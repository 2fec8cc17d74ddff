"""What the examples share: which size they run at, and random inputs.

Every target has its real size and a small one for machines without a GPU. The environment variable
FUSIONSTITCH_EXAMPLE_SCALE picks: "full" or "small". Unset, a GPU means full and a CPU means small.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")
Scale = Literal["full", "small"]

#: What a target returns: a function and its arguments. A training step's first argument is its
#: state and so is its first result, so that steps can be chained and the state donated.
Workload = tuple[Callable[..., Any], tuple[Any, ...]]


def scale() -> Scale:
    """The size the examples run at on this machine."""
    asked = os.environ.get("FUSIONSTITCH_EXAMPLE_SCALE", "")
    sizes: dict[str, Scale] = {"full": "full", "small": "small"}
    if not asked:
        return "full" if jax.default_backend() == "gpu" else "small"
    if asked not in sizes:
        raise ValueError(f"FUSIONSTITCH_EXAMPLE_SCALE is {asked!r}: set it to full or small.")
    return sizes[asked]


def size(full: T, small: T) -> T:
    """`full` or `small`, by `scale()`."""
    return full if scale() == "full" else small


class Random:
    """Reproducible inputs, drawn with NumPy so that no JAX program is compiled for them."""

    def __init__(self, seed: int = 0) -> None:
        self._draw = np.random.default_rng(seed)

    def normal(self, *shape: int, dtype: jax.typing.DTypeLike = jnp.float32) -> jax.Array:
        """Standard normal values."""
        return jnp.asarray(self._draw.standard_normal(shape, np.float32).astype(dtype))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> jax.Array:
        """f32 values in [low, high)."""
        return jnp.asarray(low + (high - low) * self._draw.random(shape, np.float32))

    def integers(self, *shape: int, low: int = 0, high: int) -> jax.Array:
        """s32 values in [low, high)."""
        return jnp.asarray(self._draw.integers(low, high, shape, np.int32))

    def glorot(self, rows: int, columns: int) -> jax.Array:
        """f32[rows, columns], uniform within sqrt(6 / (rows + columns))."""
        limit = float(np.sqrt(6.0 / (rows + columns)))
        return self.uniform(rows, columns, low=-limit, high=limit)

    def classes(self, count: int, classes: int) -> jax.Array:
        """One-hot f32[count, classes]."""
        return jnp.asarray(
            np.eye(classes, dtype=np.float32)[self._draw.integers(0, classes, count)]
        )


def cross_entropy(logits: jax.Array, one_hot: jax.Array) -> jax.Array:
    """Mean softmax cross-entropy of [batch, classes] logits."""
    return -jnp.mean(jnp.sum(one_hot * jax.nn.log_softmax(logits), axis=1))


def sgd(params: T, grads: T, rate: float) -> T:
    """Plain gradient descent over a pytree."""
    return jax.tree.map(lambda p, g: p - rate * g, params, grads)
