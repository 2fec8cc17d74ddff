"""Roll-outs of small environments with a policy, under vmap, and control."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


def _policy(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@loop("rows", worlds=5, steps=4, hidden=4)
def pendulum_rollout(worlds: int = 4096, steps: int = 200, hidden: int = 32) -> Program:
    """Swing-ups by a network of two layers, returns summed."""

    def one(params: Any, angle: Any, speed: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            angle, speed = carry
            seen = jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])
            push = 2.0 * jnp.tanh(_policy(params, seen)[0])
            wrapped = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
            cost = wrapped**2 + 0.1 * speed**2 + 0.001 * push**2
            speed = jnp.clip(speed + 0.05 * (15.0 * jnp.sin(angle) + 3.0 * push), -8.0, 8.0)
            return (angle + 0.05 * speed, speed), -cost

        state, rewards = lax.scan(step, (angle, speed), None, length=steps)
        return state, rewards.sum()

    draw = Draw(101)
    args = (draw.layers(3, hidden, 1), draw.uniform(worlds, high=3.0), draw.normal(worlds))
    return jax.vmap(one, in_axes=(None, 0, 0)), args


@loop("rows", worlds=5, steps=4, hidden=4)
def cartpole_rollout(worlds: int = 2048, steps: int = 200, hidden: int = 64) -> Program:
    """Poles on carts with random actions and restarts; what a learner needs is kept."""

    def run(params: Any, key: Any, start: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            key, s = carry
            key, coin, again = jax.random.split(key, 3)
            logit = _policy(params, s)[:, 0]
            right = jax.random.uniform(coin, (worlds,)) < jax.nn.sigmoid(logit)
            _, v, a, w = s.T
            force = jnp.where(right, 10.0, -10.0)
            part = (force + 0.05 * w * w * jnp.sin(a)) / 1.1
            turn = 9.8 * jnp.sin(a) - jnp.cos(a) * part
            turn = turn / (0.5 * (4 / 3 - 0.1 * jnp.cos(a) ** 2 / 1.1))
            push = part - 0.05 * turn * jnp.cos(a) / 1.1
            moves = jnp.stack([v, push, w, turn], axis=1)
            new = s + 0.02 * moves
            fell = (jnp.abs(new[:, 0]) > 2.4) | (jnp.abs(new[:, 2]) > 0.21)
            fresh = jax.random.uniform(again, (worlds, 4), minval=-0.05, maxval=0.05)
            return (key, jnp.where(fell[:, None], fresh, new)), (s, right, fell)

        return lax.scan(step, (key, start), None, length=steps)[1]

    draw = Draw(102)
    start = draw.uniform(worlds, 4, low=-0.05, high=0.05)
    return run, (draw.layers(4, hidden, 1), draw.key(), start)


@loop("rows", worlds=4, steps=4)
def policy_gradient(worlds: int = 512, steps: int = 100) -> Program:
    """The gradient of a policy's return through the simulator."""

    def cost(params: Any, start: Any) -> Any:
        def step(s: Any, _: Any) -> tuple[Any, Any]:
            push = jnp.tanh(_policy(params, s))
            place, speed = s[:, :2], s[:, 2:]
            speed = 0.98 * speed + 0.05 * push
            s = jnp.concatenate([place + 0.05 * speed, speed], axis=1)
            return s, jnp.mean(jnp.sum(s[:, :2] ** 2, axis=1)) + 0.01 * jnp.mean(push**2)

        return lax.scan(step, start, None, length=steps)[1].sum()

    draw = Draw(103)
    return jax.value_and_grad(cost), (draw.layers(4, 32, 2), draw.normal(worlds, 4))


@loop("block", steps=5)
def riccati(steps: int = 500) -> Program:
    """The gains of a linear regulator backwards in time, of four states and one input."""

    def run(a: Any, b: Any) -> Any:
        def step(p: Any, _: Any) -> tuple[Any, Any]:
            along = b.T @ p
            gain = (along @ a) / (1.0 + along @ b)
            return jnp.eye(4) + a.T @ p @ (a - b @ gain), gain

        return lax.scan(step, jnp.eye(4), None, length=steps)

    draw = Draw(104)
    a = np.eye(4, dtype=np.float32) + draw.normal(4, 4, scale=0.05)
    return run, (a, draw.normal(4, 1, scale=0.3))


@loop("rows", plans=6, horizon=4, rounds=2)
def path_integral(plans: int = 4096, horizon: int = 50, rounds: int = 10) -> Program:
    """Model-predictive control: all plans simulated, then weighted, several rounds."""

    def run(key: Any, start: Any) -> Any:
        def simulate(noise: Any, plan: Any) -> Any:
            def step(carry: Any, push: Any) -> tuple[Any, Any]:
                angle, speed = carry
                speed = speed + 0.05 * (9.8 * jnp.sin(angle) + push)
                angle = angle + 0.05 * speed
                return (angle, speed), 1 - jnp.cos(angle) + 0.05 * speed**2 + 0.001 * push**2

            return lax.scan(step, (start[0], start[1]), plan + noise)[1].sum()

        def improve(plan: Any, own: Any) -> tuple[Any, Any]:
            noise = 2.0 * jax.random.normal(own, (plans, horizon))
            costs = jax.vmap(simulate, in_axes=(0, None))(noise, plan)
            weights = jax.nn.softmax(-(costs - costs.min()))
            return plan + weights @ noise, costs.min()

        return lax.scan(improve, jnp.zeros(horizon), jax.random.split(key, rounds))

    draw = Draw(105)
    return run, (draw.key(), np.array([2.5, 0.0], np.float32))
