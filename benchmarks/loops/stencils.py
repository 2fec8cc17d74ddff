"""Grids: every point reads its neighbours, so that no axis is independent."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


def _laplace(u: Any) -> Any:
    return sum(jnp.roll(u, s, a) for s in (1, -1) for a in (0, 1)) - 4 * u


@loop("grid", donated=1, side=9, steps=3)
def heat(side: int = 512, steps: int = 500) -> Program:
    """Heat with fixed borders; the field is donated."""

    def run(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            return u.at[1:-1, 1:-1].add(0.2 * (around - 4 * u[1:-1, 1:-1]))

        return lax.fori_loop(0, steps, step, u)

    return run, (Draw(71).uniform(side, side),)


@loop("grid", side=8, steps=3)
def gray_scott(side: int = 256, steps: int = 1000) -> Program:
    """Two reacting fields that wrap around."""

    def run(u: Any, v: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, None]:
            u, v = carry
            meet = u * v * v
            u = u + 0.16 * _laplace(u) - meet + 0.035 * (1 - u)
            return (u, v + 0.08 * _laplace(v) + meet - 0.1 * v), None

        return lax.scan(step, (u, v), None, length=steps)[0]

    draw = Draw(72)
    return run, (draw.uniform(side, side, low=0.9), draw.uniform(side, side, high=0.2))


@loop("grid", side=8, steps=2)
def fisher(side: int = 256, steps: int = 200) -> Program:
    """Growth that spreads, by Runge-Kutta steps of fourth order: a stencil of a stencil of one."""

    def slope(u: Any) -> Any:
        return 0.4 * _laplace(u) + u * (1 - u) * jnp.exp(-0.5 * u)

    def run(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            a = slope(u)
            b = slope(u + 0.1 * a)
            c = slope(u + 0.1 * b)
            return u + 0.2 / 6 * (a + 2 * b + 2 * c + slope(u + 0.2 * c))

        return lax.fori_loop(0, steps, step, u)

    return run, (Draw(79).uniform(side, side),)


@loop("block", points=16, steps=3)
def burgers(points: int = 4096, steps: int = 500) -> Program:
    """A shock on a ring, by Runge-Kutta steps of third order."""

    def forward(u: Any, part: float) -> Any:
        left, right = jnp.roll(u, 1), jnp.roll(u, -1)
        return u + part * (0.1 * (left + right - 2 * u) - 0.25 * (right**2 - left**2))

    def run(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            a = 0.75 * u + 0.25 * forward(forward(u, 0.4), 0.4)
            return u / 3 + 2 / 3 * forward(a, 0.4)

        return lax.fori_loop(0, steps, step, u)

    return run, (Draw(80).uniform(points),)


@loop("grid", side=8, steps=3)
def wave(side: int = 384, steps: int = 400) -> Program:
    """The wave equation with a source, read at a row of microphones every step."""

    def run(speed: Any, source: Any) -> Any:
        def step(carry: Any, push: Any) -> tuple[Any, Any]:
            before, now = carry
            after = 2 * now - before + speed * _laplace(now)
            after = after.at[side // 2, side // 2].add(push)
            return (now, after), after[side // 4]

        zero = jnp.zeros((side, side))
        return lax.scan(step, (zero, zero), source)[1]

    draw = Draw(73)
    return run, (draw.uniform(side, side, low=0.05, high=0.2), draw.normal(steps))


@loop("grid", side=8, steps=3)
def life(side: int = 512, steps: int = 500) -> Program:
    """The game of life in bytes, on a torus."""

    def run(cells: Any) -> Any:
        def step(_: Any, cells: Any) -> Any:
            rows = cells + jnp.roll(cells, 1, 0) + jnp.roll(cells, -1, 0)
            near = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - cells
            return ((near == 3) | ((cells == 1) & (near == 2))).astype(cells.dtype)

        return lax.fori_loop(0, steps, step, cells)

    return run, (Draw(74).integers(side, side, high=2, dtype="uint8"),)


@loop("block", width=16, steps=4)
def cellular_automaton(width: int = 1024, steps: int = 1024) -> Program:
    """Rule 110 from a row of cells; the whole picture is kept."""

    def run(cells: Any, rule: Any) -> Any:
        def step(cells: Any, _: Any) -> tuple[Any, Any]:
            code = 4 * jnp.roll(cells, 1) + 2 * cells + jnp.roll(cells, -1)
            cells = rule[code]
            return cells, cells

        return lax.scan(step, cells, None, length=steps)[1]

    draw = Draw(75)
    rule = draw.integers(8, high=2) * 0
    rule[[1, 2, 3, 5, 6]] = 1
    return run, (draw.integers(width, high=2), rule)


@loop("grid", side=8)
def jacobi(side: int = 256) -> Program:
    """Jacobi sweeps of a Poisson problem until the change is small."""

    def run(f: Any) -> Any:
        def go_on(carry: Any) -> Any:
            return (carry[1] > 1e-3) & (carry[2] < 500)

        def step(carry: Any) -> Any:
            u, _, n = carry
            p = jnp.pad(u, 1)
            new = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - f)
            return new, jnp.abs(new - u).max(), n + 1

        return lax.while_loop(go_on, step, (jnp.zeros_like(f), jnp.inf, 0))

    return run, (Draw(76).normal(side, side),)


@loop("grid", side=8, sweeps=3)
def red_black(side: int = 256, sweeps: int = 200) -> Program:
    """Gauss-Seidel by colours with over-relaxation."""

    def run(f: Any) -> Any:
        i, j = jnp.arange(side)[:, None], jnp.arange(side)
        red = (i + j) % 2 == 0

        def half(u: Any, colour: Any) -> Any:
            p = jnp.pad(u, 1)
            new = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - f)
            return jnp.where(colour, u + 1.5 * (new - u), u)

        return lax.fori_loop(0, sweeps, lambda _, u: half(half(u, red), ~red), jnp.zeros_like(f))

    return run, (Draw(77).normal(side, side),)
