"""Cases that read the fields of what lies in memory record by record: boxes, pairs, colours."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.codegen.kernel_cases import BF16, VECTORS, add, case, normal

FIELDS = "_vector[0]"


@case(np.abs(normal(61, 4)), shows=(VECTORS, FIELDS))
def overlaps(boxes: jax.Array) -> jax.Array:
    """How much of each box another one covers at most: fields of both, one of them the same all
    along the row, and parts of a sum over a prime number of boxes."""
    left, top, right, bottom = (boxes[:, n] for n in range(4))
    width = jnp.minimum(right[:, None], right[None]) - jnp.maximum(left[:, None], left[None])
    height = jnp.minimum(bottom[:, None], bottom[None]) - jnp.maximum(top[:, None], top[None])
    return (jnp.maximum(width, 0) * jnp.maximum(height, 0)).max(1)


def _rotated(x: jax.Array, angle: jax.Array) -> jax.Array:
    even, odd = x[..., ::2], x[..., 1::2]
    return even * jnp.cos(angle) - odd * jnp.sin(angle)


add("rotated_pairs", _rotated, normal(6, 10, 16), normal(10, 8), shows=(VECTORS, FIELDS))
add(
    "rotated_pairs_bf16",
    _rotated,
    normal(6, 10, 16).astype(BF16),
    normal(10, 8).astype(BF16),
    shows=(VECTORS, FIELDS),
)
add(
    "grey",
    lambda pixels: (pixels.astype(jnp.float32) * jnp.asarray([0.3, 0.5, 0.1, 0.0])).sum(-1),
    np.arange(40 * 4, dtype=np.uint8).reshape(40, 4),
)
add(
    "colours",
    lambda pixels: 0.3 * pixels[:, 0] + 0.5 * pixels[:, 1] + 0.2 * pixels[:, 2],
    normal(40, 4),
    shows=(VECTORS, FIELDS),
)
