"""Cross-entropy over a large vocabulary and its gradient with respect to the logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, size


def cost(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over tokens, in f32, of bf16[tokens, vocabulary] logits and s32[tokens] labels."""
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=-1))


def loss_and_gradient(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(cost)(logits, labels)


def vocabulary() -> Workload:
    """bf16[4096, 32768] (small: bf16[16, 1024])."""
    draw = Random()
    tokens, words = size((4096, 32_768), (16, 1024))
    logits = draw.normal(tokens, words, dtype=jnp.bfloat16)
    return loss_and_gradient, (logits, draw.integers(tokens, high=words))
