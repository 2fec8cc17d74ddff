"""Row-wise softmax."""

from __future__ import annotations

import jax
from common import Random, Workload, size


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, axis=-1)


def rows() -> Workload:
    """f32[8192, 4096] (small: f32[32, 512])."""
    return softmax, (Random().normal(*size((8192, 4096), (32, 512))),)
