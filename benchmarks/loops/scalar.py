"""Recurrences of a few numbers with very many steps, and points that each take their own time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw

#: XLA launches kernels for each step from the host: it runs fewer of them, and its time is scaled.
_FEWER = {"steps": 100_000}


@loop("block", xla=_FEWER, scale=100.0, steps=40)
def logistic_map(steps: int = 10_000_000) -> Program:
    """A chaotic map from one number."""

    def run(x: Any, r: Any) -> Any:
        return lax.fori_loop(0, steps, lambda _, x: r * x * (1.0 - x), x)

    return run, (np.float32(0.3), np.float32(3.2))


@loop("block", xla=_FEWER, scale=100.0, steps=40)
def congruential(steps: int = 10_000_000) -> Program:
    """A linear congruential generator, as a scan without outputs."""

    def run(seed: Any) -> Any:
        def step(x: Any, _: Any) -> tuple[Any, None]:
            return x * jnp.uint32(1664525) + jnp.uint32(1013904223), None

        return lax.scan(step, seed, None, length=steps)[0]

    return run, (np.uint32(12345),)


@loop("block", xla=_FEWER, scale=100.0, steps=40)
def leaky_sum(steps: int = 10_000_000) -> Program:
    """The recurrence of three numbers with a branch by select."""

    def run(start: Any) -> Any:
        def step(n: Any, carry: Any) -> Any:
            level, fired, rest = carry
            level = 0.95 * level + 0.1 * (1.0 + (n % 7))
            fires = level > 4.0
            return jnp.where(fires, 0.0, level), fired + fires, jnp.maximum(rest - 1, 0)

        return lax.fori_loop(0, steps, step, (start, 0, 5))

    return run, (np.float32(0.5),)


@loop("block", below=30)
def collatz(below: int = 837_800) -> Program:
    """The number of steps from one start to one: a while whose end only the data knows."""

    def run(n: Any) -> Any:
        def step(carry: Any) -> Any:
            n, count = carry
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        return lax.while_loop(lambda carry: carry[0] != 1, step, (n, 0))[1]

    return run, (np.uint32(below - 1),)


@loop("rows", numbers=20)
def collatz_all(numbers: int = 100_000) -> Program:
    """The same for many starts under vmap."""

    def one(n: Any) -> Any:
        def step(carry: Any) -> Any:
            n, count = carry
            return jnp.where(n & 1 == 0, n >> 1, 3 * n + 1), count + 1

        return lax.while_loop(lambda carry: carry[0] > 1, step, (n, 0))[1]

    return jax.vmap(one), (np.arange(1, numbers + 1, dtype=np.uint32),)


@loop("rows", width=8, height=6, most=10)
def mandelbrot(width: int = 1024, height: int = 768, most: int = 200) -> Program:
    """When each point leaves, a while for all of the picture."""

    def run(left: Any, right: Any) -> Any:
        x = jnp.linspace(left, right, width)
        y = jnp.linspace(-1.1, 1.1, height)[:, None]
        cx, cy = jnp.broadcast_arrays(x, y)

        def go_on(carry: Any) -> Any:
            zx, zy, _, n = carry
            return jnp.any(zx * zx + zy * zy < 4.0) & (n < most)

        def step(carry: Any) -> Any:
            zx, zy, count, n = carry
            inside = zx * zx + zy * zy < 4.0
            new_x, new_y = zx * zx - zy * zy + cx, 2 * zx * zy + cy
            zx, zy = jnp.where(inside, new_x, zx), jnp.where(inside, new_y, zy)
            return zx, zy, count + inside, n + 1

        start = jnp.zeros_like(cx), jnp.zeros_like(cy), jnp.zeros(cx.shape, jnp.int32), 0
        return lax.while_loop(go_on, step, start)[2]

    return run, (np.float32(-2.2), np.float32(0.8))


@loop("rows", rows=3, width=8)
def mapped(rows: int = 512, width: int = 1024) -> Program:
    """jax.lax.map: a robust mean of each row, which stays a loop over rows."""

    def robust(x: Any) -> Any:
        mean = x.mean()
        near = jnp.exp(-0.5 * (x - mean) ** 2)
        return jnp.sum(near * x) / jnp.sum(near)

    return lambda x: lax.map(robust, x), (Draw(111).normal(rows, width),)
