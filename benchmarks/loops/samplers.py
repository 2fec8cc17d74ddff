"""Markov chains: many at once, and one alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


@loop("rows", chains=8, steps=5)
def metropolis(chains: int = 8192, steps: int = 500) -> Program:
    """A random walk in a banana, every chain with its key; how many moves were taken."""

    def log_p(x: Any) -> Any:
        return -0.5 * x[0] ** 2 - 2.0 * (x[1] - x[0] ** 2) ** 2

    def one(key: Any, x: Any) -> tuple[Any, Any]:
        def step(carry: Any, _: Any) -> tuple[Any, None]:
            key, x, at, taken = carry
            key, move, coin = jax.random.split(key, 3)
            new = x + 0.5 * jax.random.normal(move, (2,))
            there = log_p(new)
            yes = jnp.log(jax.random.uniform(coin, minval=1e-7)) < there - at
            return (key, jnp.where(yes, new, x), jnp.where(yes, there, at), taken + yes), None

        (_, x, _, taken), _ = lax.scan(step, (key, x, log_p(x), 0), None, length=steps)
        return x, taken

    draw = Draw(21)
    keys = draw.integers(chains, 2, high=2**31, dtype="uint32")
    return jax.vmap(one), (keys, draw.normal(chains, 2))


@loop("rows", chains=4, steps=2, leaps=3)
def hamiltonian(chains: int = 1024, steps: int = 100, leaps: int = 10) -> Program:
    """Hamiltonian Monte-Carlo of eight schools: leapfrogs inside, gradients of the density."""
    draw = Draw(22)

    def log_p(q: Any, effects: Any, errors: Any) -> Any:
        mean, log_tau, raw = q[0], q[1], q[2:]
        theta = mean + jnp.exp(log_tau) * raw
        prior = -0.5 * (mean / 5.0) ** 2 - 0.5 * log_tau**2 - 0.5 * jnp.sum(raw**2)
        return prior - 0.5 * jnp.sum(((effects - theta) / errors) ** 2)

    def run(key: Any, start: Any, effects: Any, errors: Any) -> Any:
        density = jax.vmap(lambda q: log_p(q, effects, errors))
        slope = jax.vmap(jax.grad(lambda q: log_p(q, effects, errors)))

        def leap(_: Any, carry: Any) -> Any:
            q, p = carry
            p = p + 0.025 * slope(q)
            q = q + 0.05 * p
            return q, p + 0.025 * slope(q)

        def step(q: Any, own: Any) -> tuple[Any, Any]:
            first, second = jax.random.split(own)
            p = jax.random.normal(first, q.shape)
            new, p_new = lax.fori_loop(0, leaps, leap, (q, p))
            gain = density(new) - density(q) + 0.5 * jnp.sum(p**2 - p_new**2, axis=1)
            yes = jnp.log(jax.random.uniform(second, (chains,), minval=1e-7)) < gain
            q = jnp.where(yes[:, None], new, q)
            return q, q[:, 0]

        return lax.scan(step, start, jax.random.split(key, steps))

    effects, errors = draw.normal(8, scale=10.0), draw.uniform(8, low=9.0, high=18.0)
    return run, (draw.key(), draw.normal(chains, 10, scale=0.3), effects, errors)


@loop("rows", chains=8, steps=5)
def gibbs_normal(chains: int = 4096, steps: int = 1000) -> Program:
    """Gibbs sampling of a bivariate normal, with running moments."""

    def run(key: Any, x: Any, y: Any) -> Any:
        def step(n: Any, carry: Any) -> Any:
            x, y, first, second = carry
            a, b = jax.random.normal(jax.random.fold_in(key, n), (2, chains))
            x = 0.8 * y + 0.6 * a
            y = 0.8 * x + 0.6 * b
            return x, y, first + x, second + x * y

        zero = jnp.zeros(chains)
        return lax.fori_loop(0, steps, step, (x, y, zero, zero))

    draw = Draw(23)
    return run, (draw.key(), draw.normal(chains), draw.normal(chains))


@loop("grid", side=8, sweeps=3)
def ising(side: int = 512, sweeps: int = 200) -> Program:
    """Checkerboard Gibbs sweeps of an Ising model that wraps around."""

    def run(key: Any, spins: Any) -> Any:
        white = jnp.sum(jnp.indices((side, side)), axis=0) % 2 == 0

        def sweep(spins: Any, own: Any) -> tuple[Any, Any]:
            for colour, k in zip((white, ~white), jax.random.split(own), strict=True):
                near = sum(jnp.roll(spins, n, a) for n in (1, -1) for a in (0, 1))
                up = jax.random.uniform(k, spins.shape) < jax.nn.sigmoid(0.88 * near)
                spins = jnp.where(colour, jnp.where(up, 1.0, -1.0), spins)
            return spins, spins.mean()

        return lax.scan(sweep, spins, jax.random.split(key, sweeps))

    draw = Draw(24)
    return run, (draw.key(), 2.0 * draw.chance(0.5, side, side).astype("float32") - 1.0)


@loop("block", steps=20)
def one_chain(steps: int = 20_000) -> Program:
    """A single Metropolis chain over five weights of a small regression."""

    def run(key: Any, x: Any, y: Any) -> Any:
        def log_p(w: Any) -> Any:
            return -0.5 * jnp.sum((y - x @ w) ** 2) - 0.5 * jnp.sum(w**2)

        def step(carry: Any, own: Any) -> tuple[Any, Any]:
            w, at = carry
            move, coin = jax.random.split(own)
            new = w + 0.05 * jax.random.normal(move, w.shape)
            there = log_p(new)
            yes = jnp.log(jax.random.uniform(coin, minval=1e-7)) < there - at
            carry = jnp.where(yes, new, w), jnp.where(yes, there, at)
            return carry, carry[0]

        start = jnp.zeros(5)
        return lax.scan(step, (start, log_p(start)), jax.random.split(key, steps))[1]

    draw = Draw(25)
    return run, (draw.key(), draw.normal(32, 5), draw.normal(32))
