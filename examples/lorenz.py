"""The Lorenz system under classical Runge-Kutta: a loop of tiny elementwise ops."""

from __future__ import annotations

import jax
from common import Random, Workload, size

SIGMA, RHO, BETA = 10.0, 28.0, 8.0 / 3.0
STEP = 0.01

Point = tuple[jax.Array, jax.Array, jax.Array]


def slope(point: Point) -> Point:
    x, y, z = point
    return SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z


def move(point: Point, along: Point, by: float) -> Point:
    x, y, z = (p + by * d for p, d in zip(point, along, strict=True))
    return x, y, z


def runge_kutta(point: Point) -> Point:
    k1 = slope(point)
    k2 = slope(move(point, k1, STEP / 2))
    k3 = slope(move(point, k2, STEP / 2))
    k4 = slope(move(point, k3, STEP))
    x, y, z = (
        p + STEP / 6 * (a + 2 * b + 2 * c + d)
        for p, a, b, c, d in zip(point, k1, k2, k3, k4, strict=True)
    )
    return x, y, z


def scan() -> Workload:
    """200 steps of 1024 systems f32 (small: 20 steps of 64)."""
    draw = Random()
    steps, systems = size((200, 1024), (20, 64))
    x, y, z = (draw.uniform(systems, low=-10, high=10) for _ in range(3))

    def integrate(point: Point) -> Point:
        return jax.lax.scan(lambda p, _: (runge_kutta(p), None), point, length=steps)[0]

    return integrate, ((x, y, z),)
