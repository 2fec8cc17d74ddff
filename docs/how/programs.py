"""The small programs of these pages. Each function without arguments is a target of the commands:
it returns a function and the shapes to plan it for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Target = tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]


def f32(*dims: int) -> jax.ShapeDtypeStruct:
    """An f32 array of which nobody needs the elements."""
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def normed(x: jax.Array) -> jax.Array:
    """Softmax of standardized rows."""
    return jax.nn.softmax(jax.nn.standardize(x))


def thread() -> Target:
    """Rows that one thread holds."""
    return normed, (f32(1 << 20, 4),)


def warp() -> Target:
    """Rows of a warp each."""
    return normed, (f32(65_536, 128),)


def several_warps() -> Target:
    """Rows of sixteen warps each."""
    return normed, (f32(4096, 8192),)


def fitted(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean square error of a perceptron with one hidden layer."""
    w, b, v, c = params
    return jnp.mean((jnp.tanh(x @ w + b) @ v + c - y) ** 2)


def layers() -> Target:
    """Layers of rows, with the gradients of all their matrices."""
    params = f32(9, 64), f32(64), f32(64, 5), f32(5)
    return jax.value_and_grad(fitted), (params, f32(1 << 18, 9), f32(1 << 18, 5))


def cluster() -> Target:
    """Rows that outgrow a block."""
    return normed, (f32(64, 131_072),)


def grid() -> Target:
    """Fewer rows than multiprocessors."""
    return normed, (f32(4, 1 << 20),)


def balanced(scores: jax.Array) -> jax.Array:
    """Softmax of each row of a matrix, then each column divided by its sum."""
    rows = jax.nn.softmax(scores)
    return rows / rows.sum(1, keepdims=True)


def block() -> Target:
    """Matrices whose rows and columns are summed."""
    return balanced, (f32(4096, 64, 64),)


def projected(x: jax.Array, y: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two chains, each with a large product, which XLA keeps."""
    a = jax.nn.softmax(x)
    b = jax.nn.softmax((a - a.mean(0)) @ w)
    return b, jax.nn.softmax(jax.nn.softmax(y) @ w)


def cycle() -> Target:
    """Kernels that would wait for each other."""
    return projected, (f32(1024, 1024), f32(1024, 1024), f32(1024, 1024))


def heat(u: jax.Array) -> jax.Array:
    """A hundred steps of the heat equation on rings, a ring along each row."""

    def step(u: jax.Array, _: None) -> tuple[jax.Array, None]:
        return u + 0.1 * (jnp.roll(u, 1, -1) - 2.0 * u + jnp.roll(u, -1, -1)), None

    return jax.lax.scan(step, u, length=100)[0]


def rows() -> Target:
    """Rings that one thread holds."""
    return heat, (f32(16_384, 8),)


def dealt() -> Target:
    """Rings that one block holds, and enough of them."""
    return heat, (f32(256, 1024),)


def one_block() -> Target:
    """One ring that one block holds."""
    return heat, (f32(1024),)


def whole_grid() -> Target:
    """One ring that no block holds."""
    return heat, (f32(1 << 20),)
