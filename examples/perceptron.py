"""Perceptron 784-256-256-10 without activations, Adam 0.001, batch 100."""

from __future__ import annotations

import itertools

import jax
from adam import AdamState, adam_init, adam_update
from common import Random, Workload, cross_entropy, size

Params = list[dict[str, jax.Array]]


def cost(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    values = images
    for layer in params:
        values = values @ layer["w"] + layer["b"]
    return cross_entropy(values, labels)


def step(
    state: tuple[Params, AdamState], images: jax.Array, labels: jax.Array
) -> tuple[tuple[Params, AdamState], jax.Array]:
    params, moments = state
    loss, grads = jax.value_and_grad(cost)(params, images, labels)
    return adam_update(params, moments, grads, rate=0.001), loss


def train_step() -> Workload:
    """784-256-256-10, batch 100 (small: hidden 32, batch 20)."""
    # Without activations the logits run into hundreds and the softmax saturates. Seed 1 keeps every
    # gradient away from total cancellation, where no f32 run has more than a few digits.
    draw = Random(1)
    hidden, batch = size((256, 100), (32, 20))
    widths = (784, hidden, hidden, 10)
    params = [
        {"w": draw.normal(rows, columns), "b": draw.normal(columns)}
        for rows, columns in itertools.pairwise(widths)
    ]
    return step, ((params, adam_init(params)), draw.uniform(batch, 784), draw.classes(batch, 10))
