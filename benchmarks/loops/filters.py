"""Filters: states followed through noisy readings, one series and many."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw

_MOVE = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32)
_LOOK = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], np.float32)


def _kalman(mean: Any, cov: Any, reading: Any) -> tuple[Any, Any, Any]:
    """Predict and correct; the innovation's covariance is two by two and inverted by hand."""
    mean = _MOVE @ mean
    cov = _MOVE @ cov @ _MOVE.T + 0.01 * jnp.eye(4)
    s = _LOOK @ cov @ _LOOK.T + 0.1 * jnp.eye(2)
    det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
    inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / det
    gain = cov @ _LOOK.T @ inverse
    off = reading - _LOOK @ mean
    loss = 0.5 * (off @ inverse @ off + jnp.log(det))
    return mean + gain @ off, (jnp.eye(4) - gain @ _LOOK) @ cov, loss


def _filtered(readings: Any) -> Any:
    def step(carry: Any, reading: Any) -> tuple[Any, Any]:
        mean, cov, loss = _kalman(*carry, reading)
        return (mean, cov), (mean, loss)

    return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), readings)[1]


@loop("block", steps=8)
def kalman_single(steps: int = 1000) -> Program:
    """One tracked object: all means and the likelihood's terms."""
    return _filtered, (Draw(31).normal(steps, 2),)


@loop("rows", objects=5, steps=6)
def kalman_batch(objects: int = 1024, steps: int = 200) -> Program:
    """Many tracked objects under vmap."""
    return jax.vmap(_filtered), (Draw(32).normal(objects, steps, 2),)


@loop("rows", signals=5, steps=6, taps=4)
def recursive_least_squares(signals: int = 512, steps: int = 400, taps: int = 16) -> Program:
    """Adaptive filters with forgetting, a window of inputs each."""

    def one(x: Any, wanted: Any) -> Any:
        def step(carry: Any, given: Any) -> tuple[Any, Any]:
            w, p, window = carry
            sample, want = given
            window = jnp.concatenate([sample[None], window[:-1]])
            along = p @ window
            gain = along / (0.99 + window @ along)
            error = want - w @ window
            return (w + gain * error, (p - jnp.outer(gain, along)) / 0.99, window), error

        start = jnp.zeros(taps), 10.0 * jnp.eye(taps), jnp.zeros(taps)
        return lax.scan(step, start, (x, wanted))[1]

    draw = Draw(33)
    return jax.vmap(one), (draw.normal(signals, steps), draw.normal(signals, steps))


@loop("grid", particles=32, steps=4)
def particle_filter(particles: int = 8192, steps: int = 100) -> Program:
    """A bootstrap filter: weights over all particles, systematic resampling by search."""

    def run(key: Any, readings: Any) -> Any:
        def step(x: Any, given: Any) -> tuple[Any, Any]:
            own, n, reading = given
            first, second = jax.random.split(own)
            x = 0.5 * x + 25 * x / (1 + x * x) + 8 * jnp.cos(1.2 * n)
            x = x + 3.0 * jax.random.normal(first, x.shape)
            log_w = -0.5 * (reading - x * x / 20) ** 2
            w = jax.nn.softmax(log_w)
            spots = (jnp.arange(particles) + jax.random.uniform(second)) / particles
            chosen = jnp.searchsorted(jnp.cumsum(w), spots)
            mean = jnp.sum(w * x)
            return x[jnp.clip(chosen, 0, particles - 1)], mean

        keys = jax.random.split(key, steps)
        start = jax.random.normal(key, (particles,))
        return lax.scan(step, start, (keys, jnp.arange(steps, dtype=jnp.float32), readings))[1]

    draw = Draw(34)
    return run, (draw.key(), draw.uniform(steps, high=15.0))


@loop("rows", series=7, steps=9)
def moving_averages(series: int = 2048, steps: int = 2048) -> Program:
    """Exponential means and variances, with a band around them."""

    def run(prices: Any) -> Any:
        def step(carry: Any, price: Any) -> tuple[Any, Any]:
            mean, var = carry
            off = price - mean
            mean = mean + 0.05 * off
            var = 0.95 * (var + 0.05 * off * off)
            return (mean, var), jnp.abs(off) > 2 * jnp.sqrt(var)

        start = prices[0], jnp.ones(series)
        (mean, var), outside = lax.scan(step, start, prices)
        return mean, var, outside.sum(axis=0)

    return run, (Draw(35).normal(steps, series),)


@loop("rows", channels=6, steps=12)
def biquad(channels: int = 256, steps: int = 16000) -> Program:
    """A second-order filter of audio, unrolled by eight."""

    def run(x: Any) -> Any:
        def step(carry: Any, now: Any) -> tuple[Any, Any]:
            z1, z2 = carry
            y = 0.2 * now + z1
            return (0.4 * now + 0.9 * y + z2, 0.2 * now - 0.5 * y), y

        zero = jnp.zeros(channels)
        return lax.scan(step, (zero, zero), x, unroll=8)[1]

    return run, (Draw(36).normal(steps, channels),)
