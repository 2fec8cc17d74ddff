"""Reinforcement learning: advantages, policy losses, distributional targets, rollouts, replay."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.unseen.inputs import Draw, Program


def advantages(rewards: Any, values: Any, done: Any) -> tuple[Any, Any]:
    """Generalized advantage estimation from the end of each episode, normalized; and returns."""
    going = 1.0 - done.astype(jnp.float32)

    def step(carry: Any, now: Any) -> tuple[Any, Any]:
        later, next_value = carry
        reward, value, on = now
        delta = reward + 0.99 * next_value * on - value
        advantage = delta + 0.99 * 0.95 * on * later
        return (advantage, value), advantage

    start = jnp.zeros_like(values[-1]), values[-1]
    _, found = lax.scan(step, start, (rewards, values[:-1], going), reverse=True)
    normal = (found - jnp.mean(found)) / (jnp.std(found) + 1e-8)
    return normal, found + values[:-1]


def generalized_advantages() -> Program:
    draw = Draw(51)
    done = draw.uniform(128, 16411) < 0.02
    return advantages, (draw.normal(128, 16411), draw.normal(129, 16411), done)


def ppo_loss(params: Any, batch: Any) -> Any:
    """Clipped policy loss of a Gaussian policy, clipped value loss, entropy."""
    h = batch["seen"]
    for weight, bias in params["body"]:
        h = jnp.tanh(h @ weight + bias)
    mean, value = h @ params["mean"], (h @ params["value"])[:, 0]
    std = jnp.exp(params["log_std"])
    z = (batch["action"] - mean) / std
    log_p = jnp.sum(-0.5 * z**2 - params["log_std"] - 0.5 * jnp.log(2 * jnp.pi), axis=-1)
    ratio = jnp.exp(log_p - batch["log_p"])
    clipped = jnp.clip(ratio, 0.8, 1.2)
    policy = -jnp.mean(jnp.minimum(ratio * batch["advantage"], clipped * batch["advantage"]))
    near = batch["value"] + jnp.clip(value - batch["value"], -0.2, 0.2)
    errors = jnp.maximum((value - batch["return"]) ** 2, (near - batch["return"]) ** 2)
    entropy = jnp.sum(params["log_std"] + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
    return policy + 0.25 * jnp.mean(errors) - 0.01 * entropy


def ppo_gradient() -> Program:
    draw = Draw(52)
    count, seen, actions = 8191, 17, 6
    body = [(draw.weight(a, 64), draw.normal(64, scale=0.01)) for a in (seen, 64)]
    params = {"body": body, "mean": draw.weight(64, actions), "value": draw.weight(64, 1)}
    params["log_std"] = draw.normal(actions, scale=0.1)
    batch = {name: draw.normal(count) for name in ("advantage", "value", "return")}
    batch["log_p"] = draw.normal(count, scale=0.3) - 8.0
    batch |= {"seen": draw.normal(count, seen), "action": draw.normal(count, actions)}
    return jax.value_and_grad(ppo_loss), (params, batch)


def projected(logits: Any, next_logits: Any, action: Any, reward: Any, done: Any) -> Any:
    """The loss of C51: the greedy next distribution moved, projected on 51 atoms, compared."""
    atoms = jnp.linspace(-10.0, 10.0, 51)
    width = atoms[1] - atoms[0]
    p = jax.nn.softmax(next_logits, axis=-1)
    best = jnp.argmax(jnp.sum(p * atoms, axis=-1), axis=-1)
    p = jnp.take_along_axis(p, best[:, None, None], axis=1)[:, 0]
    moved = reward[:, None] + 0.99 * (1.0 - done)[:, None] * atoms
    moved = jnp.clip(moved, -10.0, 10.0)
    near = jnp.clip(1.0 - jnp.abs(moved[:, None, :] - atoms[:, None]) / width, 0.0, 1.0)
    target = jnp.sum(near * p[:, None, :], axis=-1)
    log_p = jax.nn.log_softmax(logits, axis=-1)
    log_p = jnp.take_along_axis(log_p, action[:, None, None], axis=1)[:, 0]
    loss = -jnp.sum(target * log_p, axis=-1)
    return jnp.mean(loss), loss


def distributional_targets() -> Program:
    draw = Draw(53)
    done = (draw.uniform(12289) < 0.05).astype(np.float32)
    logits = (draw.normal(12289, 6, 51) for _ in range(2))
    return projected, (*logits, draw.integers(12289, high=6), draw.normal(12289), done)


def soft_target(params: Any, key: Any, seen: Any, reward: Any, done: Any) -> tuple[Any, Any]:
    """The target of soft actor-critic: a squashed Gaussian action, the lower of two critics."""
    h = jax.nn.relu(seen @ params["hidden"])
    mean, log_std = jnp.split(h @ params["out"], 2, axis=-1)
    log_std = jnp.clip(log_std, -20.0, 2.0)
    noise = jax.random.normal(jax.random.wrap_key_data(key), mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    action = jnp.tanh(raw)
    log_p = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    log_p = log_p - 2.0 * (jnp.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    log_p = jnp.sum(log_p, axis=-1)
    both = jnp.concatenate([seen, action], axis=-1)
    critics = jnp.einsum("bi,cij->cbj", both, params["critic"])
    values = jnp.einsum("cbj,cj->cb", jax.nn.relu(critics), params["last"])
    value = jnp.min(values, axis=0) - 0.2 * log_p
    return reward + 0.99 * (1.0 - done) * value, action


def soft_actor_critic() -> Program:
    draw = Draw(54)
    params = {
        "hidden": draw.weight(111, 256),
        "out": draw.weight(256, 16),
        "critic": draw.normal(2, 119, 256, scale=119**-0.5),
        "last": draw.normal(2, 256, scale=1 / 16),
    }
    done = (draw.uniform(2053) < 0.01).astype(np.float32)
    return soft_target, (params, draw.key(), draw.normal(2053, 111), draw.normal(2053), done)


def rollout(params: Any, state: Any, key: Any) -> tuple[Any, Any]:
    """100 steps of a batch of cart-poles under a small stochastic policy."""

    def step(carry: tuple[Any, Any], number: Any) -> tuple[tuple[Any, Any], Any]:
        state, alive = carry
        x, v, angle, spin = jnp.moveaxis(state, -1, 0)
        h = jnp.tanh(state @ params["hidden"] + params["bias"])
        logit = (h @ params["out"])[:, 0]
        draw = jax.random.uniform(
            jax.random.fold_in(jax.random.wrap_key_data(key), number), x.shape
        )
        force = jnp.where(draw < jax.nn.sigmoid(logit), 10.0, -10.0)
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        push = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        speed = push - 0.05 * turn * cos / 1.1
        new = jnp.stack([x + 0.02 * v, v + 0.02 * speed, angle + 0.02 * spin, spin + 0.02 * turn])
        new = jnp.where(alive, new, state.T).T
        alive = alive & (jnp.abs(new[:, 0]) < 2.4) & (jnp.abs(new[:, 2]) < 0.21)
        return (new, alive), alive.astype(jnp.float32)

    alive = jnp.ones(state.shape[0], bool)
    (state, _), rewards = lax.scan(step, (state, alive), jnp.arange(100))
    return state, jnp.sum(rewards, axis=0)


def cart_poles() -> Program:
    draw = Draw(55)
    params = {
        "hidden": draw.normal(4, 32),
        "bias": draw.normal(32, scale=0.1),
        "out": draw.weight(32, 1),
    }
    return rollout, (params, draw.normal(2003, 4, scale=0.03), draw.key())


def replay(priorities: Any, stored: Any, key: Any, fresh: Any) -> tuple[Any, Any, Any]:
    """A batch by priority from prefix sums, its weights, and the priorities after learning."""
    running = jnp.cumsum(priorities.astype(jnp.int32))
    at = jax.random.randint(jax.random.wrap_key_data(key), fresh.shape, 0, running[-1])
    chosen = jnp.searchsorted(running, at, side="right")
    share = priorities[chosen].astype(jnp.float32) / running[-1]
    weights = jnp.power(priorities.shape[0] * share, -0.4)
    weights = weights / jnp.max(weights)
    rows = stored[chosen].astype(jnp.float32) / 255.0
    raised = jnp.clip(jnp.ceil(jnp.power(jnp.abs(fresh), 0.6) * 64.0), 1.0, 255.0)
    return rows, weights, priorities.at[chosen].set(raised.astype(jnp.uint8))


def prioritized_replay() -> Program:
    draw = Draw(56)
    stored = draw.integers(50021, 84, 7, high=256, dtype=np.uint8)
    priorities = draw.integers(50021, low=1, high=256, dtype=np.uint8)
    return replay, (priorities, stored, draw.key(), draw.normal(512))
