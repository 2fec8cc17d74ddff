"""A recommendation model's training step, in the style of DLRM: the dense features and one
embedding per categorical feature meet in all their pairwise dot products. SGD."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import Random, Workload, sgd, size

Params = dict[str, Any]
Layers = list[dict[str, jax.Array]]


def mlp(layers: Layers, values: jax.Array) -> jax.Array:
    """Dense layers with a ReLU after each."""
    for layer in layers:
        values = jax.nn.relu(values @ layer["w"] + layer["b"])
    return values


def interact(dense: jax.Array, embedded: jax.Array) -> jax.Array:
    """dense [batch, width] and embedded [batch, features, width]: dense, and the dot product of
    each pair among all of them, [batch, width + features (features + 1) / 2]."""
    both = jnp.concatenate([dense[:, None], embedded], axis=1)
    products = jnp.einsum("bid,bjd->bij", both, both)
    rows, columns = np.tril_indices(both.shape[1], -1)
    return jnp.concatenate([dense, products[:, rows, columns]], axis=1)


def cost(params: Params, numbers: jax.Array, chosen: jax.Array, clicked: jax.Array) -> jax.Array:
    """Mean binary cross-entropy of clicked [batch], from numbers [batch, count] and the rows
    chosen [batch, features] of the embedding tables."""
    embedded = params["tables"][jnp.arange(chosen.shape[1]), chosen]
    met = interact(mlp(params["bottom"], numbers), embedded)
    logits = (mlp(params["top"], met) @ params["out"]["w"] + params["out"]["b"])[:, 0]
    return jnp.mean(jax.nn.softplus(logits) - clicked * logits)


def step(
    params: Params, numbers: jax.Array, chosen: jax.Array, clicked: jax.Array
) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(cost)(params, numbers, chosen, clicked)
    return sgd(params, grads, 0.1), loss


def _layers(draw: Random, widths: tuple[int, ...]) -> Layers:
    return [
        {"w": draw.glorot(rows, columns), "b": jnp.zeros(columns)}
        for rows, columns in itertools.pairwise(widths)
    ]


def train_step() -> Workload:
    """13 numbers, 26 tables of 10,000 x 64, batch 2048 (small: 4 tables of 50 x 8, batch 16)."""
    draw = Random()
    features, rows, width, batch = size((26, 10_000, 64, 2048), (4, 50, 8, 16))
    hidden = size(512, 16)
    met = width + features * (features + 1) // 2
    params: Params = {
        "tables": draw.normal(features, rows, width) * width**-0.5,
        "bottom": _layers(draw, (13, hidden, hidden // 2, width)),
        "top": _layers(draw, (met, hidden, hidden // 2)),
        "out": _layers(draw, (hidden // 2, 1))[0],
    }
    chosen = draw.integers(batch, features, high=rows)
    clicked = draw.integers(batch, high=2).astype(jnp.float32)
    return step, (params, draw.uniform(batch, 13), chosen, clicked)
