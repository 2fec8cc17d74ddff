"""Stencils of stencils, computed in tiles with a halo. Enters `CASES`; `SIZES` has more sizes of
tiles for some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.settings import CodegenOptions
from tests.codegen.kernel_cases import add

HALO = "// halo"
#: By case, all sizes of its tiles, that of the case first.
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {}


def draw(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    random = np.random.default_rng(dims)
    if np.dtype(dtype).kind in "iu":
        return random.integers(0, 100, dims).astype(dtype)
    return random.standard_normal(dims).astype(np.float32).astype(dtype)


def program(*args: Any, sizes: tuple[tuple[int, ...], ...]) -> Callable[..., Any]:
    """Enters the decorated function, computed in tiles of the first of these sizes."""

    def enter(fun: Callable[..., Any]) -> Callable[..., Any]:
        name = f"halo_{fun.__name__}"
        SIZES[name] = sizes
        add(name, fun, *args, options=in_tiles(sizes[0]), shows=HALO)
        return fun

    return enter


def in_tiles(size: tuple[int, ...]) -> CodegenOptions:
    return CodegenOptions(tuning=Tuning(halo=size))


def shifted(x: Any, *by: int, mode: str = "edge") -> Any:
    """The neighbours of all elements of the last axes, those beyond a border by `mode`."""
    before = x.ndim - len(by)
    pads = [(0, 0)] * before + [(max(-n, 0), max(n, 0)) for n in by]
    y = jnp.pad(x, pads, mode=mode)
    starts = [0] * before + [max(n, 0) for n in by]
    return lax.slice(y, starts, [s + n for s, n in zip(starts, x.shape, strict=True)])


def blurred(x: Any, axis: int, weights: tuple[float, ...] = (0.25, 0.5, 0.25)) -> Any:
    pads = [(len(weights) // 2,) * 2 if d == axis % x.ndim else (0, 0) for d in range(x.ndim)]
    y, n = jnp.pad(x, pads), x.shape[axis]
    return sum(w * lax.slice_in_dim(y, k, k + n, axis=axis) for k, w in enumerate(weights))


def pooled(x: Any, size: int, axes: tuple[int, ...], least: bool = False) -> Any:
    window = [size if d in axes else 1 for d in range(x.ndim)]
    init, join = (np.inf, lax.min) if least else (-np.inf, lax.max)
    return lax.reduce_window(x, init, join, window, [1] * x.ndim, "SAME")


@program(draw(2, 21, 37), sizes=((5, 8), (7, 37), (21, 12)))
def opened(x):
    return x - pooled(pooled(x, 5, (1, 2), least=True), 5, (1, 2))


@program(draw(23, 30), sizes=((8, 8), (6, 30)))
def edges_repeated(x):
    g = jnp.tanh(blurred(blurred(x, 0), 1))
    across = shifted(g, 0, 1) - shifted(g, 0, -1)
    along = shifted(g, 1, 0) - shifted(g, -1, 0)
    size = jnp.sqrt(across * across + along * along + 1e-3)
    return jnp.where(size >= shifted(size, 1, 1), size, shifted(size, -1, -1))


@program(draw(19, 26), sizes=((6, 9),))
def reflected(x):
    y = jnp.sin(shifted(x, 1, -2, mode="reflect") + x)
    z = jnp.exp(shifted(y, -2, 1, mode="symmetric") - y)
    return shifted(z, 1, 1, mode="reflect") * z


@program(draw(24, 33), sizes=((8, 11), (5, 7)))
def periodic(x):
    def change(u, axis):
        slope = jnp.tanh(u - jnp.roll(u, 1, axis)) + jnp.roll(u, -2, axis)
        return slope * slope - jnp.roll(slope, 1, axis)

    y = x - 0.1 * (change(x, 0) + change(x, 1))
    return y - 0.1 * change(y, 1)


@program(draw(3, 40), sizes=((9,), (16,)))
def rows_alone(x):
    y = jnp.exp(x[:, 1:] - x[:, :-1])
    z = y[:, 2:] * y[:, :-2] + y[:, 1:-1]
    return z, y[:, 3:] - x[:, :-4]


@program(draw(9, 10, 12), draw(9, 10, 12), sizes=((4, 5, 6),))
def waves(u, before):
    def spread(x):
        near = sum(
            shifted(x, *np.eye(3, dtype=int)[d] * s, mode="constant")
            for d in range(3)
            for s in (1, -1)
        )
        return near - 6 * x

    after = 2 * u - before + 0.1 * spread(jnp.sin(u))
    return 2 * after - u + 0.1 * spread(jnp.sin(after)), after


@program(draw(2, 18, 20, 3, dtype=np.uint8), sizes=((6, 8),))
def colours_last(image):
    x = image.astype(jnp.float32) / 255
    y = x + 1.5 * (x - blurred(blurred(x, 1), 2))
    z = jnp.maximum(shifted(y, 1, 0, 0), y)
    return jnp.clip(jnp.round(z * 250.3 + 0.17), 0, 255).astype(jnp.uint8)


@program(draw(2, 20, 24), sizes=((6, 7), (10, 24)))
def measured_with_means(x):
    mean = blurred(blurred(x, 1), 2)
    apart = x - mean
    scale = jnp.sqrt(blurred(blurred(apart * apart, 1), 2))
    return apart / jnp.maximum(scale, scale.mean((1, 2), keepdims=True)), scale.max()


@program(draw(17, 19), draw(17, 19), sizes=((5, 6),))
def gradient_of_variation(x, y):
    def loss(x):
        across, along = x[:, 1:] - x[:, :-1], x[1:] - x[:-1]
        smooth = jnp.sqrt(across[:-1] ** 2 + along[:, :-1] ** 2 + 1e-3)
        return (smooth * jnp.tanh(smooth)).sum() + ((x - y) ** 2).sum()

    return jax.value_and_grad(loss)(x)


@program(draw(16, 22), sizes=((7, 9),))
def where_elements_lie(x):
    even = (jnp.arange(16)[:, None] + jnp.arange(22)) % 2 == 0
    y = jnp.where(even, jnp.exp(-x * x), 0.0)
    z = shifted(y, 0, 1, mode="constant") + shifted(y, 1, 0, mode="constant")
    return jnp.where(even, y, jnp.tanh(z)) + shifted(jnp.tanh(z), 1, -1)


@program(draw(18, 14, dtype=np.int32), sizes=((5, 5),))
def whole_numbers(x):
    y = jnp.maximum(shifted(x, 1, 0), x) ^ shifted(x, 0, 1)
    z = (shifted(y, -1, -1) < y).astype(jnp.int32)
    return lax.population_count(z * y + shifted(z, 0, 1)), z.astype(jnp.bool_)


@program(draw(15, 22, dtype=jnp.bfloat16), sizes=((5, 8),))
def sixteen_bits(x):
    y = jnp.exp(blurred(x, 0).astype(jnp.float32)).astype(jnp.bfloat16)
    return blurred(y * y, 1), (shifted(y, 1, 1) + y).T


@program(draw(20, 16), draw(16), draw(20), sizes=((6,), (8,)))
def of_rows_and_columns(x, row, column):
    y = jnp.tanh(x * row + column[:, None])
    z = y[2:] - y[:-2] + row[::-1]
    return z[1:] * z[:-1] + jnp.flip(row) * 2, z.sum(0)
