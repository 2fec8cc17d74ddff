"""The fusion pattern of the paper's Figure 1: two batched GEMMs around a stabilised softmax.

One batch entry's scores, [94, 94] f32, fit in one block's shared memory; in global memory all of
them take 552 MiB.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, size

ROWS = 94
EPS = 1e-6


def pattern(
    q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array, gate: jax.Array
) -> tuple[jax.Array, ...]:
    """q, k, v, gate [batch, 94, depth], bias [94, 94]: 9 elementwise ops, 2 reductions, 2 dots."""
    dot_1 = jnp.einsum("bid,bjd->bij", q, k)
    scores = dot_1 * (q.shape[-1] ** -0.5) + bias
    exp = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    reduce_2 = jnp.sum(exp, axis=-1, keepdims=True)
    dot_2 = jnp.einsum("bij,bjd->bid", exp, v)
    divide = dot_2 / jnp.maximum(reduce_2, EPS)
    return divide, jnp.log(reduce_2[..., 0]), divide * gate, v - divide


def four_outputs(
    q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array
) -> tuple[jax.Array, ...]:
    """Figure 1 with other small outputs: o, log z, 2 max - o[.., :1] and p[:, :1, :]."""
    scores = jnp.einsum("bid,bjd->bij", q, k) * (q.shape[-1] ** -0.5) + bias
    highest = jnp.max(scores, axis=-1, keepdims=True)
    p = jnp.exp(scores - highest)
    z = jnp.sum(p, axis=-1, keepdims=True)
    o = jnp.einsum("bij,bjd->bid", p, v) / jnp.maximum(z, EPS)
    return o, jnp.log(z[..., 0]), 2.0 * highest - o[..., :1], p[:, :1, :]


def _heads(depth: int) -> tuple[jax.Array, ...]:
    draw = Random()
    batch = size(16_384, 8)
    q, k, v = (draw.normal(batch, ROWS, depth) for _ in range(3))
    return q, k, v, draw.normal(ROWS, ROWS)


def original() -> Workload:
    """Batch 16384, depth 2: 12 MB an input (small: batch 8)."""
    q, k, v, bias = _heads(2)
    return pattern, (q, k, v, bias, Random(1).normal(*q.shape))


def deep() -> Workload:
    """The same with depth 8."""
    q, k, v, bias = _heads(8)
    return pattern, (q, k, v, bias, Random(1).normal(*q.shape))


def variant() -> Workload:
    """Batch 16384, depth 8, the outputs of `four_outputs` (small: batch 8)."""
    return four_outputs, _heads(8)
