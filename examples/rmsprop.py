"""RMSProp, alone over 100 small tensors: many independent tiny ops."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from common import Random, Workload, size

T = TypeVar("T")


def rmsprop_init(params: T) -> T:
    """Mean squares, which start at one in TensorFlow."""
    return jax.tree.map(jnp.ones_like, params)


def rmsprop_update(
    params: T, squares: T, grads: T, *, rate: float, decay: float = 0.9, eps: float = 1e-10
) -> tuple[T, T]:
    """One step in TensorFlow's formulation, epsilon inside the root."""
    squares = jax.tree.map(lambda s, g: decay * s + (1.0 - decay) * g * g, squares, grads)
    params = jax.tree.map(lambda p, s, g: p - rate * g / jnp.sqrt(s + eps), params, squares, grads)
    return params, squares


def step(state: tuple[Any, Any], grads: Any) -> tuple[Any, Any]:
    params, squares = state
    return rmsprop_update(params, squares, grads, rate=0.001)


def rmsprop100() -> Workload:
    """100 tensors of 64, 72, ..., 856 elements (small: the first 10)."""
    draw = Random()
    lengths = range(64, size(864, 144), 8)
    params = [draw.normal(n) for n in lengths]
    grads = [draw.normal(n) for n in lengths]
    return step, ((params, rmsprop_init(params)), grads)
