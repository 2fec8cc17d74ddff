"""Three LSTM layers as a loop over time: a language model reads characters and guesses the next.

Each iteration multiplies the state of each layer by its weights. XLA gives these products to
cuBLAS, and launches kernels for gates and copies of the state between them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, size
from lstm import Cell, cell, cell_params

Params = dict[str, jax.Array]
Carry = tuple[jax.Array, jax.Array]


def logits(params: Params, layers: list[Cell], characters: jax.Array) -> jax.Array:
    """[time, batch, alphabet] for characters [batch, time]."""

    def step(carries: list[Carry], x: jax.Array) -> tuple[list[Carry], jax.Array]:
        after = []
        for weights, (c, h) in zip(layers, carries, strict=True):
            c, x = cell(weights, c, h, x)
            after.append((c, x))
        return after, x

    batch, width = len(characters), params["embedding"].shape[1]
    zero = jnp.zeros((batch, width))
    start = [(zero, zero)] * len(layers)
    _, outputs = jax.lax.scan(step, start, params["embedding"][characters.T])
    return outputs @ params["out_w"] + params["out_b"]


def next_characters() -> Workload:
    """128 characters, batch 64, width 256, alphabet 96 (small: 5, 3, 8, 11)."""
    time, batch, width, alphabet = size((128, 64, 256, 96), (5, 3, 8, 11))
    draw = Random()
    params = {
        "embedding": draw.normal(alphabet, width),
        "out_w": draw.glorot(width, alphabet),
        "out_b": jnp.zeros(alphabet),
    }
    layers = [cell_params(draw, width, width) for _ in range(3)]
    return logits, (params, layers, draw.integers(batch, time, high=alphabet))
