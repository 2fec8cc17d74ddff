"""Neural machine translation, inference: a stand-in for the paper's nmt, after tensorflow/nmt's
IWSLT'15 model.

A bidirectional LSTM (its two directions are that configuration's two encoder layers) reads the
source; a two-layer LSTM with scaled Luong attention and input feeding writes the translation, word
by word: `greedy`, or the best of a `beam`. Both loops are unrolled to the greatest length.
Products keep all of f32: with TF32 the next word would depend on how they were rounded.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from common import Random, Workload, size
from dyn_rnn import masked_cell
from lstm import Cell, cell, cell_params

Params = dict[str, Any]
States = tuple[tuple[jax.Array, jax.Array], ...]
START, END = 1, 2
MASKED = -1e9


def read(
    params: Cell, words: list[jax.Array], alive: list[jax.Array]
) -> tuple[list[jax.Array], tuple[jax.Array, jax.Array]]:
    """One direction: outputs [batch, units] per word, and the final (c, h)."""
    zero = jnp.zeros((words[0].shape[0], params["b"].shape[0] // 4))
    carry, outputs = (zero, zero), []
    for word, present in zip(words, alive, strict=True):
        carry, output = masked_cell(params, carry, word, present)
        outputs.append(output)
    return outputs, carry


def encode(params: Params, source: jax.Array, lengths: jax.Array) -> tuple[jax.Array, States]:
    """The memory [batch, length, 2 units] and the two layers' states after it."""
    steps = range(source.shape[1])
    embedded = params["source"][source]
    words = [embedded[:, t] for t in steps]
    alive = [(t < lengths)[:, None] for t in steps]
    forward, first = read(params["forward"], words, alive)
    backward, second = read(params["backward"], words[::-1], alive[::-1])
    memory = jnp.concatenate([jnp.stack(forward, 1), jnp.stack(backward[::-1], 1)], axis=2)
    return memory, (first, second)


def decode(
    params: Params,
    keys: jax.Array,
    memory: jax.Array,
    mask: jax.Array,
    states: States,
    attention: jax.Array,
    words: jax.Array,
) -> tuple[States, jax.Array, jax.Array]:
    """One step of every row: the new states, attention [rows, units] and logits [rows, words]."""
    value = jnp.concatenate([params["target"][words], attention], axis=1)
    moved = []
    for layer, (c, h) in zip(params["decoder"], states, strict=True):
        c, value = cell(layer, c, h, value)
        moved.append((c, value))
    scores = params["scale"] * jnp.einsum("bu,blu->bl", value, keys)
    weights = jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=1)
    context = jnp.einsum("bl,blm->bm", weights, memory)
    attention = jnp.concatenate([value, context], axis=1) @ params["attention"]
    return tuple(moved), attention, attention @ params["out"]


@jax.default_matmul_precision("float32")
def translate(params: Params, source: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The likeliest word at each step, END after the first END: s32[batch, length], and the
    log-probability of the whole [batch]."""
    batch, steps = source.shape
    memory, states = encode(params, source, lengths)
    keys, mask = memory @ params["memory"], jnp.arange(steps) < lengths[:, None]
    attention, total = jnp.zeros((batch, keys.shape[2])), jnp.zeros(batch)
    words, done, written = jnp.full(batch, START), jnp.zeros(batch, bool), []
    for _ in range(steps):
        states, attention, logits = decode(params, keys, memory, mask, states, attention, words)
        total += jnp.where(done, 0.0, jnp.max(jax.nn.log_softmax(logits), axis=1))
        words = jnp.where(done, END, jnp.argmax(logits, axis=1).astype(jnp.int32))
        done |= words == END
        written.append(words)
    return jnp.stack(written, axis=1), total


@jax.default_matmul_precision("float32")
def search(
    params: Params, source: jax.Array, lengths: jax.Array, width: int
) -> tuple[jax.Array, jax.Array]:
    """Beam search: the best translations s32[batch, width, length] and their log-probabilities."""
    batch, steps = source.shape
    memory, states = encode(params, source, lengths)
    keys, mask = memory @ params["memory"], jnp.arange(steps) < lengths[:, None]

    def repeated(x: jax.Array) -> jax.Array:
        return jnp.repeat(x, width, axis=0)

    keys, memory, mask, states = jax.tree.map(repeated, (keys, memory, mask, states))
    attention = jnp.zeros((batch * width, keys.shape[2]))
    words, done = jnp.full(batch * width, START), jnp.zeros(batch * width, bool)
    # all rows of a sentence start equal: the first alone may be continued
    total = jnp.tile(jnp.where(jnp.arange(width) == 0, 0.0, MASKED), (batch, 1))
    written = jnp.zeros((batch * width, 0), jnp.int32)
    first_row = width * jnp.arange(batch)[:, None]
    for _ in range(steps):
        states, attention, logits = decode(params, keys, memory, mask, states, attention, words)
        vocabulary = logits.shape[1]
        ended = jnp.where(jnp.arange(vocabulary) == END, 0.0, MASKED)
        each = jnp.where(done[:, None], ended, jax.nn.log_softmax(logits))
        total, best = jax.lax.top_k(
            (total[:, :, None] + each.reshape(batch, width, vocabulary)).reshape(batch, -1), width
        )
        rows = (first_row + best // vocabulary).reshape(-1)
        words = (best % vocabulary).reshape(-1)
        states, attention, done, written = jax.tree.map(
            lambda x, rows=rows: x[rows], (states, attention, done, written)
        )
        done |= words == END
        written = jnp.concatenate([written, words[:, None]], axis=1)
    return written.reshape(batch, width, steps), total


def _args() -> tuple[Params, jax.Array, jax.Array]:
    draw = Random()
    units, batch, length = size((512, 32, 50), (8, 4, 2))
    sources, targets = size((17_191, 7_709), (40, 30))
    params: Params = {
        "source": draw.uniform(sources, units, low=-0.1, high=0.1),
        "target": draw.uniform(targets, units, low=-0.1, high=0.1),
        "forward": cell_params(draw, units, units),
        "backward": cell_params(draw, units, units),
        "decoder": [cell_params(draw, 2 * units, units), cell_params(draw, units, units)],
        "memory": draw.glorot(2 * units, units),
        "scale": jnp.ones(()),
        "attention": draw.glorot(3 * units, units),
        "out": draw.glorot(units, targets),
    }
    source = draw.integers(batch, length, low=3, high=sources)
    return params, source, draw.integers(batch, low=1, high=length + 1)


def greedy() -> Workload:
    """512 units, batch 32, 50 words, vocabularies 17,191 and 7,709 (small: 8, 4, 2, 40, 30)."""
    return translate, _args()


def beam() -> Workload:
    """The same sizes, a beam of 10 (small: 3)."""
    width = size(10, 3)

    def beam_search(
        params: Params, source: jax.Array, lengths: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return search(params, source, lengths, width)

    return beam_search, _args()
