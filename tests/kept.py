"""An op that XLA keeps for itself, for what programs need between their kernels."""

from __future__ import annotations

import jax
from jax import lax


def kept_sort(x: jax.Array, axis: int = -1) -> jax.Array:
    """`jnp.sort(x, axis)`, by two keys: kernels sort by one."""
    return lax.sort((x, x), dimension=axis, num_keys=2)[0]
