"""Random paths: keys are split, or folded with the step, inside the loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


@loop("rows", paths=16, steps=5)
def euler_maruyama(paths: int = 16384, steps: int = 250) -> Program:
    """Mean-reverting paths; the key is split in the scan."""

    def run(key: Any, start: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            key, x = carry
            key, own = jax.random.split(key)
            noise = jax.random.normal(own, x.shape)
            x = x + 0.004 * 2.0 * (1.0 - x) + 0.3 * 0.063 * noise
            return (key, x), x.mean()

        (_, x), means = lax.scan(step, (key, start), None, length=steps)
        return x, means

    draw = Draw(11)
    return run, (draw.key(), draw.normal(paths))


@loop("rows", paths=16, steps=5)
def geometric_brownian(paths: int = 65536, steps: int = 100) -> Program:
    """Prices with random bits by folding the step into the key; no output but the last state."""

    def run(key: Any, start: Any) -> Any:
        def step(n: Any, x: Any) -> Any:
            noise = jax.random.normal(jax.random.fold_in(key, n), x.shape)
            return x + 0.0005 * x + 0.02 * x * noise

        return lax.fori_loop(0, steps, step, start)

    draw = Draw(12)
    return run, (draw.key(), draw.uniform(paths, low=80.0, high=120.0))


@loop("rows", paths=16, steps=5)
def heston(paths: int = 32768, steps: int = 252) -> Program:
    """Stochastic volatility: two correlated noises a step, the price of a call."""

    def run(key: Any, spot: Any, variance: Any, strike: Any) -> Any:
        def step(carry: Any, own: Any) -> tuple[Any, None]:
            log_s, v = carry
            a, b = jax.random.normal(own, (2, paths))
            b = -0.7 * a + 0.714 * b
            v = jnp.maximum(v, 0.0)
            root = jnp.sqrt(v / 252)
            log_s = log_s - 0.5 * v / 252 + root * a
            return (log_s, v + 2.0 * (0.04 - v) / 252 + 0.3 * root * b), None

        start = jnp.full(paths, jnp.log(spot)), jnp.full(paths, variance)
        (log_s, _), _ = lax.scan(step, start, jax.random.split(key, steps))
        return jnp.mean(jnp.maximum(jnp.exp(log_s) - strike, 0.0))

    draw = Draw(13)
    market = np.float32(100.0), np.float32(0.05), np.float32(103.0)
    return run, (draw.key(), *market)


@loop("rows", paths=16, steps=6)
def asian_option(paths: int = 100_000, steps: int = 64) -> Program:
    """Monte-Carlo by fori_loop under vmap: each path has a key, a sum and a greatest value."""

    def one(key: Any, vol: Any) -> Any:
        def step(n: Any, carry: Any) -> Any:
            s, total, top = carry
            noise = jax.random.normal(jax.random.fold_in(key, n))
            s = s * jnp.exp(-0.5 * vol * vol / steps + vol * noise / steps**0.5)
            return s, total + s, jnp.maximum(top, s)

        s, total, top = lax.fori_loop(0, steps, step, (1.0, 0.0, 1.0))
        return jnp.where(top < 1.5, jnp.maximum(total / steps - 1.0, 0.0), 0.0), s

    draw = Draw(14)
    keys = draw.integers(paths, 2, high=2**31, dtype="uint32")
    return jax.vmap(one), (keys, draw.uniform(paths, low=0.1, high=0.4))


@loop("rows", samples=3, width=8, steps=4)
def diffusion_sampler(samples: int = 4096, width: int = 64, steps: int = 50) -> Program:
    """Reverse diffusion of points with a small network for the score."""

    def run(params: Any, key: Any, x: Any) -> Any:
        def step(carry: Any, t: Any) -> tuple[Any, None]:
            key, x = carry
            key, own = jax.random.split(key)
            h = jnp.concatenate([x, jnp.broadcast_to(t, (samples, 1))], axis=1)
            h = jax.nn.silu(h @ params[0]["w"] + params[0]["b"])
            score = h @ params[1]["w"] + params[1]["b"]
            noise = jax.random.normal(own, x.shape)
            return (key, x + 0.02 * (0.5 * x + score) + 0.14 * noise), None

        return lax.scan(step, (key, x), jnp.linspace(1.0, 0.0, steps))[0][1]

    draw = Draw(15)
    return run, (draw.layers(3, width, 2), draw.key(), draw.normal(samples, 2))
