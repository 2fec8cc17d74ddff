"""Cases of scatters at known positions: gradients of gathers at them, overlap-add, strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fusionstitch.codegen.generate import CodegenOptions
from tests.codegen.kernel_cases import BF16, F16, add

DRAW = np.random.default_rng(11)


def normal(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(DRAW.standard_normal(dims), dtype)


def integers(*dims: int, dtype: Any = np.int32) -> np.ndarray:
    return np.asarray(DRAW.integers(0, 9, dims), dtype)


def overlap_add(hop: int, size: int | None = None) -> Callable[..., Any]:
    """Frames [batch, n, width] added up `hop` apart, into `size` elements."""

    def fun(frames: jax.Array) -> jax.Array:
        count, width = frames.shape[-2:]
        at = hop * jnp.arange(count)[:, None] + jnp.arange(width)
        total = jnp.zeros((*frames.shape[:-2], size or hop * (count - 1) + width), frames.dtype)
        return total.at[..., at].add(frames * 2) + 1

    return fun


def gradient(fun: Callable[..., Any], *dims: int, dtype: Any = np.float32) -> Callable[..., Any]:
    """What the function of the cotangent of a gather's result is, for an input of these dims."""
    x = jnp.zeros(dims, dtype)
    return lambda up: jax.vjp(fun, x)[1](up)[0] * 3


def patches(size: int, step: int) -> Callable[..., Any]:
    def fun(x: jax.Array) -> jax.Array:
        rows, columns = (
            step * jnp.arange((n - size) // step + 1)[:, None] + jnp.arange(size)
            for n in x.shape[1:3]
        )
        return x[:, rows[:, None, :, None], columns[None, :, None, :]]

    return fun


def flat_patches(x: jax.Array) -> jax.Array:
    """3 x 3 patches of rows of 7 by one index."""
    rows = jnp.arange(4)[:, None] + jnp.arange(3)
    columns = jnp.arange(5)[:, None] + jnp.arange(3)
    return x[:, rows[:, None, :, None] * 7 + columns[None, :, None, :]]


def relative(x: jax.Array) -> jax.Array:
    """Element (i, j) is that for the distance j - i."""
    i = jnp.arange(x.shape[1])
    return x[:, i[:, None], i - i[:, None] + x.shape[1] - 1]


add("ola_quarter", overlap_add(4), normal(3, 9, 16))
add("ola_half", overlap_add(7), normal(2, 5, 14))
add("ola_odd", overlap_add(5), normal(2, 7, 13))
add("ola_apart", overlap_add(9), normal(6, 4))
add("ola_few_long", overlap_add(2), normal(3, 41))
add("ola_many", overlap_add(1), normal(2, 30, 20))
add("ola_many_long", overlap_add(1), normal(18, 67))
add("ola_cut", overlap_add(5, 29), normal(2, 7, 13))
add("ola_bf16", overlap_add(4), normal(3, 9, 16, dtype=BF16))
add("ola_f16", overlap_add(4), normal(3, 9, 16, dtype=F16))
add("ola_s32", overlap_add(4), integers(3, 9, 16))
add("ola_u8", overlap_add(4), integers(3, 9, 16, dtype=np.uint8))
add("ola_f64", overlap_add(4), normal(3, 9, 16, dtype=np.float64))
add("patches_3", gradient(patches(3, 1), 2, 7, 8, 3), normal(2, 5, 6, 3, 3, 3))
add("patches_5_by_2", gradient(patches(5, 2), 1, 11, 12, 2), normal(1, 4, 4, 5, 5, 2))
add("patches_apart", gradient(patches(2, 3), 2, 8, 9, 3), normal(2, 3, 3, 2, 2, 3))
add("patches_flat", gradient(flat_patches, 3, 42), normal(3, 4, 5, 3, 3))
add("gradient_repeats", gradient(lambda x: x[:, jnp.arange(33) // 3], 4, 11), normal(4, 33))
add("gradient_repeats_cut", gradient(lambda x: x[jnp.arange(31) // 3], 11, 5), normal(31, 5))
add(
    "gradient_nearest",
    gradient(lambda x: jax.image.resize(x, (2, 12, 15, 3), "nearest"), 2, 6, 5, 3),
    normal(2, 12, 15, 3),
)
add("gradient_rolled", gradient(lambda x: x[:, (jnp.arange(19) - 5) % 19], 4, 19), normal(4, 19))
add(
    "gradient_clipped",
    gradient(lambda x: x[jnp.clip(jnp.arange(-2, 15), 0, 12)], 13, 3),
    normal(17, 3),
)
add("gradient_reflected", gradient(lambda x: x[jnp.abs(jnp.arange(-3, 12))], 12, 3), normal(15, 3))
add("gradient_relative", gradient(relative, 3, 6, 11), normal(3, 6, 6))
add("gradient_backwards", gradient(lambda x: x[:, 17 - 3 * jnp.arange(6)], 4, 18), normal(4, 6))
add(
    "every_second",
    lambda x, u: jnp.tanh((x * x).at[::2].add(u).at[1::3, ::2].multiply(2.0)),
    normal(9, 7),
    normal(5, 7),
)
add(
    "set_strided",
    lambda x, u: jnp.exp(x).at[jnp.arange(4) * 3 + 1].set(u, mode="drop") + 1,
    normal(9, 5),
    normal(4, 5),
)
add(
    "set_rolled",
    lambda x, u: jnp.exp(x).at[:, (jnp.arange(8) + 3) % 9].set(u) + 1,
    normal(4, 9),
    normal(4, 8),
)
add(
    "set_bf16_strict",
    lambda x, u: jnp.exp(x).at[jnp.arange(4) * 3 + 1].set(u) + 1,
    normal(9, 5, dtype=BF16),
    normal(4, 5, dtype=BF16),
    options=CodegenOptions(numerics="strict"),
)
add(
    "extrema_of_windows",
    lambda x, u: (
        (x - 1).at[2 * jnp.arange(5)[:, None] + jnp.arange(4)].max(u),
        (x + 1).at[2 * jnp.arange(5)[:, None] + jnp.arange(4)].min(u),
    ),
    normal(13),
    normal(5, 4),
)
add(
    "windows_dropped",  # as a whole, though their first elements would have a place
    lambda x, u: (
        lax.scatter_add(
            x * 2,
            (3 * jnp.arange(5) - 2)[:, None],
            u,
            lax.ScatterDimensionNumbers((1,), (), (0,)),
            mode="drop",
        )
        + 1
    ),
    normal(12),
    normal(5, 4),
)
add(
    "batches_at_places",
    jax.vmap(lambda x, u: (x * 2).at[2 * jnp.arange(4)].add(u) + 1, (1, 0)),
    normal(9, 3),
    normal(3, 4),
)


def complex_frames(re: jax.Array, im: jax.Array) -> jax.Array:
    frames = lax.complex(re, im)
    at = 3 * jnp.arange(5)[:, None] + jnp.arange(7)
    total = jnp.zeros((2, 19), jnp.complex64).at[:, at].add(frames)
    return jnp.abs(total)


add("ola_complex", complex_frames, normal(2, 5, 7), normal(2, 5, 7))
