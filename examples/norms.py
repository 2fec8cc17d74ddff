"""Layer, RMS and batch normalisation, forward and backward, and the ops around them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, size

EPS = 1e-5


def layer_norm(x: jax.Array, gamma: jax.Array, beta: jax.Array) -> jax.Array:
    """Over the last axis; statistics in f32."""
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean((wide - mean) ** 2, axis=-1, keepdims=True)
    normal = ((wide - mean) * jax.lax.rsqrt(variance + EPS)).astype(x.dtype)
    return normal * gamma + beta


def residual_gelu(
    x: jax.Array, residual: jax.Array, gamma: jax.Array, beta: jax.Array
) -> jax.Array:
    return jax.nn.gelu(layer_norm(x + residual, gamma, beta))


def rms_norm(x: jax.Array, gamma: jax.Array) -> jax.Array:
    """Over the last axis; the mean square in f32."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + EPS)
    return (wide * scale).astype(x.dtype) * gamma


def batch_norm_relu(x: jax.Array, gamma: jax.Array, beta: jax.Array) -> jax.Array:
    """Training mode: statistics over the first axis."""
    mean = jnp.mean(x, axis=0)
    variance = jnp.mean((x - mean) ** 2, axis=0)
    return jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + EPS) * gamma + beta)


def layer_norm_both(
    x: jax.Array, gamma: jax.Array, beta: jax.Array, dy: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """y and (dx, dgamma, dbeta)."""
    y, back = jax.vjp(layer_norm, x, gamma, beta)
    return y, back(dy)


def rms_norm_both(
    x: jax.Array, gamma: jax.Array, dy: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """y and (dx, dgamma)."""
    y, back = jax.vjp(rms_norm, x, gamma)
    return y, back(dy)


def batch_norm_both(
    x: jax.Array, gamma: jax.Array, beta: jax.Array, dy: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """y and (dx, dgamma, dbeta)."""
    y, back = jax.vjp(batch_norm_relu, x, gamma, beta)
    return y, back(dy)


def dropout_norm(
    key: jax.Array,
    x: jax.Array,
    bias: jax.Array,
    residual: jax.Array,
    gamma: jax.Array,
    beta: jax.Array,
) -> jax.Array:
    """Layer norm of dropout(x + bias) + residual, one value in ten dropped."""
    kept = jax.random.bernoulli(key, 0.9, x.shape)
    return layer_norm(jnp.where(kept, (x + bias) / 0.9, 0.0) + residual, gamma, beta)


def forward() -> Workload:
    """Layer norm, bf16[8192, 4096] (small: bf16[32, 256])."""
    draw = Random()
    rows, width = size((8192, 4096), (32, 256))
    x, gamma, beta = (
        draw.normal(*s, dtype=jnp.bfloat16) for s in ((rows, width), (width,), (width,))
    )
    return layer_norm, (x, gamma, beta)


def residual_norm_gelu() -> Workload:
    """Residual + layer norm + GELU, bf16[8192, 4096] (small: bf16[32, 256])."""
    draw = Random()
    rows, width = size((8192, 4096), (32, 256))
    x, residual = (draw.normal(rows, width, dtype=jnp.bfloat16) for _ in range(2))
    gamma, beta = (draw.normal(width, dtype=jnp.bfloat16) for _ in range(2))
    return residual_gelu, (x, residual, gamma, beta)


def backward() -> Workload:
    """Layer norm forward and backward, bf16[16384, 1024] (small: bf16[64, 128])."""
    draw = Random()
    rows, width = size((16_384, 1024), (64, 128))
    x, dy = (draw.normal(rows, width, dtype=jnp.bfloat16) for _ in range(2))
    gamma, beta = (draw.normal(width, dtype=jnp.bfloat16) for _ in range(2))
    return layer_norm_both, (x, gamma, beta, dy)


def rms_backward() -> Workload:
    """RMS norm forward and backward, bf16[16384, 4096] (small: bf16[64, 128])."""
    draw = Random()
    rows, width = size((16_384, 4096), (64, 128))
    x, dy = (draw.normal(rows, width, dtype=jnp.bfloat16) for _ in range(2))
    return rms_norm_both, (x, draw.normal(width, dtype=jnp.bfloat16), dy)


def batch_backward() -> Workload:
    """Batch norm + ReLU, training, forward and backward, f32[65536, 256] (small: f32[256, 32])."""
    draw = Random()
    rows, width = size((65_536, 256), (256, 32))
    x, dy = draw.normal(rows, width), draw.normal(rows, width)
    return batch_norm_both, (x, draw.normal(width), draw.normal(width), dy)


def dropout() -> Workload:
    """Dropout + bias + residual + layer norm, f32[8192, 4096] (small: f32[32, 128])."""
    draw = Random()
    rows, width = size((8192, 4096), (32, 128))
    x, residual = draw.normal(rows, width), draw.normal(rows, width)
    bias, gamma, beta = (draw.normal(width) for _ in range(3))
    return dropout_norm, (jax.random.key(0), x, bias, residual, gamma, beta)
