"""Reinforcement learning: returns, losses, environments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.everyday.table import program


@program(lambda r: (r.normal(128, 1021), r.normal(129, 1021), r.chance(0.02, 128, 1021)))
def advantages(reward, value, done):
    """Generalised advantages: a reverse scan, normalised over everything."""
    go_on = 1.0 - done
    delta = reward + 0.99 * value[1:] * go_on - value[:-1]

    def back(carry, now):
        d, g = now
        carry = d + 0.99 * 0.95 * g * carry
        return carry, carry

    _, adv = lax.scan(back, jnp.zeros(reward.shape[1]), (delta, go_on), reverse=True)
    return (adv - adv.mean()) / (adv.std() + 1e-8), adv + value[:-1]


@program(
    lambda r: (
        r.normal(16411, 7),
        r.normal(16411),
        r.integers(16411, high=7),
        r.normal(16411, scale=0.3),
        r.normal(16411),
        r.normal(16411),
    )
)
def clipped_policy(logits, value, action, old, advantage, target):
    """PPO's loss with respect to logits and values: small minor extents."""

    def loss(logits, value):
        logp = jax.nn.log_softmax(logits)
        mine = jnp.take_along_axis(logp, action[:, None], 1)[:, 0]
        ratio = jnp.exp(mine - old)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
        entropy = -(jnp.exp(logp) * logp).sum(-1)
        return -gain.mean() + 0.5 * ((value - target) ** 2).mean() - 0.01 * entropy.mean()

    return jax.value_and_grad(loss, (0, 1))(logits, value)


@program(lambda r: (*(r.normal(80, 509) for _ in range(4)), r.normal(509)))
def v_trace(behaviour, policy, reward, value, last):
    rho = jnp.minimum(1.0, jnp.exp(policy - behaviour))
    following = jnp.concatenate([value[1:], last[None]])
    delta = rho * (reward + 0.99 * following - value)

    def back(acc, now):
        d, c = now
        acc = d + 0.99 * c * acc
        return acc, acc

    _, extra = lax.scan(back, jnp.zeros_like(last), (delta, rho), reverse=True)
    target = value + extra
    after = jnp.concatenate([target[1:], last[None]])
    return target, rho * (reward + 0.99 * after - value)


@program(lambda r: (r.normal(2053, 4, scale=0.05), r.normal(4)))
def cart_poles(state, policy):
    """Many carts for 100 steps, each reset where it falls."""

    def step(state, _):
        x, v, a, w = jnp.moveaxis(state, -1, 0)
        force = jnp.where(state @ policy > 0, 10.0, -10.0)
        sin, cos = jnp.sin(a), jnp.cos(a)
        push = (force + 0.05 * w**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        speed = push - 0.05 * turn * cos / 1.1
        new = jnp.stack([x + 0.02 * v, v + 0.02 * speed, a + 0.02 * w, w + 0.02 * turn], -1)
        fell = (jnp.abs(new[:, 0]) > 2.4) | (jnp.abs(new[:, 2]) > 0.21)
        return jnp.where(fell[:, None], 0.01, new), ~fell

    state, alive = lax.scan(step, state, None, length=100)
    return state, alive.mean(0)


@program(
    lambda r: (
        *(r.normal(4093, 18) for _ in range(3)),
        r.integers(4093, high=18),
        r.normal(4093),
        r.chance(0.1, 4093),
    )
)
def double_q(q, online, target, action, reward, done):
    """The Huber loss of a double Q-network, its gradient and new priorities."""
    best = jnp.argmax(online, -1)
    goal = reward + 0.99 * (1 - done) * jnp.take_along_axis(target, best[:, None], 1)[:, 0]

    def loss(q):
        error = jnp.take_along_axis(q, action[:, None], 1)[:, 0] - goal
        size = jnp.abs(error)
        return jnp.where(size < 1, 0.5 * error**2, size - 0.5).mean(), size

    (value, size), grad = jax.value_and_grad(loss, has_aux=True)(q)
    return value, grad, (size + 1e-6) ** 0.6


@program(lambda r: (r.normal(1021, 51), r.normal(1021), r.chance(0.1, 1021), r.normal(1021, 51)))
def categorical_projection(following, reward, done, logits):
    """The distribution of returns moved back onto its atoms, and the cross-entropy with it."""
    atoms = jnp.linspace(-10.0, 10.0, 51)
    p = jax.nn.softmax(following)
    moved = jnp.clip(reward[:, None] + 0.99 * (1 - done)[:, None] * atoms, -10.0, 10.0)
    place = (moved + 10) / 0.4
    near = jnp.clip(1 - jnp.abs(place[:, :, None] - jnp.arange(51.0)), 0, 1)
    goal = (p[:, :, None] * near).sum(1)
    return -(goal * jax.nn.log_softmax(logits)).sum(-1).mean(), goal


@program(lambda r: (r.normal(8192, 23), r.normal(23), r.uniform(23, low=0.5), r.uniform(high=1e5)))
def running_statistics(batch, mean, var, count):
    """Observations clipped by statistics that the batch has updated."""
    n = batch.shape[0]
    m, v = batch.mean(0), batch.var(0)
    total, away = count + n, m - mean
    new = mean + away * n / total
    square = var * count + v * n + away**2 * count * n / total
    var = square / total
    return jnp.clip((batch - new) / jnp.sqrt(var + 1e-8), -5, 5), new, var, total
