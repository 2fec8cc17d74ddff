"""Dialogue generation, training: a stand-in for the paper's aiwriter.

A two-layer GRU reads an utterance; another with Bahdanau attention writes the answer, trained with
the true words as inputs. Both are unrolled over all words. Adam 0.001.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from adam import AdamState, adam_init, adam_update
from common import Random, Workload, size

Params = dict[str, Any]
State = tuple[Params, AdamState]
Cell = dict[str, jax.Array]


def gru(params: Cell, h: jax.Array, x: jax.Array) -> jax.Array:
    """TensorFlow's GRUCell: the new h [batch, units] from x [batch, inputs]."""
    gates = jax.nn.sigmoid(jnp.concatenate([x, h], axis=1) @ params["gates_w"] + params["gates_b"])
    reset, update = jnp.split(gates, 2, axis=1)
    both = jnp.concatenate([x, reset * h], axis=1)
    candidate = jnp.tanh(both @ params["candidate_w"] + params["candidate_b"])
    return update * h + (1.0 - update) * candidate


def gru_params(draw: Random, inputs: int, units: int) -> Cell:
    return {
        "gates_w": draw.glorot(inputs + units, 2 * units),
        "gates_b": jnp.ones(2 * units),
        "candidate_w": draw.glorot(inputs + units, units),
        "candidate_b": jnp.zeros(units),
    }


def layers(cells: list[Cell], states: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    """One step of stacked cells: their new states, the last of which is the output."""
    moved = []
    for params, h in zip(cells, states, strict=True):
        x = gru(params, h, x)
        moved.append(x)
    return moved


def attend(params: Params, keys: jax.Array, memory: jax.Array, query: jax.Array) -> jax.Array:
    """Bahdanau attention of query [batch, units] over memory [batch, words, units]."""
    scores = jnp.tanh(keys + (query @ params["query"])[:, None]) @ params["score"]
    weights = jax.nn.softmax(scores, axis=1)
    return jnp.sum(weights[:, :, None] * memory, axis=1)


def cost(params: Params, heard: jax.Array, said: jax.Array) -> jax.Array:
    """Mean cross-entropy of the words said[:, 1:] given heard and those before them."""
    batch, units = heard.shape[0], params["query"].shape[0]
    states = [jnp.zeros((batch, units)) for _ in params["encoder"]]
    words, outputs = params["embedding"][heard], []
    for t in range(heard.shape[1]):
        states = layers(params["encoder"], states, words[:, t])
        outputs.append(states[-1])
    memory = jnp.stack(outputs, axis=1)
    keys = memory @ params["memory"]

    answer, outputs = params["embedding"][said[:, :-1]], []
    context = jnp.zeros((batch, units))
    for t in range(answer.shape[1]):
        states = layers(params["decoder"], states, jnp.concatenate([answer[:, t], context], axis=1))
        context = attend(params, keys, memory, states[-1])
        outputs.append(jnp.concatenate([states[-1], context], axis=1))
    logits = jnp.stack(outputs, axis=1) @ params["out_w"] + params["out_b"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), said[:, 1:, None], axis=2)
    return -jnp.mean(chosen)


def step(state: State, heard: jax.Array, said: jax.Array) -> tuple[State, jax.Array]:
    params, moments = state
    loss, grads = jax.value_and_grad(cost)(params, heard, said)
    return adam_update(params, moments, grads, rate=0.001), loss


def train_step() -> Workload:
    """256 units, batch 32, 50 + 50 words of 10,000 (small: 8 units, batch 4, 2 + 2 of 30)."""
    draw = Random()
    units, batch, length, words = size((256, 32, 50, 10_000), (8, 4, 2, 30))
    params: Params = {
        "embedding": draw.uniform(words, units, low=-0.1, high=0.1),
        "encoder": [gru_params(draw, units, units) for _ in range(2)],
        "decoder": [gru_params(draw, 2 * units, units), gru_params(draw, units, units)],
        "memory": draw.glorot(units, units),
        "query": draw.glorot(units, units),
        "score": draw.normal(units) * units**-0.5,
        "out_w": draw.glorot(2 * units, words),
        "out_b": jnp.zeros(words),
    }
    heard = draw.integers(batch, length, high=words)
    said = draw.integers(batch, length + 1, high=words)
    return step, ((params, adam_init(params)), heard, said)
