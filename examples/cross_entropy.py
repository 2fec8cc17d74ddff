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


def _tokens(full: tuple[int, int], small: tuple[int, int]) -> Workload:
    draw = Random()
    tokens, words = size(full, small)
    logits = draw.normal(tokens, words, dtype=jnp.bfloat16)
    return loss_and_gradient, (logits, draw.integers(tokens, high=words))


def vocabulary() -> Workload:
    """bf16[4096, 32768] (small: bf16[16, 1024])."""
    return _tokens((4096, 32_768), (16, 1024))


def long_vocabulary() -> Workload:
    """bf16[1024, 131072], rows that no single block keeps (small: bf16[6, 4096])."""
    return _tokens((1024, 131_072), (6, 4096))
