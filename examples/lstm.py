"""The LSTM cell of the recurrent examples: TensorFlow's BasicLSTMCell."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random

Cell = dict[str, jax.Array]
FORGET_BIAS = 1.0


def cell_params(draw: Random, inputs: int, hidden: int) -> Cell:
    """Glorot-uniform weights f32[inputs + hidden, 4 * hidden] and zero biases."""
    return {"w": draw.glorot(inputs + hidden, 4 * hidden), "b": jnp.zeros(4 * hidden)}


def cell(params: Cell, c: jax.Array, h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One step: the new (c, h), each [batch, hidden], from x [batch, inputs]."""
    gates = jnp.concatenate([x, h], axis=1) @ params["w"] + params["b"]
    i, j, f, o = jnp.split(gates, 4, axis=1)
    c = c * jax.nn.sigmoid(f + FORGET_BIAS) + jax.nn.sigmoid(i) * jnp.tanh(j)
    return c, jnp.tanh(c) * jax.nn.sigmoid(o)
