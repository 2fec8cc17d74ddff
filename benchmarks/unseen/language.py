"""Parts of language models: attention, decoding, experts, quantized weights, losses, sampling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.unseen.inputs import Draw, Program


def rotate(x: Any, positions: Any) -> Any:
    """Rotary embedding of [batch, length, heads, width] by halves."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-jnp.arange(half) / half)
    angle = positions[..., None].astype(jnp.float32) * frequency
    sin, cos = jnp.sin(angle)[:, :, None, :], jnp.cos(angle)[:, :, None, :]
    a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def grouped_query(q: Any, k: Any, v: Any, segments: Any) -> Any:
    """Causal attention of packed documents with 4 query heads to a key head, rotary positions."""
    batch, length, heads, width = q.shape
    positions = jnp.broadcast_to(jnp.arange(length), (batch, length))
    q, k = rotate(q, positions), rotate(k, positions)
    groups = heads // k.shape[2]
    q = q.reshape(batch, length, k.shape[2], groups, width)
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k, preferred_element_type=jnp.float32)
    causal = jnp.tril(jnp.ones((length, length), bool))
    same = segments[:, :, None] == segments[:, None, :]
    mask = (causal & same)[:, None, None]
    scores = jnp.where(mask, scores * width**-0.5, -1e30)
    weights = jax.nn.softmax(scores).astype(v.dtype)
    return jnp.einsum("bhgqk,bkhd->bqhgd", weights, v).reshape(batch, length, heads * width)


def packed_attention() -> Program:
    draw = Draw(11)
    q = draw.normal(2, 512, 16, 64, dtype=jnp.bfloat16)
    k, v = (draw.normal(2, 512, 4, 64, dtype=jnp.bfloat16) for _ in range(2))
    segments = np.sort(draw.integers(2, 512, high=5), axis=1)
    return grouped_query, (q, k, v, segments)


def windowed(params: Any, x: Any) -> Any:
    """An attention layer with a sliding window and soft-capped scores, and its loss."""
    batch, length, _ = x.shape
    heads = params["q"].shape[1]
    q, k, v = (jnp.einsum("bld,dhk->bhlk", x, params[name]) for name in ("q", "k", "v"))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    scores = 50.0 * jnp.tanh(scores / 50.0)
    distance = jnp.arange(length)[:, None] - jnp.arange(length)[None, :]
    scores = jnp.where((distance >= 0) & (distance < 128), scores, -jnp.inf)
    out = jnp.einsum("bhqk,bhkd->bqhd", jax.nn.softmax(scores, axis=-1), v)
    y = x + out.reshape(batch, length, heads * q.shape[-1]) @ params["out"]
    return jnp.mean(jnp.square(y))


def sliding_window_gradient() -> Program:
    draw = Draw(12)
    params = {name: draw.normal(256, 4, 64, scale=1 / 16) for name in ("q", "k", "v")}
    params["out"] = draw.weight(256, 256)
    return jax.value_and_grad(windowed), (params, draw.normal(4, 383, 256))


def smoothed_loss(logits: Any, targets: Any) -> Any:
    """Cross-entropy with label smoothing and a z-loss; tokens of id 0 are padding."""
    logits = logits.astype(jnp.float32)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    smooth = jnp.mean(logits, axis=-1)
    loss = log_z - 0.9 * picked - 0.1 * smooth + 1e-4 * log_z**2
    weights = (targets != 0).astype(jnp.float32)
    return jnp.sum(loss * weights) / jnp.maximum(jnp.sum(weights), 1.0)


def label_smoothing() -> Program:
    draw = Draw(13)
    logits = draw.normal(4, 255, 8191, dtype=jnp.bfloat16)
    return jax.value_and_grad(smoothed_loss), (logits, draw.integers(4, 255, high=8191))


def nucleus(logits: Any, key: Any) -> tuple[Any, Any]:
    """Tokens drawn from the top 50 and the nucleus of 0.9, and their log-probabilities."""
    logits = logits.astype(jnp.float32) / 0.7
    top, ids = lax.top_k(logits, 50)
    p = jax.nn.softmax(top, axis=-1)
    before = jnp.cumsum(p, axis=-1) - p
    top = jnp.where(before < 0.9, top, -jnp.inf)
    noise = jax.random.gumbel(jax.random.wrap_key_data(key), top.shape)
    place = jnp.argmax(top + noise, axis=-1)[:, None]
    token = jnp.take_along_axis(ids, place, axis=-1)[:, 0]
    log_p = jax.nn.log_softmax(top, axis=-1)
    return token, jnp.take_along_axis(log_p, place, axis=-1)[:, 0]


def nucleus_sampling() -> Program:
    draw = Draw(14)
    return nucleus, (draw.normal(64, 32003, scale=3.0, dtype=jnp.bfloat16), draw.key())


def int8_feed_forward(weights: Any, x: Any) -> Any:
    """A SwiGLU block whose int8 weights have a scale per group of 64 rows."""

    def dense(name: str, x: Any) -> Any:
        codes, scales = weights[name]
        groups = codes.reshape(scales.shape[0], -1, codes.shape[1]).astype(jnp.bfloat16)
        return x @ (groups * scales[:, None, :]).reshape(codes.shape)

    gate, up = dense("gate", x), dense("up", x)
    return x + dense("down", jax.nn.silu(gate) * up)


def quantized_feed_forward() -> Program:
    draw = Draw(15)

    def weight(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        codes = draw.integers(rows, columns, low=-127, high=128, dtype=np.int8)
        high = 2 / 127 * rows**-0.5
        return codes, draw.uniform(rows // 64, columns, high=high, dtype=jnp.bfloat16)

    weights = {"gate": weight(1024, 2816), "up": weight(1024, 2816), "down": weight(2816, 1024)}
    return int8_feed_forward, (weights, draw.normal(48, 1024, dtype=jnp.bfloat16))


def route(logits: Any) -> tuple[Any, Any, Any, Any]:
    """Top-2 routing: gates, experts, places within the experts' capacity, balance loss."""
    tokens, experts = logits.shape
    capacity = 2 * tokens // experts
    p = jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
    gates, chosen = lax.top_k(p, 2)
    gates = gates / jnp.sum(gates, axis=-1, keepdims=True)
    hot = jax.nn.one_hot(chosen.T.reshape(-1), experts, dtype=jnp.int32)
    place = jnp.sum((jnp.cumsum(hot, axis=0) - 1) * hot, axis=-1).reshape(2, tokens).T
    kept = place < capacity
    share = jnp.mean(hot[:tokens].astype(jnp.float32), axis=0)
    balance = experts * jnp.sum(share * jnp.mean(p, axis=0))
    z_loss = jnp.mean(jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1) ** 2)
    return gates * kept, chosen, jnp.where(kept, place, capacity), balance + 1e-3 * z_loss


def expert_routing() -> Program:
    return route, (Draw(16).normal(16411, 64, dtype=jnp.bfloat16),)


def decode_step(q: Any, new_k: Any, new_v: Any, cache: Any, lengths: Any) -> tuple[Any, Any]:
    """One token's attention over a cache to which its key and value are written, with ALiBi."""
    write = jax.vmap(lambda c, x, n: lax.dynamic_update_slice(c, x[:, None], (0, n, 0)))
    k, v = write(cache[0], new_k, lengths), write(cache[1], new_v, lengths)
    heads, length, width = k.shape[1:]
    scores = jnp.einsum("bhd,bhld->bhl", q, k, preferred_element_type=jnp.float32)
    slope = 2.0 ** (-8.0 * (jnp.arange(heads) + 1) / heads)
    behind = lengths[:, None] - jnp.arange(length)
    scores = scores * width**-0.5 - slope[None, :, None] * behind[:, None, :]
    scores = jnp.where(behind[:, None, :] >= 0, scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bhl,bhld->bhd", weights, v), (k, v)


def cached_decoding() -> Program:
    draw = Draw(17)
    q, k, v = (draw.normal(16, 12, 64, dtype=jnp.float16) for _ in range(3))
    cache = tuple(draw.normal(16, 12, 1021, 64, dtype=jnp.float16) for _ in range(2))
    return decode_step, (q, k, v, cache, draw.integers(16, low=200, high=1020))


def penalized(logits: Any, past: Any, lengths: Any, bias: Any) -> tuple[Any, Any]:
    """Repetition, frequency and presence penalties before greedy choice, and log-probabilities."""
    batch, vocabulary = logits.shape
    valid = jnp.arange(past.shape[1]) < lengths[:, None]
    rows = jnp.arange(batch)[:, None]
    counts = jnp.zeros((batch, vocabulary), jnp.int32).at[rows, past].add(valid.astype(jnp.int32))
    seen = counts > 0
    logits = logits.astype(jnp.float32) + bias
    logits = jnp.where(seen, jnp.where(logits > 0, logits / 1.2, logits * 1.2), logits)
    logits = logits - 0.3 * counts - 0.2 * seen
    return jnp.argmax(logits, axis=-1), jax.nn.log_softmax(logits, axis=-1)


def repetition_penalty() -> Program:
    draw = Draw(18)
    past = draw.integers(32, 251, high=50257)
    logits = draw.normal(32, 50257, dtype=jnp.float16)
    lengths = draw.integers(32, low=20, high=251)
    return penalized, (logits, past, lengths, draw.normal(50257, scale=0.1))
