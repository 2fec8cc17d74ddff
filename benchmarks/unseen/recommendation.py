"""Recommendation: towers, crosses, pairwise ranking, calibration."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.unseen.inputs import Draw, Program


def retrieval_loss(params: Any, users: Any, items: Any, ids: Any, log_q: Any) -> Any:
    """In-batch softmax of two towers, corrected for popularity; equal items are no negatives."""

    def tower(layers: Any, x: Any) -> Any:
        for weight, bias in layers[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        x = x @ layers[-1][0] + layers[-1][1]
        return x / jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)

    u, v = tower(params["user"], users), tower(params["item"], items)
    logits = u @ v.T / 0.07 - log_q[None, :]
    same = (ids[:, None] == ids[None, :]) & ~jnp.eye(ids.shape[0], dtype=bool)
    logits = jnp.where(same, -1e9, logits)
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits, axis=1)))


def two_towers() -> Program:
    draw = Draw(31)

    def layers(*widths: int) -> list[Any]:
        pairs = itertools.pairwise(widths)
        return [(draw.weight(a, b), draw.normal(b, scale=0.01)) for a, b in pairs]

    params = {"user": layers(96, 256, 64), "item": layers(72, 256, 64)}
    ids = draw.integers(1531, high=900)
    args = (draw.normal(1531, 96), draw.normal(1531, 72), ids, -draw.uniform(1531, high=9.0))
    return jax.value_and_grad(retrieval_loss), (params, *args)


def cross_step(params: Any, squares: Any, x: Any, clicked: Any) -> tuple[Any, Any, Any]:
    """A training step of a deep-and-cross network by Adagrad."""

    def loss(params: Any) -> Any:
        y = x
        for weight, bias in params["cross"]:
            y = x * (y @ weight + bias) + y
        h = x
        for weight, bias in params["deep"]:
            h = jax.nn.relu(h @ weight + bias)
        logits = (jnp.concatenate([y, h], axis=1) @ params["last"])[:, 0]
        return jnp.mean(jax.nn.softplus(logits) - clicked * logits)

    value, grads = jax.value_and_grad(loss)(params)
    squares = jax.tree.map(lambda s, g: s + g * g, squares, grads)
    step = lambda p, s, g: p - 0.05 * g / (jnp.sqrt(s) + 1e-7)  # noqa: E731
    return jax.tree.map(step, params, squares, grads), squares, value


def deep_and_cross() -> Program:
    draw = Draw(33)
    width = 203
    layer = lambda a, b: (draw.weight(a, b), draw.normal(b, scale=0.01))  # noqa: E731
    params = {
        "cross": [layer(width, width) for _ in range(3)],
        "deep": [layer(width, 256), layer(256, 64)],
        "last": draw.weight(width + 64, 1),
    }
    squares = jax.tree.map(lambda p: np.full(p.shape, 0.1, np.float32), params)
    clicked = (draw.uniform(4093) < 0.3).astype(np.float32)
    return cross_step, (params, squares, draw.normal(4093, width, scale=0.5), clicked)


def ranking_step(users: Any, items: Any, biases: Any, triples: Any) -> tuple[Any, Any, Any, Any]:
    """A step of Bayesian personalized ranking that changes the rows of the batch alone."""
    u, i, j = triples[:, 0], triples[:, 1], triples[:, 2]
    user, liked, other = users[u], items[i], items[j]
    margin = jnp.sum(user * (liked - other), axis=-1) + biases[i] - biases[j]
    slope = jax.nn.sigmoid(-margin)[:, None]
    rate, decay = 0.05, 0.01
    users = users.at[u].add(rate * (slope * (liked - other) - decay * user))
    items = items.at[i].add(rate * (slope * user - decay * liked))
    items = items.at[j].add(rate * (-slope * user - decay * other))
    biases = biases.at[i].add(rate * slope[:, 0]).at[j].add(-rate * slope[:, 0])
    return users, items, biases, jnp.mean(jax.nn.softplus(-margin))


def personalized_ranking() -> Program:
    draw = Draw(35)
    users, items = draw.normal(20011, 32, scale=0.1), draw.normal(10007, 32, scale=0.1)
    triples = np.stack(
        [draw.integers(8192, high=20011), *(draw.integers(8192, high=10007) for _ in range(2))], 1
    )
    return ranking_step, (users, items, draw.normal(10007, scale=0.1), triples)


def calibration(scores: Any, clicked: Any) -> tuple[Any, Any, Any]:
    """Expected calibration error in 20 bins, area under the curve, and normalized entropy."""
    p = jax.nn.sigmoid(scores)
    count = scores.shape[0]
    place = jnp.clip((p * 20).astype(jnp.int32), 0, 19)
    sums = [jax.ops.segment_sum(x, place, 20) for x in (jnp.ones_like(p), p, clicked)]
    error = jnp.sum(jnp.abs(sums[1] - sums[2])) / count
    order = jnp.argsort(scores)
    ranks = jnp.zeros(count).at[order].set(jnp.arange(1, count + 1, dtype=jnp.float32))
    positive = jnp.sum(clicked)
    below = jnp.sum(ranks * clicked) / positive - (positive + 1) / 2
    area = below / (count - positive)
    entropy = jnp.mean(jax.nn.softplus(scores) - clicked * scores)
    rate = positive / count
    usual = -(rate * jnp.log(rate) + (1 - rate) * jnp.log1p(-rate))
    return error, area, entropy / usual


def click_calibration() -> Program:
    draw = Draw(36)
    scores = draw.normal(500009, scale=1.5) - 1
    clicked = (draw.uniform(500009) < 1 / (1 + np.exp(-scores))).astype(np.float32)
    return calibration, (scores, clicked)
