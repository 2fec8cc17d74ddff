"""Text: parts of transformers, recurrent layers, decoding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.table import program


def _rms(x, scale):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


@program(
    lambda r: (
        r.normal(2044, 768, dtype=jnp.bfloat16),
        r.normal(768),
        *(r.normal(768, 2048, dtype=jnp.bfloat16, scale=0.03) for _ in range(2)),
        r.normal(2048, 768, dtype=jnp.bfloat16, scale=0.02),
    )
)
def gated_block(x, scale, gate, up, down):
    h = _rms(x, scale)
    return x + (jax.nn.silu(h @ gate) * (h @ up)) @ down


@program(lambda r: (r.normal(4, 383, 12, 64), r.normal(4, 383, 12, 64), r.normal(64), r.normal(64)))
def rotary_with_norms(q, k, gq, gk):
    """Norms of queries and keys over an axis of 64, then rotation by position."""
    half = q.shape[-1] // 2
    angle = jnp.arange(q.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]

    def turned(x, scale):
        a, b = jnp.split(_rms(x, scale), 2, -1)
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    return turned(q, gq), turned(k, gk)


def _smoothed(logits, labels):
    logits = logits.astype(jnp.float32)
    logp = logits - jax.nn.logsumexp(logits, -1, keepdims=True)
    picked = jnp.take_along_axis(logp, labels[:, None], -1)[:, 0]
    loss = -0.9 * picked - 0.1 * logp.mean(-1)
    return jnp.where(labels == 0, 0.0, loss).sum() / (labels != 0).sum()


@program(lambda r: (r.normal(2047, 10007, dtype=jnp.bfloat16), r.integers(2047, high=10007)))
def smoothed_loss(logits, labels):
    """Smoothed labels with padding, over a prime vocabulary."""
    return jax.value_and_grad(_smoothed)(logits, labels)


@program(lambda r: (*(r.normal(2, 8, 509, 48) for _ in range(3)), r.chance(0.9, 2, 509)))
def alibi_attention(q, k, v, keep):
    heads, length = q.shape[1], q.shape[2]
    slope = 2.0 ** (-8 * jnp.arange(1, heads + 1) / heads)
    place = jnp.arange(length)
    away = place[None, :] - place[:, None]
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    s = s + slope[:, None, None] * jnp.minimum(away, 0)
    s = jnp.where((away <= 0) & keep[:, None, None, :], s, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s), v)


@program(lambda r: (r.normal(64, 32003), r.uniform(64, low=0.5, high=1.5), r.key()))
def nucleus_sampling(logits, temperature, key):
    """Sorted probabilities, their running sum, a mask, a draw."""
    scaled = logits / temperature[:, None]
    ordered = jnp.sort(scaled, -1)[:, ::-1]
    p = jax.nn.softmax(ordered)
    kept = jnp.cumsum(p, -1) - p < 0.9
    least = jnp.where(kept, ordered, jnp.inf).min(-1, keepdims=True)
    noise = -jnp.log(-jnp.log(jax.random.uniform(key, logits.shape, minval=1e-9, maxval=1.0)))
    return jnp.argmax(jnp.where(scaled >= least, scaled + noise, -jnp.inf), -1)


@program(lambda r: (r.normal(37, 61, 80), r.normal(61, 96), *r.layers(80, 288), *r.layers(96, 288)))
def gru(xs, h, wx, wh):
    def step(h, x):
        gx, gh = x @ wx["w"] + wx["b"], h @ wh["w"] + wh["b"]
        rx, zx, nx = jnp.split(gx, 3, -1)
        rh, zh, nh = jnp.split(gh, 3, -1)
        reset, update = jax.nn.sigmoid(rx + rh), jax.nn.sigmoid(zx + zh)
        new = jnp.tanh(nx + reset * nh)
        h = (1 - update) * new + update * h
        return h, h

    return lax.scan(step, h, xs)


@program(
    lambda r: (
        r.integers(32, 127, high=5003),
        r.normal(5003, 200),
        r.normal(127, 200),
        r.normal(200),
    )
)
def embedding_backward(tokens, table, places, scale):
    def loss(table, places, scale):
        x = table[tokens] * np.sqrt(200) + places
        x = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-6) * scale
        return (x**2 * jnp.cos(x)).sum()

    return jax.grad(loss, (0, 1, 2))(table, places, scale)


@program(
    lambda r: (
        *(r.normal(16, 7, 64, dtype=jnp.bfloat16) for _ in range(3)),
        *(r.normal(16, 513, 7, 64, dtype=jnp.bfloat16) for _ in range(2)),
        np.int32(300),
    )
)
def decode_step(q, k, v, keys, values, place):
    """One token against a cache that it is written into."""
    keys = lax.dynamic_update_slice(keys, k[:, None], (0, place, 0, 0))
    values = lax.dynamic_update_slice(values, v[:, None], (0, place, 0, 0))
    s = jnp.einsum("bhd,bthd->bht", q, keys).astype(jnp.float32) / 8
    s = jnp.where(jnp.arange(keys.shape[1]) <= place, s, -jnp.inf)
    p = jax.nn.softmax(s).astype(q.dtype)
    return jnp.einsum("bht,bthd->bhd", p, values), keys, values
