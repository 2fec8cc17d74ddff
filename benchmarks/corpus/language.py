"""Language models: attention and its masks, norms, experts, quantised weights, sampling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _rms(x, scale, eps=1e-6):
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide**2).mean(-1, keepdims=True) + eps) * scale).astype(x.dtype)


@template
def rotary_into_cache(draw: Draw):
    """Packed queries, keys and values are split and turned; keys and values go into a cache."""
    n, t, heads, depth = (
        draw.size(4, 32),
        draw.size(32, 512),
        draw.size(4, 24),
        draw.choice(64, 128),
    )
    dtype, pairs = draw.dtype("bfloat16", "float16", "float32"), draw.choice(True, False)
    start, groups = draw.size(1, 64), draw.choice(1, 2, 4)

    def turned(x, angle):
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = (x[..., ::2], x[..., 1::2]) if pairs else jnp.split(x, 2, -1)
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        y = (a * cos - b * sin, a * sin + b * cos)
        joined = jnp.stack(y, -1).reshape(x.shape) if pairs else jnp.concatenate(y, -1)
        return joined.astype(dtype)

    def fun(qkv, keys, values):
        q = qkv[..., : heads * depth].reshape(n, t, heads, depth)
        k, v = jnp.split(qkv[..., heads * depth :].reshape(n, t, 2 * groups, depth), 2, 2)
        rate = 10000.0 ** (-jnp.arange(0, depth, 2) / depth)
        angle = (start + jnp.arange(t))[:, None] * rate
        keys = lax.dynamic_update_slice(keys, turned(k, angle), (0, start, 0, 0))
        return turned(q, angle), keys, lax.dynamic_update_slice(values, v, (0, start, 0, 0))

    cache = [draw.normal(n, start + t + 16, groups, depth, dtype=dtype) for _ in range(2)]
    return fun, (draw.normal(n, t, (heads + 2 * groups) * depth, dtype=dtype), *cache)


@template
def capped_attention(draw: Draw):
    """Grouped queries, logits held by a tanh, a causal window and padding."""
    n, t, depth = draw.size(1, 8), draw.size(128, 1024), draw.choice(32, 64, 96)
    groups, times = draw.choice(1, 2, 4), draw.choice(2, 3, 4)
    dtype, cap, window = draw.dtype("float32", "bfloat16"), draw.number(20, 50), draw.size(16, 256)

    def fun(q, k, v, lengths):
        s = jnp.einsum("ntgmd,nsgd->ngmts", q, k, preferred_element_type=jnp.float32)
        s = cap * jnp.tanh(s * depth**-0.5 / cap)
        ago = jnp.arange(t)[:, None] - jnp.arange(t)
        seen = (ago >= 0) & (ago < window) & (jnp.arange(t) < lengths[:, None, None])
        p = jax.nn.softmax(jnp.where(seen[:, None, None], s, -1e9), -1)
        return jnp.einsum("ngmts,nsgd->ntgmd", p.astype(dtype), v)

    q = draw.normal(n, t, groups, times, depth, dtype=dtype)
    k, v = (draw.normal(n, t, groups, depth, dtype=dtype) for _ in range(2))
    return fun, (q, k, v, draw.lengths(n, t))


@template
def vocabulary_loss(draw: Draw):
    """Cross-entropy with a penalty of the normaliser, padding left out, and its gradient."""
    rows, words = draw.size(256, 3072), draw.odd_size(4001, 32003)
    dtype, factor = draw.dtype("float32", "bfloat16"), draw.number(1e-5, 1e-3)

    def loss(logits, target):
        logits = logits.astype(jnp.float32)
        norm = jax.nn.logsumexp(logits, axis=-1)
        kept = target > 0
        picked = jnp.take_along_axis(logits, target[:, None], 1)[:, 0]
        each = norm - picked + factor * norm**2
        count = jnp.maximum(kept.sum(), 1)
        right = (logits.argmax(-1) == target) & kept
        return jnp.where(kept, each, 0).sum() / count, right.sum() / count

    args = (draw.normal(rows, words, dtype=dtype), draw.popular(rows, high=words))
    return jax.value_and_grad(loss, has_aux=True), args


@template
def gated_feed_forward_gradient(draw: Draw):
    """A norm, a gated layer and a residual: the gradients of all of its weights."""
    rows, c, wide = draw.size(1024, 8192), draw.size(128, 640, 8), draw.size(256, 1536, 8)
    dtype = draw.dtype("float32", "bfloat16")
    act = draw.choice(jax.nn.silu, jax.nn.gelu, jax.nn.relu)

    def loss(params, x, g):
        y = _rms(x, params["scale"])
        h = act(y @ params["gate"]) * (y @ params["up"])
        return ((x + h @ params["down"]).astype(jnp.float32) * g).sum()

    params = {
        "scale": draw.normal(c, mean=1, scale=0.1),
        "gate": draw.weight(c, wide, dtype=dtype),
        "up": draw.weight(c, wide, dtype=dtype),
        "down": draw.weight(wide, c, dtype=dtype),
    }
    return jax.grad(loss), (params, draw.normal(rows, c, dtype=dtype), draw.normal(rows, c))


@template
def expert_gates(draw: Draw):
    """The best experts of each token, their room by running counts, and the balancing losses."""
    groups, tokens, experts = draw.size(16, 128), draw.size(256, 2048), draw.choice(8, 12, 16, 64)
    best, room, noisy = draw.choice(1, 2, 4), draw.number(1, 2), draw.choice(True, False)

    def fun(logits, key):
        logits = logits.astype(jnp.float32)
        if noisy:
            logits = logits + jax.random.gumbel(key, logits.shape) * 0.1
        p = jax.nn.softmax(logits)
        gate, expert = lax.top_k(p, best)
        hot = jax.nn.one_hot(expert, experts, dtype=jnp.int32)
        flat = hot.transpose(0, 2, 1, 3).reshape(groups, best * tokens, experts)
        place = ((jnp.cumsum(flat, 1) - 1) * flat).sum(-1)
        place = place.reshape(groups, best, tokens).transpose(0, 2, 1)
        capacity = int(room * best * tokens / experts) + 1
        gate = jnp.where(place < capacity, gate, 0)
        gate = gate / jnp.maximum(gate.sum(-1, keepdims=True), 1e-9)
        share = hot[:, :, 0].astype(jnp.float32).mean(1)
        balance = experts * (share * p.mean(1)).sum(-1).mean()
        normalisers = (jax.nn.logsumexp(logits, -1) ** 2).mean()
        return gate, expert, place, balance + 1e-3 * normalisers

    return fun, (draw.normal(groups, tokens, experts, dtype=draw.dtype()), draw.key())


@template
def four_bit_product(draw: Draw):
    """Weights of four bits, two a byte, with a scale and a zero per group, times a few rows."""
    rows, k, n = draw.size(1, 16), draw.size(1024, 8192, 128), draw.size(1024, 8192, 8)
    group, dtype = draw.choice(32, 64, 128), draw.dtype("float16", "bfloat16")

    def fun(x, packed, scale, zero):
        low, high = packed & 0xF, packed >> 4
        w = jnp.stack([low, high], 1).reshape(k, n).astype(dtype)
        w = w.reshape(k // group, group, n)
        w = (w - zero[:, None].astype(dtype)) * scale[:, None]
        return jnp.dot(x, w.reshape(k, n), preferred_element_type=jnp.float32).astype(dtype)

    packed = draw.integers(k // 2, n, high=256, dtype="uint8")
    scale = draw.uniform(k // group, n, low=0.002, high=0.01, dtype=dtype)
    zero = draw.integers(k // group, n, high=16, dtype="uint8")
    return fun, (draw.normal(rows, k, dtype=dtype), packed, scale, zero)


@template
def bucketed_positions(draw: Draw):
    """Attention with a learned bias by the logarithm of the distance, as T5 has it."""
    n, t, s = draw.size(8, 32), draw.odd_size(65, 512), draw.size(64, 512)
    heads, depth, buckets = draw.choice(4, 6, 8), draw.choice(32, 64), 32
    dtype = draw.dtype("float32", "bfloat16")

    def fun(q, k, v, table, keep):
        ahead = jnp.arange(s) - jnp.arange(t)[:, None]
        far, half = jnp.abs(ahead), buckets // 2
        exact = half // 2
        ratio = jnp.log(jnp.maximum(far, 1) / exact) / jnp.log(128 / exact)
        log = exact + (ratio * (half - exact)).astype(jnp.int32)
        bucket = jnp.where(far < exact, far, jnp.minimum(log, half - 1)) + half * (ahead > 0)
        logits = jnp.einsum("nthd,nshd->nhts", q, k).astype(jnp.float32)
        logits = logits + table[bucket].transpose(2, 0, 1)
        logits = jnp.where(keep[:, None, None], logits, jnp.finfo(jnp.float32).min)
        return jnp.einsum("nhts,nshd->nthd", jax.nn.softmax(logits).astype(dtype), v)

    q = draw.normal(n, t, heads, depth, dtype=dtype, scale=0.3)
    k, v = (draw.normal(n, s, heads, depth, dtype=dtype) for _ in range(2))
    return fun, (q, k, v, draw.normal(buckets, heads), draw.mask(n, s))


@template
def gated_recurrence(draw: Draw):
    """A linear recurrence with gates by an associative scan, after a norm, times a gate."""
    n, t, c = draw.size(4, 16), draw.size(128, 2048), draw.size(64, 512)
    dtype, backward = draw.dtype("float32", "bfloat16"), draw.choice(True, False)

    def fun(x, gate, decay, rate, scale):
        log_a = -8 * jax.nn.softplus(rate) * jax.nn.sigmoid(decay.astype(jnp.float32))
        a = jnp.exp(log_a)
        b = jnp.sqrt(-jnp.expm1(2 * log_a)) * x.astype(jnp.float32)

        def combine(left, right):
            return left[0] * right[0], right[0] * left[1] + right[1]

        _, h = lax.associative_scan(combine, (a, b), reverse=backward, axis=1)
        return _rms(h, scale).astype(dtype) * jax.nn.gelu(gate)

    x, gate, decay = (draw.normal(n, t, c, dtype=dtype) for _ in range(3))
    return fun, (x, gate, decay, draw.normal(c), draw.normal(c, mean=1))


@template
def least_probability_sampling(draw: Draw):
    """Penalties for what was said, a temperature, a floor relative to the best word, a draw."""
    n, words, said = draw.size(16, 256), draw.odd_size(8001, 64001), draw.size(32, 512)
    floor, best = draw.number(0.02, 0.2), draw.choice(20, 50)

    def fun(logits, history, temperature, key):
        rows = jnp.arange(n)[:, None]
        counts = jnp.zeros(logits.shape, jnp.int32).at[rows, history].add(1)
        logits = logits - 0.3 * counts - 0.5 * (counts > 0)
        logits = logits / temperature[:, None]
        top = lax.top_k(logits, min(best, words))[0]
        p = jax.nn.softmax(jnp.where(logits < top[:, -1:], -jnp.inf, logits))
        kept = p >= floor * p.max(-1, keepdims=True)
        noise = jax.random.gumbel(key, logits.shape)
        word = jnp.where(kept, logits + noise, -jnp.inf).argmax(-1)
        left = jnp.where(kept, p, 0)
        entropy = -jnp.where(left > 0, left * jnp.log(jnp.maximum(left, 1e-30)), 0).sum(-1)
        return word, jnp.take_along_axis(p, word[:, None], 1)[:, 0], entropy

    args = (draw.normal(n, words, scale=3), draw.popular(n, said, high=words))
    return fun, (*args, draw.uniform(n, low=0.5, high=1.5), draw.key())


@template
def masked_words(draw: Draw):
    """Words are masked, swapped or kept at random; embeddings are summed and normalised."""
    n, t, words, c = (
        *(draw.size(8, 64), draw.odd_size(63, 512)),
        *(draw.size(1000, 30000), draw.size(64, 768, 8)),
    )
    dtype, share = draw.dtype(), draw.number(0.1, 0.3)

    def fun(token, kind, table, places, kinds, scale, key):
        which, how, other = jax.random.split(key, 3)
        chosen = (jax.random.uniform(which, token.shape) < share) & (token > 4)
        u = jax.random.uniform(how, token.shape)
        random = jax.random.randint(other, token.shape, 5, words)
        given = jnp.where(u < 0.8, 3, jnp.where(u < 0.9, random, token))
        token_in = jnp.where(chosen, given, token)
        x = (table[token_in] + places + kinds[kind]).astype(jnp.float32)
        mean = x.mean(-1, keepdims=True)
        x = (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-12) * scale
        return x.astype(dtype), jnp.where(chosen, token, -100)

    tables = [draw.normal(rows, c, dtype=dtype, scale=0.02) for rows in (words, t, 2)]
    args = (draw.popular(n, t, high=words), draw.integers(n, t, high=2), *tables)
    return fun, (*args, draw.normal(c, mean=1), draw.key())


@template
def preferences(draw: Draw):
    """Which of two answers is preferred, against a reference model: the loss and its gradient."""
    pairs, t, words = draw.size(2, 16), draw.odd_size(33, 256), draw.size(1000, 8000)
    dtype, beta = draw.dtype("float32", "bfloat16"), draw.number(0.05, 0.5)

    def loss(logits, reference, token, lengths):
        log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
        picked = jnp.take_along_axis(log_p[:, :-1], token[:, 1:, None], -1)[..., 0]
        answered = jnp.arange(1, t) < lengths[:, None]
        won, lost = jnp.split(jnp.where(answered, picked - reference, 0).sum(1), 2)
        margin = beta * (won - lost)
        return -jax.nn.log_sigmoid(margin).mean(), (margin > 0).mean()

    args = (draw.normal(2 * pairs, t, words, dtype=dtype), draw.normal(2 * pairs, t - 1, mean=-8))
    tokens = draw.popular(2 * pairs, t, high=words)
    return jax.value_and_grad(loss, has_aux=True), (*args, tokens, draw.lengths(2 * pairs, t))
