"""LSTM over sequences of 3 to 20 values, hidden 64, 2 classes, SGD 0.01, batch 128.

Past a sequence's length outputs are 0 and the state is carried. `train_step` is unrolled as the
original is, `train_step_scan` runs the time steps in `lax.scan`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from common import Random, Workload, cross_entropy, sgd, size
from lstm import Cell, cell, cell_params

Params = dict[str, Cell]
Carry = tuple[jax.Array, jax.Array]
Batch = tuple[jax.Array, jax.Array, jax.Array]
Step = Callable[[Params, Batch], tuple[Params, jax.Array]]
MAX_VALUE = 1000


def masked_cell(
    params: Cell, carry: Carry, x: jax.Array, alive: jax.Array
) -> tuple[Carry, jax.Array]:
    """One step of a batch in which only `alive` [batch, 1] sequences go on."""
    c, h = carry
    new_c, new_h = cell(params, c, h, x)
    output = jnp.where(alive, new_h, 0.0)
    return (jnp.where(alive, new_c, c), jnp.where(alive, new_h, h)), output


def outputs(params: Cell, sequences: jax.Array, lengths: jax.Array, *, scan: bool) -> jax.Array:
    """[steps, batch, hidden] from sequences [batch, steps, 1]."""
    batch, steps, _ = sequences.shape
    zero = jnp.zeros((batch, params["b"].shape[0] // 4), sequences.dtype)
    carry = (zero, zero)
    by_step = jnp.swapaxes(sequences, 0, 1)
    alive = (jnp.arange(steps)[:, None] < lengths)[..., None]
    if scan:
        body = functools.partial(_scan_body, params)
        return jax.lax.scan(body, carry, (by_step, alive))[1]
    collected = []
    for t in range(steps):
        carry, output = masked_cell(params, carry, by_step[t], alive[t])
        collected.append(output)
    return jnp.stack(collected)


def _scan_body(
    params: Cell, carry: Carry, inputs: tuple[jax.Array, jax.Array]
) -> tuple[Carry, jax.Array]:
    return masked_cell(params, carry, *inputs)


def logits(params: Params, sequences: jax.Array, lengths: jax.Array, *, scan: bool) -> jax.Array:
    batch, steps, _ = sequences.shape
    stacked = jnp.swapaxes(outputs(params["cell"], sequences, lengths, scan=scan), 0, 1)
    last = stacked.reshape(batch * steps, -1)[jnp.arange(batch) * steps + lengths - 1]
    return last @ params["out"]["w"] + params["out"]["b"]


def cost(params: Params, batch: Batch, *, scan: bool) -> jax.Array:
    sequences, labels, lengths = batch
    return cross_entropy(logits(params, sequences, lengths, scan=scan), labels)


def step(params: Params, batch: Batch, *, scan: bool = False) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(cost)(params, batch, scan=scan)
    return sgd(params, grads, 0.01), loss


def step_scan(params: Params, batch: Batch) -> tuple[Params, jax.Array]:
    return step(params, batch, scan=True)


def toy_sequences(count: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences [count, steps, 1] of 3 to `steps` values / 1000, padded with 0; one-hot classes
    (linear, random) [count, 2]; lengths [count]."""
    draw = np.random.default_rng(seed)
    sequences = np.zeros((count, steps, 1), np.float32)
    lengths = draw.integers(3, steps + 1, count, np.int32)
    random = draw.random(count) < 0.5
    for row, length in enumerate(lengths):
        start = draw.integers(0, MAX_VALUE - length + 1)
        linear = np.arange(start, start + length)
        values = draw.integers(0, MAX_VALUE + 1, length) if random[row] else linear
        sequences[row, :length, 0] = values / MAX_VALUE
    return sequences, np.eye(2, dtype=np.float32)[random.astype(int)], lengths


def init(hidden: int, seed: int = 0) -> Params:
    draw = Random(seed)
    return {
        "cell": cell_params(draw, 1, hidden),
        "out": {"w": draw.normal(hidden, 2), "b": draw.normal(2)},
    }


def learn(compiled_step: Step, iterations: int = 10_000, seed: int = 0) -> float:
    """Trains on 1000 toy sequences and returns the accuracy on 500 others.

    `compiled_step` is `step` under some jit: a real check that a compiler keeps learning intact.
    """
    hidden, steps, batch = 64, 20, 128
    params = init(hidden, seed)
    train = toy_sequences(1000, steps, seed + 1)
    for i in range(iterations):
        rows = np.arange(i * batch, (i + 1) * batch) % 1000
        batch_sequences, batch_labels, batch_lengths = (jnp.asarray(a[rows]) for a in train)
        params, _ = compiled_step(params, (batch_sequences, batch_labels, batch_lengths))
    sequences, labels, lengths = toy_sequences(500, steps, seed + 2)
    predicted = logits(params, jnp.asarray(sequences), jnp.asarray(lengths), scan=True)
    return float(np.mean(np.argmax(predicted, 1) == np.argmax(labels, 1)))


def _args() -> tuple[Params, Batch]:
    hidden, steps, batch = size((64, 20, 128), (16, 5, 16))
    sequences, labels, lengths = map(jnp.asarray, toy_sequences(batch, steps, 0))
    return init(hidden), (sequences, labels, lengths)


def train_step() -> Workload:
    """20 steps, hidden 64, batch 128, unrolled (small: 5 steps, hidden 16, batch 16)."""
    return step, _args()


def train_step_scan() -> Workload:
    """The same sizes, the time steps in a loop."""
    return step_scan, _args()
