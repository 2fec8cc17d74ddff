"""Recurrences of sequence models: selective state spaces, linear attention, gated means."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


def _selective(a: Any, x: Any, dt: Any, b: Any, c: Any) -> Any:
    """A selective state space over [length, batch, channels] with states per channel."""

    def step(h: Any, given: Any) -> tuple[Any, Any]:
        x, dt, b, c = given
        decay = jnp.exp(dt[..., None] * a)
        h = decay * h + (dt * x)[..., None] * b[:, None, :]
        return h, jnp.sum(h * c[:, None, :], axis=-1)

    return lax.scan(step, jnp.zeros((*x.shape[1:], a.shape[-1])), (x, dt, b, c))[1]


def _selective_inputs(length: int, batch: int, channels: int, states: int) -> tuple[Any, ...]:
    draw = Draw(61)
    a = -draw.uniform(channels, states, low=0.1, high=2.0)
    x, dt = draw.normal(length, batch, channels), draw.uniform(length, batch, channels, high=0.1)
    return a, x, dt, draw.normal(length, batch, states), draw.normal(length, batch, states)


@loop("rows", length=5, batch=2, channels=4, states=3)
def selective_scan(
    length: int = 1024, batch: int = 4, channels: int = 768, states: int = 16
) -> Program:
    return _selective, _selective_inputs(length, batch, channels, states)


@loop("rows", length=5, batch=2, channels=4, states=3)
def selective_scan_gradient(
    length: int = 256, batch: int = 4, channels: int = 512, states: int = 16
) -> Program:
    def loss(*args: Any) -> Any:
        return jnp.mean(_selective(*args) ** 2)

    return jax.grad(loss, (0, 1, 2)), _selective_inputs(length, batch, channels, states)


@loop("rows", length=5, batch=2, heads=2, width=4)
def linear_attention(length: int = 512, batch: int = 4, heads: int = 8, width: int = 64) -> Program:
    """A matrix of memory per head, with decay."""

    def run(q: Any, k: Any, v: Any, decay: Any) -> Any:
        def step(memory: Any, given: Any) -> tuple[Any, Any]:
            q, k, v = given
            memory = decay[:, None, None] * memory + k[..., :, None] * v[..., None, :]
            return memory, jnp.einsum("bhd,bhde->bhe", q, memory)

        return lax.scan(step, jnp.zeros((batch, heads, width, width)), (q, k, v))[1]

    draw = Draw(62)
    q, k, v = (draw.normal(length, batch, heads, width, scale=width**-0.5) for _ in range(3))
    return run, (q, k, v, draw.uniform(heads, low=0.9, high=0.99))


@loop("rows", length=5, batch=2, channels=4)
def receptance_mixing(length: int = 1024, batch: int = 8, channels: int = 512) -> Program:
    """The time mixing of RWKV: a weighted mean with its greatest exponent carried along."""

    def run(k: Any, v: Any, decay: Any, bonus: Any) -> Any:
        def step(carry: Any, given: Any) -> tuple[Any, Any]:
            top, bottom, most = carry
            k, v = given
            here = jnp.maximum(most, k + bonus)
            old, new = jnp.exp(most - here), jnp.exp(k + bonus - here)
            out = (old * top + new * v) / (old * bottom + new)
            then = jnp.maximum(most - decay, k)
            old, new = jnp.exp(most - decay - then), jnp.exp(k - then)
            return (old * top + new * v, old * bottom + new, then), out

        zero = jnp.zeros((batch, channels))
        return lax.scan(step, (zero, zero, zero - 1e30), (k, v))[1]

    draw = Draw(63)
    k, v = draw.normal(length, batch, channels), draw.normal(length, batch, channels)
    return run, (k, v, draw.uniform(channels, low=0.01, high=1.0), draw.normal(channels))


@loop("rows", length=6, batch=2, channels=4)
def gated_recurrence(length: int = 2048, batch: int = 8, channels: int = 1024) -> Program:
    """A diagonal linear recurrence with a gate, in bfloat16 and carried in float32."""

    def run(x: Any, gate: Any) -> Any:
        def step(h: Any, given: Any) -> tuple[Any, Any]:
            x, gate = (value.astype(jnp.float32) for value in given)
            a = jax.nn.sigmoid(gate)
            h = a * h + jnp.sqrt(1 - a * a) * x
            return h, h.astype(jnp.bfloat16)

        return lax.scan(step, jnp.zeros((batch, channels)), (x, gate))[1]

    draw = Draw(64)
    x, gate = (draw.normal(length, batch, channels, dtype=jnp.bfloat16) for _ in range(2))
    return run, (x, gate)


@loop("rows", length=6, batch=5)
def discounted_returns(length: int = 512, batch: int = 4096) -> Program:
    """Generalized advantages: a reversed scan with episode ends."""

    def run(rewards: Any, values: Any, ends: Any) -> Any:
        def step(carry: Any, given: Any) -> tuple[Any, Any]:
            advantage, after = carry
            reward, value, end = given
            goes_on = 1.0 - end
            delta = reward + 0.99 * after * goes_on - value
            advantage = delta + 0.99 * 0.95 * goes_on * advantage
            return (advantage, value), advantage

        start = jnp.zeros(batch), values[-1]
        return lax.scan(step, start, (rewards, values[:-1], ends), reverse=True)[1]

    draw = Draw(65)
    ends = draw.chance(0.02, length, batch).astype("float32")
    return run, (draw.normal(length, batch), draw.normal(length + 1, batch), ends)
