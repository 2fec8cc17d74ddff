"""Variational auto-encoder 784-512-2-512-784, RMSProp 0.001, batch 64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, size
from rmsprop import rmsprop_init, rmsprop_update

Layer = dict[str, jax.Array]
Params = dict[str, Layer]
State = tuple[Params, Params, jax.Array]


def dense(layer: Layer, values: jax.Array) -> jax.Array:
    return values @ layer["w"] + layer["b"]


def cost(params: Params, images: jax.Array, noise: jax.Array) -> jax.Array:
    hidden = jnp.tanh(dense(params["encoder"], images))
    mean, deviation = dense(params["z_mean"], hidden), dense(params["z_std"], hidden)
    z = mean + jnp.exp(deviation / 2) * noise
    decoded = jnp.tanh(dense(params["decoder"], z))
    rebuilt = jax.nn.sigmoid(dense(params["out"], decoded))

    likelihood = images * jnp.log(1e-10 + rebuilt)
    likelihood += (1 - images) * jnp.log(1e-10 + 1 - rebuilt)
    divergence = -0.5 * jnp.sum(1 + deviation - mean**2 - jnp.exp(deviation), axis=1)
    return jnp.mean(-jnp.sum(likelihood, axis=1) + divergence)


def step(state: State, images: jax.Array) -> tuple[State, jax.Array]:
    params, squares, key = state
    key, draw = jax.random.split(key)
    noise = jax.random.normal(draw, (images.shape[0], params["z_mean"]["b"].shape[0]))
    loss, grads = jax.value_and_grad(cost)(params, images, noise)
    params, squares = rmsprop_update(params, squares, grads, rate=0.001)
    return (params, squares, key), loss


def _layer(draw: Random, rows: int, columns: int) -> Layer:
    """Normal values / sqrt(fan_in / 2), where the fan-in of a bias is its own length."""
    return {
        "w": draw.normal(rows, columns) / jnp.sqrt(rows / 2.0),
        "b": draw.normal(columns) / jnp.sqrt(columns / 2.0),
    }


def train_step() -> Workload:
    """784-512-2, batch 64 (small: 784-32-2, batch 16)."""
    draw = Random()
    hidden, batch = size((512, 64), (32, 16))
    params = {
        "encoder": _layer(draw, 784, hidden),
        "z_mean": _layer(draw, hidden, 2),
        "z_std": _layer(draw, hidden, 2),
        "decoder": _layer(draw, 2, hidden),
        "out": _layer(draw, hidden, 784),
    }
    state = (params, rmsprop_init(params), jax.random.key(0))
    return step, (state, draw.uniform(batch, 784))
