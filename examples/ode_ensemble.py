"""An ensemble of ODEs: Lotka-Volterra equations for many parameters at once, solved by diffrax.

Each system chooses its own step sizes. XLA runs the loop until the slowest system is done, and
launches several kernels in each iteration.
"""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from common import Random, Workload, size

Rates = tuple[jax.Array, ...]


def growth(t: Any, population: jax.Array, rates: Rates) -> jax.Array:
    prey, predators = population
    birth, hunted, fed, death = rates
    return jnp.stack([prey * (birth - hunted * predators), predators * (fed * prey - death)])


def solve(population: jax.Array, rates: Rates, until: float) -> jax.Array:
    """The populations [2] of one system at time `until`."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(growth),
        diffrax.Bosh3(),
        t0=0.0,
        t1=until,
        dt0=0.1,
        y0=population,
        args=rates,
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        max_steps=1024,
        throw=False,
    )
    return solution.ys[-1]


def predators_and_prey() -> Workload:
    """4096 systems until t = 20 (small: 16 until t = 2)."""
    systems, until = size((4096, 20.0), (16, 2.0))
    draw = Random()
    population = draw.uniform(systems, 2, low=0.5, high=2.0)
    rates = tuple(draw.uniform(systems, low=0.5, high=1.5) for _ in range(4))
    return jax.vmap(lambda y, r: solve(y, r, until)), (population, rates)
