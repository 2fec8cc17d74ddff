"""Bidirectional LSTM over 28 rows of 28 pixels, hidden 128, SGD 0.001, batch 128, unrolled.

`train_step` classifies from the final state of both directions. `train_step_last_output` follows
the original to the letter: it reads the output at the last time step, where the backward direction
has seen one row only, so the rest of that direction is dead code.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, cross_entropy, sgd, size
from lstm import Cell, cell, cell_params

Params = dict[str, Cell]


def run(params: Cell, rows: list[jax.Array]) -> list[jax.Array]:
    """The cell's output [batch, hidden] after each of `rows`."""
    hidden = params["b"].shape[0] // 4
    c = h = jnp.zeros((rows[0].shape[0], hidden), rows[0].dtype)
    outputs = []
    for row in rows:
        c, h = cell(params, c, h, row)
        outputs.append(h)
    return outputs


def cost(params: Params, images: jax.Array, labels: jax.Array, *, last_output: bool) -> jax.Array:
    rows = [images[:, t] for t in range(images.shape[1])]
    forward = run(params["forward"], rows)
    backward = run(params["backward"], rows[::-1])
    seen = jnp.concatenate([forward[-1], backward[0 if last_output else -1]], axis=1)
    return cross_entropy(seen @ params["out"]["w"] + params["out"]["b"], labels)


def step(
    params: Params, images: jax.Array, labels: jax.Array, *, last_output: bool = False
) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(cost)(params, images, labels, last_output=last_output)
    return sgd(params, grads, 0.001), loss


def step_last_output(
    params: Params, images: jax.Array, labels: jax.Array
) -> tuple[Params, jax.Array]:
    return step(params, images, labels, last_output=True)


def _args() -> tuple[Params, jax.Array, jax.Array]:
    draw = Random()
    steps, hidden, batch = size((28, 128, 128), (4, 16, 16))
    params = {
        "forward": cell_params(draw, 28, hidden),
        "backward": cell_params(draw, 28, hidden),
        "out": {"w": draw.normal(2 * hidden, 10), "b": draw.normal(10)},
    }
    return params, draw.uniform(batch, steps, 28), draw.classes(batch, 10)


def train_step() -> Workload:
    """2 x 28 steps, hidden 128, batch 128 (small: 2 x 4 steps, hidden 16, batch 16)."""
    return step, _args()


def train_step_last_output() -> Workload:
    """The same sizes, the output at the last time step."""
    return step_last_output, _args()
