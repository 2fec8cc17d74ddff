"""Logistic regression on MNIST-shaped data, SGD 0.01, batch 100.

The cost takes the logarithm of the softmax explicitly, as the original does.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, sgd

Params = dict[str, jax.Array]


def cost(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    predicted = jax.nn.softmax(images @ params["w"] + params["b"])
    return jnp.mean(-jnp.sum(labels * jnp.log(predicted), axis=1))


def step(params: Params, images: jax.Array, labels: jax.Array) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(cost)(params, images, labels)
    return sgd(params, grads, 0.01), loss


def train_step() -> Workload:
    """784-10, batch 100; both scales are the same."""
    draw = Random()
    params = {"w": jnp.zeros((784, 10)), "b": jnp.zeros(10)}
    return step, (params, draw.uniform(100, 784), draw.classes(100, 10))
