"""Speech recognition: a stand-in for the paper's rokid, in the style of DeepSpeech.

Each frame with its context goes through three dense layers, an LSTM over the frames (unrolled) and
another dense layer; connectionist temporal classification (CTC) scores the characters. Adam 0.001.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from adam import AdamState, adam_init, adam_update
from common import Random, Workload, size
from lstm import cell, cell_params

Params = dict[str, Any]
State = tuple[Params, AdamState]
#: 26 coefficients of a frame and of 9 frames before and after it.
FEATURES = 19 * 26
#: Letters, space, apostrophe, and CTC's blank, which is the last.
CLASSES = 29
BLANK = CLASSES - 1
CLIP = 20.0
#: The logarithm of no probability, finite so that differences stay numbers.
NEVER = -1e9


def dense(layer: dict[str, jax.Array], values: jax.Array) -> jax.Array:
    """A layer with a ReLU clipped at 20."""
    return jnp.clip(values @ layer["w"] + layer["b"], 0.0, CLIP)


def log_probabilities(params: Params, frames: jax.Array) -> jax.Array:
    """[steps, batch, classes] from frames [steps, batch, features]."""
    values = frames
    for layer in params["dense"]:
        values = dense(layer, values)
    c = h = jnp.zeros((frames.shape[1], values.shape[2]))
    heard = []
    for t in range(frames.shape[0]):
        c, h = cell(params["lstm"], c, h, values[t])
        heard.append(h)
    out = params["out"]
    return jax.nn.log_softmax(dense(params["last"], jnp.stack(heard)) @ out["w"] + out["b"])


def log_sum(*values: jax.Array) -> jax.Array:
    """log(exp(a) + exp(b) + ...), elementwise."""
    highest = jax.lax.stop_gradient(jnp.max(jnp.stack(values), axis=0))
    return highest + jnp.log(sum(jnp.exp(v - highest) for v in values))


def ctc(log_p: jax.Array, labels: jax.Array, lengths: jax.Array) -> jax.Array:
    """Negative log-likelihood [batch] of labels [batch, longest], the first `lengths` of which
    count, under log_p [steps, batch, classes]: the forward recursion over labels and blanks."""
    steps, batch, _ = log_p.shape
    states = 2 * labels.shape[1] + 1
    extended = jnp.full((batch, states), BLANK).at[:, 1::2].set(labels)
    # a blank may be left out between two labels that differ
    skips = jnp.zeros((batch, states), bool).at[:, 3::2].set(labels[:, 1:] != labels[:, :-1])
    emitted = jnp.take_along_axis(log_p, extended[None], axis=2)
    alpha = jnp.where(jnp.arange(states) < 2, emitted[0], NEVER)
    for t in range(1, steps):
        before = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=NEVER)
        two_back = jnp.where(skips, before[:, :-2], NEVER)
        alpha = log_sum(alpha, before[:, 1:-1], two_back) + emitted[t]
    last = 2 * lengths[:, None]
    ends = jnp.take_along_axis(alpha, jnp.concatenate([last, last - 1], axis=1), axis=1)
    return -log_sum(ends[:, 0], ends[:, 1])


def cost(params: Params, frames: jax.Array, labels: jax.Array, lengths: jax.Array) -> jax.Array:
    return jnp.mean(ctc(log_probabilities(params, frames), labels, lengths))


def step(
    state: State, frames: jax.Array, labels: jax.Array, lengths: jax.Array
) -> tuple[State, jax.Array]:
    params, moments = state
    loss, grads = jax.value_and_grad(cost)(params, frames, labels, lengths)
    return adam_update(params, moments, grads, rate=0.001), loss


def train_step() -> Workload:
    """200 frames, 512 units, batch 16, 20 labels (small: 4 frames, 16 units, batch 4, 2)."""
    draw = Random()
    steps, units, batch, longest = size((200, 512, 16, 20), (4, 16, 4, 2))

    def layer(rows: int, columns: int) -> dict[str, jax.Array]:
        return {"w": draw.glorot(rows, columns), "b": jnp.zeros(columns)}

    params: Params = {
        "dense": [layer(FEATURES, units), layer(units, units), layer(units, units)],
        "lstm": cell_params(draw, units, units),
        "last": layer(units, units),
        "out": layer(units, CLASSES),
    }
    frames = draw.normal(steps, batch, FEATURES)
    labels = draw.integers(batch, longest, high=BLANK)
    lengths = draw.integers(batch, low=1, high=longest + 1)
    return step, ((params, adam_init(params)), frames, labels, lengths)
