"""A roll-out for reinforcement learning: CartPole in JAX, a small policy, many environments.

This loop collects the experience that PPO trains on: draw an action, step the physics, reset the
carts that are done. In each iteration XLA launches kernels for random bits, the policy's products,
physics and records.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
from common import Random, Workload, size

Params = list[tuple[jax.Array, jax.Array]]


def physics(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The next state f32[4] of one cart and whether its episode ends, with the constants of Gym."""
    _, speed, angle, spin = state
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    spin_up = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    speed_up = push - 0.05 * spin_up * cos / 1.1
    state = state + 0.02 * jnp.stack([speed, speed_up, spin, spin_up])
    return state, (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 0.2095)


def reset(key: jax.Array) -> jax.Array:
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def policy(params: Params, state: jax.Array) -> jax.Array:
    """Logits of the two actions."""
    for w, b in params[:-1]:
        state = jnp.tanh(state @ w + b)
    w, b = params[-1]
    return state @ w + b


def collect(params: Params, states: jax.Array, key: jax.Array, steps: int) -> dict[str, jax.Array]:
    """State, action, its log-probability and end of episode of each step: [steps, environments]."""

    def one(state: jax.Array, key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        for_action, for_reset = jax.random.split(key)
        logits = policy(params, state)
        action = jax.random.categorical(for_action, logits)
        moved, done = physics(state, action)
        record = {"state": state, "action": action, "done": done}
        record["log_prob"] = jax.nn.log_softmax(logits)[action]
        return jnp.where(done, reset(for_reset), moved), record

    def step(states: jax.Array, key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        return jax.vmap(one)(states, jax.random.split(key, len(states)))

    return jax.lax.scan(step, states, jax.random.split(key, steps))[1]


def cart_pole() -> Workload:
    """128 steps of 2048 environments, a policy of width 64 (small: 8 of 16, width 8)."""
    steps, environments, width = size((128, 2048, 64), (8, 16, 8))
    draw = Random()
    widths = (4, width, width, 2)
    params = [(draw.glorot(i, o), jnp.zeros(o)) for i, o in itertools.pairwise(widths)]
    states = draw.uniform(environments, 4, low=-0.05, high=0.05)
    return functools.partial(collect, steps=steps), (params, states, jax.random.key(0))
