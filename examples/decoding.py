"""Decoding: the next token of each sequence, with a cache of keys and values in int8.

With one token a sequence each product multiplies a matrix with a few rows. Between the products
XLA has separate kernels for norms, rotary embeddings, quantization, cache updates and softmax.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, size

Weights = dict[str, jax.Array]
Cache = dict[str, tuple[jax.Array, jax.Array]]
State = tuple[list[Cache], jax.Array, jax.Array]


def rms_norm(x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def rotate(x: jax.Array, position: jax.Array) -> jax.Array:
    """Rotary embedding of x [batch, heads, dim] at one position."""
    half = x.shape[-1] // 2
    angle = position * 10_000.0 ** (-jnp.arange(half) / half)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def write(
    cache: tuple[jax.Array, jax.Array], x: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Puts x [batch, heads, dim] into the cache: int8, and a scale for each head."""
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True).astype(jnp.float32) / 127 + 1e-8
    parts = jnp.round(x / scale).astype(jnp.int8), scale
    put = jax.lax.dynamic_update_index_in_dim
    values, scales = (put(a, b, position, 1) for a, b in zip(cache, parts, strict=True))
    return values, scales


def layer(p: Weights, cache: Cache, x: jax.Array, position: jax.Array) -> tuple[Cache, jax.Array]:
    batch, _, heads, dim = cache["k"][0].shape
    qkv = (rms_norm(x) @ p["qkv"]).reshape(batch, 3, heads, dim)
    q, k = rotate(qkv[:, 0], position), rotate(qkv[:, 1], position)
    cache = {"k": write(cache["k"], k, position), "v": write(cache["v"], qkv[:, 2], position)}
    keys, values = (stored * scale for stored, scale in cache.values())
    scores = jnp.einsum("bhd,bthd->bht", q, keys) * dim**-0.5
    scores = jnp.where(jnp.arange(keys.shape[1]) <= position, scores, -jnp.inf)
    mixed = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), values)
    x = x + mixed.reshape(batch, -1).astype(x.dtype) @ p["out"]
    gate, up = jnp.split(rms_norm(x) @ p["up"], 2, axis=-1)
    return cache, x + (jax.nn.silu(gate) * up) @ p["down"]


def step(state: State, embedding: jax.Array, layers: list[Weights]) -> tuple[State, jax.Array]:
    """The state (caches, tokens [batch], position) after one step, and the logits."""
    caches, tokens, position = state
    x, written = embedding[tokens], []
    for weights, cache in zip(layers, caches, strict=True):
        cache, x = layer(weights, cache, x, position)
        written.append(cache)
    logits = (rms_norm(x) @ embedding.T).astype(jnp.float32)
    return (written, jnp.argmax(logits, axis=-1).astype(jnp.int32), position + 1), logits


def next_token() -> Workload:
    """4 layers of width 1024, 16 heads, 8 sequences at position 2000 of 2048, bf16 weights
    (small: 2 of width 16, 2 heads, 3 sequences at 5 of 8, f32)."""
    layers, width, heads, words = size((4, 1024, 16, 32_000), (2, 16, 2, 40))
    batch, length, position = size((8, 2048, 2000), (3, 8, 5))
    dtype = size(jnp.bfloat16, jnp.float32)
    draw = Random()
    shapes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 8), "down": (4, 1)}
    weights = [
        {
            name: (draw.normal(i * width, o * width) * (i * width) ** -0.5).astype(dtype)
            for name, (i, o) in shapes.items()
        }
        for _ in range(layers)
    ]
    stored = (batch, length, heads)

    def cached() -> tuple[jax.Array, jax.Array]:
        values = draw.integers(*stored, width // heads, low=-127, high=128).astype(jnp.int8)
        return values, draw.uniform(*stored, 1, low=0.005, high=0.02)

    caches = [{"k": cached(), "v": cached()} for _ in range(layers)]
    state = (caches, draw.integers(batch, high=words), jnp.int32(position))
    return step, (state, draw.normal(words, width, dtype=dtype), weights)
