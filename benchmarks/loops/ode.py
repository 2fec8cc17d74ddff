"""Ordinary differential equations: ensembles with fixed steps, and with steps of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


def runge_kutta(slope: Callable[[Any], Any], y: Any, h: Any) -> Any:
    """One classical step of the fourth order."""
    k1 = slope(y)
    k2 = slope(y + 0.5 * h * k1)
    k3 = slope(y + 0.5 * h * k2)
    k4 = slope(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


@loop("rows", systems=8, steps=5)
def lorenz(systems: int = 1024, steps: int = 200) -> Program:
    """An ensemble of Lorenz systems; the trajectory is kept."""

    def slope(s: Any) -> Any:
        x, y, z = s[:, 0], s[:, 1], s[:, 2]
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z], axis=1)

    def run(start: Any) -> Any:
        def step(s: Any, _: Any) -> tuple[Any, Any]:
            s = runge_kutta(slope, s, 0.01)
            return s, s

        return lax.scan(step, start, None, length=steps)[1]

    return run, (Draw(1).uniform(systems, 3, low=-10, high=10),)


@loop("rows", systems=9, steps=5)
def van_der_pol(systems: int = 4096, steps: int = 1000) -> Program:
    """One damping per system, under vmap."""

    def run(start: Any, damping: Any) -> Any:
        def one(y: Any, mu: Any) -> Any:
            def slope(y: Any) -> Any:
                return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

            return lax.fori_loop(0, steps, lambda _, y: runge_kutta(slope, y, 0.01), y)

        return jax.vmap(one)(start, damping)

    draw = Draw(2)
    return run, (draw.normal(systems, 2), draw.uniform(systems, low=0.1, high=3.0))


@loop("rows", systems=8, steps=6)
def lotka_volterra(systems: int = 2048, steps: int = 500) -> Program:
    """Predators and prey, every state kept, in two arrays."""

    def run(prey: Any, hunters: Any, rates: Any) -> Any:
        a, b, c, d = rates

        def slope(s: Any) -> Any:
            x, y = s
            return jnp.stack([a * x - b * x * y, c * x * y - d * y])

        def step(s: Any, _: Any) -> tuple[Any, Any]:
            s = runge_kutta(slope, s, 0.02)
            return s, (s[0], s[1])

        return lax.scan(step, jnp.stack([prey, hunters]), None, length=steps)

    draw = Draw(3)
    return run, (
        draw.uniform(systems, low=0.5, high=2.0),
        draw.uniform(systems, low=0.5, high=2.0),
        draw.uniform(4, systems, low=0.5, high=1.5),
    )


@loop("grid", size=24, delay=5, steps=8)
def delayed_field(size: int = 65536, delay: int = 64, steps: int = 200) -> Program:
    """Mackey-Glass units on a ring that diffuse: the past is a ring buffer of fields."""

    def run(past: Any, start: Any) -> Any:
        def step(i: Any, carry: Any) -> Any:
            past, x = carry
            before = lax.dynamic_index_in_dim(past, i % delay, keepdims=False)
            near = jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1)
            new = x + 0.1 * (0.2 * before / (1 + before**10) - 0.1 * x + 0.5 * near)
            return lax.dynamic_update_index_in_dim(past, x, i % delay, 0), new

        return lax.fori_loop(0, steps, step, (past, start))[1]

    draw = Draw(140)
    return run, (draw.uniform(delay, size, high=1.2), draw.uniform(size, high=1.2))


@loop("rows", regions=7, days=5)
def epidemic(regions: int = 3000, days: int = 365) -> Program:
    """SIR with a contact rate by day and region; the loss is the distance to what was seen."""

    def run(contact: Any, recovery: Any, seen: Any) -> Any:
        def step(state: Any, given: Any) -> tuple[Any, Any]:
            s, i, r = state
            rate, cases = given
            new = rate * s * i
            healed = recovery * i
            state = (s - new, i + new - healed, r + healed)
            return state, (new - cases) ** 2

        start = (jnp.full(regions, 0.99), jnp.full(regions, 0.01), jnp.zeros(regions))
        state, errors = lax.scan(step, start, (contact, seen))
        return state, errors.sum(axis=0)

    draw = Draw(4)
    return run, (
        draw.uniform(days, regions, low=0.1, high=0.4),
        draw.uniform(regions, low=0.05, high=0.1),
        draw.uniform(days, regions, high=0.01),
    )


@loop("rows", systems=6, steps=4)
def lorenz_adjoint(systems: int = 1024, steps: int = 100) -> Program:
    """The gradient of a loss of the trajectories for starts and parameters: a reversed scan."""

    def loss(start: Any, parameters: Any, wanted: Any) -> Any:
        sigma, rho, beta = parameters

        def slope(s: Any) -> Any:
            x, y, z = s
            return jnp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])

        def step(s: Any, want: Any) -> tuple[Any, Any]:
            s = runge_kutta(slope, s, 0.01)
            return s, jnp.mean((s - want) ** 2)

        return lax.scan(step, start, wanted)[1].mean()

    draw = Draw(5)
    parameters = np.array([10.0, 28.0, 8 / 3], np.float32)
    wanted = draw.normal(steps, 3, systems)
    return jax.value_and_grad(loss, (0, 1)), (draw.normal(3, systems), parameters, wanted)


#: Bogacki and Shampine's pair of the orders three and two.
def _bogacki_shampine(slope: Callable[[Any], Any], y: Any, h: Any) -> tuple[Any, Any]:
    k1 = slope(y)
    k2 = slope(y + 0.5 * h * k1)
    k3 = slope(y + 0.75 * h * k2)
    new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
    k4 = slope(new)
    return new, h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)


@loop("rows", systems=8, most=30)
def adaptive(systems: int = 4096, most: int = 2000) -> Program:
    """Adaptive Runge-Kutta under vmap: a while per system, of very different stiffness."""

    def one(start: Any, stiffness: Any) -> tuple[Any, Any]:
        def slope(y: Any) -> Any:
            return jnp.stack([y[1], stiffness * (1 - y[0] ** 2) * y[1] - y[0]])

        def go_on(carry: Any) -> Any:
            return (carry[0] < 2.0) & (carry[3] < most)

        def step(carry: Any) -> Any:
            t, h, y, count = carry
            h = jnp.minimum(h, 2.0 - t)
            new, error = _bogacki_shampine(slope, y, h)
            size = jnp.sqrt(jnp.mean((error / (1e-6 + 1e-4 * jnp.abs(new))) ** 2))
            good = size <= 1.0
            factor = jnp.clip(0.9 * (size + 1e-10) ** (-1 / 3), 0.2, 5.0)
            return jnp.where(good, t + h, t), h * factor, jnp.where(good, new, y), count + 1

        t, _, y, _ = lax.while_loop(go_on, step, (0.0, 0.01, start, 0))
        return t, y

    draw = Draw(6)
    stiffness = np.exp(draw.uniform(systems, low=-2.0, high=5.0)).astype(np.float32)
    return jax.vmap(one), (draw.normal(systems, 2), stiffness)


@loop("block", steps=20)
def pendulums(steps: int = 5000) -> Program:
    """One double pendulum, all states kept: a state of four numbers."""

    def slope(s: Any) -> Any:
        a, b, u, v = s
        d = a - b
        m = 3.0 - jnp.cos(2 * d)
        du = -3 * 9.81 * jnp.sin(a) - 9.81 * jnp.sin(a - 2 * b)
        du = (du - 2 * jnp.sin(d) * (v * v + u * u * jnp.cos(d))) / m
        dv = 2 * jnp.sin(d) * (2 * u * u + 2 * 9.81 * jnp.cos(a) + v * v * jnp.cos(d)) / m
        return jnp.stack([u, v, du, dv])

    def run(start: Any) -> Any:
        def step(s: Any, _: Any) -> tuple[Any, Any]:
            s = runge_kutta(slope, s, 0.002)
            return s, s

        return lax.scan(step, start, None, length=steps)[1]

    return run, (np.array([0.4, -0.3, 0.0, 0.1], np.float32),)
