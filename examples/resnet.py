"""A bottleneck block of a residual network in training: batch norms between convolutions.

Convolutions are the library's; what lies between them is statistics over a column, elementwise
ops, and both backwards. SGD.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, sgd, size

Layer = dict[str, jax.Array]
Params = list[Layer]
EPS = 1e-5


def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    """x [batch, height, width, channels] with w [rows, columns, channels, outputs]."""
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: jax.Array, layer: Layer) -> jax.Array:
    """Training mode: statistics over all but the channels."""
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean((x - mean) ** 2, axis=(0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + EPS) * layer["gamma"] + layer["beta"]


def block(params: Params, x: jax.Array) -> jax.Array:
    """Three convolutions, each with its norm, around a residual connection."""
    first, middle, last = params
    y = jax.nn.relu(batch_norm(convolution(x, first["w"]), first))
    y = jax.nn.relu(batch_norm(convolution(y, middle["w"]), middle))
    return jax.nn.relu(x + batch_norm(convolution(y, last["w"]), last))


def cost(params: Params, x: jax.Array, wanted: jax.Array) -> jax.Array:
    return jnp.mean((block(params, x) - wanted) ** 2)


def step(params: Params, x: jax.Array, wanted: jax.Array) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(cost)(params, x, wanted)
    return sgd(params, grads, 0.1), loss


def train_step() -> Workload:
    """Batch 32, 56 x 56, 256 channels, 64 inside (small: batch 2, 8 x 8, 8 channels, 4)."""
    draw = Random()
    batch, side, channels, inside = size((32, 56, 256, 64), (2, 8, 8, 4))

    def layer(rows: int, inputs: int, outputs: int) -> Layer:
        scale = (rows * rows * inputs) ** -0.5
        return {
            "w": draw.normal(rows, rows, inputs, outputs) * scale,
            "gamma": jnp.ones(outputs),
            "beta": jnp.zeros(outputs),
        }

    params = [layer(1, channels, inside), layer(3, inside, inside), layer(1, inside, channels)]
    x, wanted = (draw.normal(batch, side, side, channels) for _ in range(2))
    return step, (params, x, wanted)
