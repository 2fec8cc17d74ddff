"""Hashes and bits: mixers, sketches, filters, codes, counters, packed words."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _u(x):
    return jnp.uint32(x)


def _rotated(x, k):
    return (x << k) | (x >> (32 - k))


def _mixed(h):
    h = (h ^ (h >> 16)) * _u(0x85EBCA6B)
    h = (h ^ (h >> 13)) * _u(0xC2B2AE35)
    return h ^ (h >> 16)


@template
def hashed_rows(draw: Draw):
    """Rows of several columns hashed under several seeds, and their buckets."""
    rows, columns, seeds = draw.size(50000, 2000000), draw.size(2, 12), draw.size(1, 4)
    buckets, minor = draw.odd_size(101, 100003), draw.choice(True, False)

    def fun(table, seed):
        def one(s):
            h = jnp.full(rows, s)
            for c in range(columns):
                k = (table[:, c] if minor else table[c]) * _u(0xCC9E2D51)
                h = _rotated(h ^ (_rotated(k, 15) * _u(0x1B873593)), 13) * _u(5) + _u(0xE6546B64)
            return _mixed(h ^ _u(4 * columns))

        h = jax.vmap(one)(seed)
        return h, (h % _u(buckets)).astype(jnp.int32)

    return fun, (draw.bits(*((rows, columns) if minor else (columns, rows))), draw.bits(seeds))


@template
def lanes_of_bytes(draw: Draw):
    """Records of bytes in four lanes of words, rotated and multiplied, then joined."""
    records, stripes = draw.size(40000, 2000000), draw.size(2, 8)
    length = 16 * stripes
    p1, p2, p3, p4 = 2654435761, 2246822519, 3266489917, 668265263

    def fun(data, seed):
        words = data.reshape(records, stripes, 4, 4).astype(jnp.uint32)
        words = (words << (8 * jnp.arange(4, dtype=jnp.uint32))).sum(-1, dtype=jnp.uint32)
        start = jnp.array([(p1 + p2) % 2**32, p2, 0, (-p1) % 2**32], jnp.uint32) + seed
        lanes = jnp.broadcast_to(start, (records, 4))
        for s in range(stripes):
            lanes = _rotated(lanes + words[:, s] * _u(p2), 13) * _u(p1)
        turns = jnp.array([1, 7, 12, 18], jnp.uint32)
        h = _rotated(lanes, turns).sum(-1, dtype=jnp.uint32) + _u(length)
        h = (h ^ (h >> 15)) * _u(p2)
        h = (h ^ (h >> 13)) * _u(p3)
        return h ^ (h >> 16), _rotated(h * _u(p4), 11)

    seed = draw.leaf((), "uint32", lambda r, s: r.integers(0, 2**32, s))
    return fun, (draw.integers(records, length, high=256, dtype="uint8"), seed)


@template
def bloom_filter(draw: Draw):
    """Keys set bits of a filter, other keys are looked up, and how full it is."""
    keys, asked, hashes = draw.size(80000, 2000000), draw.size(20000, 500000), draw.size(2, 6)
    bits = 32 * draw.size(5000, 100000)

    def places(x):
        a, b = _mixed(x), _mixed(x ^ _u(0x9E3779B9)) | _u(1)
        i = jnp.arange(hashes, dtype=jnp.uint32)
        return ((a[:, None] + i * b[:, None]) % _u(bits)).astype(jnp.int32)

    def fun(key, query):
        set_ = jnp.zeros(bits, bool).at[places(key).ravel()].set(True)
        there = set_[places(query)].all(-1)
        weights = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
        words = jnp.where(set_.reshape(-1, 32), weights, _u(0)).sum(-1, dtype=jnp.uint32)
        full = lax.population_count(words).sum(dtype=jnp.uint32).astype(jnp.float32) / bits
        return words, there, -bits / hashes * jnp.log1p(-full)

    return fun, (draw.bits(keys), draw.bits(asked))


@template
def counting_sketch(draw: Draw):
    """Counts of a stream in several hashed rows, least or median estimates of some keys."""
    stream, asked = draw.size(200000, 4000000), draw.size(1000, 50000)
    depth, width = draw.choice(3, 4, 5), draw.choice(1024, 4096, 16384)
    signed = draw.choice(True, False)

    def fun(item, amount, query, seed):
        def placed(x, s):
            h = _mixed(x.astype(jnp.uint32) * _u(0x9E3779B1) + s)
            sign = jnp.where(h >> 31 == 1, 1.0, -1.0) if signed else 1.0
            return (h & _u(width - 1)).astype(jnp.int32), sign

        def row(s):
            place, sign = placed(item, s)
            return jax.ops.segment_sum(amount * sign, place, width)

        sketch = jax.vmap(row)(seed)

        def estimate(s, counts):
            place, sign = placed(query, s)
            return counts[place] * sign

        found = jax.vmap(estimate)(seed, sketch)
        return sketch, jnp.median(found, 0) if signed else found.min(0)

    amount = draw.integers(stream, low=1, high=5, dtype="float32")
    args = (draw.popular(stream, high=1000000), amount, draw.popular(asked, high=1000000))
    return fun, (*args, draw.bits(depth))


@template
def least_hashes(draw: Draw):
    """Signatures of documents: the least hash of their words for each of many functions."""
    documents, words, hashes = draw.size(500, 5000), draw.size(20, 200), draw.choice(32, 64, 128)
    bands = draw.choice(8, 16)

    def fun(word, length, a, b):
        there = jnp.arange(words) < length[:, None]
        x = _mixed(word.astype(jnp.uint32))
        h = x[:, None] * (a[:, None] | _u(1)) + b[:, None]
        h = h ^ (h >> 15)
        signature = jnp.where(there[:, None], h, _u(0xFFFFFFFF)).min(-1)
        grouped = signature.reshape(documents, bands, -1)
        key = jnp.zeros((documents, bands), jnp.uint32)
        for i in range(hashes // bands):
            key = _rotated(key, 5) ^ (grouped[..., i] * _u(0x9E3779B1))
        same = (signature[1:] == signature[:-1]).mean(-1)
        return signature, _mixed(key), same

    args = (draw.popular(documents, words, high=50000), draw.lengths(documents, words))
    return fun, (*args, draw.bits(hashes), draw.bits(hashes))


@template
def sign_codes(draw: Draw):
    """Random projections become bits of words; the nearest codes by differing bits."""
    rows, queries, c = draw.size(2000, 60000), draw.size(8, 128), draw.size(32, 384)
    words, best, dtype = (
        draw.choice(1, 2, 4, 8),
        draw.choice(5, 10),
        draw.dtype("float32", "bfloat16"),
    )

    def code(x, w):
        bits = (x @ w > 0).reshape(x.shape[0], words, 32)
        return (bits * (_u(1) << jnp.arange(32, dtype=jnp.uint32))).sum(-1, dtype=jnp.uint32)

    def fun(x, query, mean, w):
        codes, asked = code(x - mean, w), code(query - mean, w)
        apart = lax.population_count(asked[:, None] ^ codes).astype(jnp.int32).sum(-1)
        least, index = lax.top_k(-apart, min(best, rows))
        return (
            codes,
            -least,
            index,
            jnp.cos(jnp.pi * apart.astype(jnp.float32) / (32 * words)).mean(1),
        )

    args = (draw.normal(rows, c, dtype=dtype), draw.normal(queries, c, dtype=dtype))
    return fun, (*args, draw.normal(c, dtype=dtype), draw.normal(c, 32 * words, dtype=dtype))


@template
def check_sums(draw: Draw):
    """Checks of packets through a table, byte after byte, and two other running sums."""
    packets, length = draw.size(80000, 3200000), draw.size(8, 40)
    packets_last = draw.choice(True, False)

    def fun(data, table):
        bytes_ = data.astype(jnp.uint32) if packets_last else data.T.astype(jnp.uint32)
        crc = jnp.full(packets, 0xFFFFFFFF, jnp.uint32)
        for i in range(length):
            crc = table[((crc ^ bytes_[i]) & 0xFF).astype(jnp.int32)] ^ (crc >> 8)
        low = (1 + bytes_.sum(0, dtype=jnp.uint32)) % _u(65521)
        order = jnp.arange(length, 0, -1, dtype=jnp.uint32)[:, None]
        high = (length + (order * bytes_).sum(0, dtype=jnp.uint32)) % _u(65521)
        return crc ^ _u(0xFFFFFFFF), (high << 16) | low

    shape = (length, packets) if packets_last else (packets, length)
    data = draw.integers(*shape, high=256, dtype="uint8")
    return fun, (data, draw.leaf((256,), "uint32", lambda r, s: _crc_table()))


def _crc_table():
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, np.uint32(0xEDB88320) ^ (values >> 1), values >> 1)
    return values


@template
def distinct_values(draw: Draw):
    """How many distinct values each group has, from leading zeros kept in registers."""
    rows, groups, bits = draw.size(200000, 4000000), draw.size(4, 64), draw.choice(6, 8, 10)
    dtype = draw.dtype("int32", "uint8")
    registers = 2**bits

    def fun(value, group):
        h = _mixed(value ^ _u(0x5BD1E995))
        index = (h >> (32 - bits)).astype(jnp.int32)
        rest = (h << bits) | _u(1 << (bits - 1))
        rank = (lax.clz(rest) + 1).astype(dtype)
        place = group * registers + index
        kept = jnp.zeros(groups * registers, dtype).at[place].max(rank).reshape(groups, registers)
        alpha = 0.7213 / (1 + 1.079 / registers)
        raw = alpha * registers**2 / (2.0 ** -kept.astype(jnp.float32)).sum(1)
        empty = (kept == 0).sum(1)
        few = registers * jnp.log(registers / jnp.maximum(empty, 1))
        return jnp.where((raw < 2.5 * registers) & (empty > 0), few, raw), kept

    return fun, (draw.bits(rows), draw.integers(rows, high=groups))


@template
def counters_to_normals(draw: Draw):
    """Rounds of a counter-based generator, to uniform and normal numbers and their moments."""
    n, rounds, kind = draw.size(100000, 4000000), draw.choice(7, 10), draw.choice("mix", "block")
    dtype = draw.dtype("float32", "bfloat16")

    def multiplied(a, b):
        al, ah, bl, bh = a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16
        middle = ah * bl + ((al * bl) >> 16)
        high = ah * bh + (middle >> 16) + (((middle & 0xFFFF) + al * bh) >> 16)
        return high, a * b

    def fun(key, start):
        i = start + jnp.arange(n, dtype=jnp.uint32)
        if kind == "block":
            x, k = [i, i * 0 + 1, i * 0, i * 0], [key[0], key[1]]
            for _ in range(rounds):
                h0, l0 = multiplied(_u(0xD2511F53), x[0])
                h1, l1 = multiplied(_u(0xCD9E8D57), x[2])
                x = [h1 ^ x[1] ^ k[0], l1, h0 ^ x[3] ^ k[1], l0]
                k = [k[0] + _u(0x9E3779B9), k[1] + _u(0xBB67AE85)]
            a, b = x[0], x[1]
        else:
            a, b = _mixed(i * _u(0x9E3779B9) + key[0]), _mixed(i * _u(0x85EBCA77) + key[1])
        u = ((a >> 9).astype(jnp.float32) + 0.5) * 2.0**-23
        angle = (b >> 8).astype(jnp.float32) * 2.0**-24 * 2 * jnp.pi
        r = jnp.sqrt(-2 * jnp.log(u))
        z = jnp.stack([r * jnp.cos(angle), r * jnp.sin(angle)])
        return z.astype(dtype), z.mean(1), (z**2).mean(1), (z**4).mean(1)

    start = draw.leaf((), "uint32", lambda r, s: r.integers(0, 2**30, s))
    return fun, (draw.bits(2), start)


@template
def ordered_codes(draw: Draw):
    """Points get interleaved bits as codes, are sorted by them, and common prefixes counted."""
    n, d, axis = draw.size(80000, 2400000), draw.choice(2, 3), draw.choice(0, 1)

    def spread(x):
        if d == 2:
            x = (x | (x << 8)) & _u(0x00FF00FF)
            x = (x | (x << 4)) & _u(0x0F0F0F0F)
            x = (x | (x << 2)) & _u(0x33333333)
            return (x | (x << 1)) & _u(0x55555555)
        x = (x * _u(0x00010001)) & _u(0xFF0000FF)
        x = (x * _u(0x00000101)) & _u(0x0F00F00F)
        x = (x * _u(0x00000011)) & _u(0xC30C30C3)
        return (x * _u(0x00000005)) & _u(0x49249249)

    def fun(x, value):
        low, high = x.min(1 - axis, keepdims=True), x.max(1 - axis, keepdims=True)
        bits = 16 if d == 2 else 10
        grid = (x - low) / (high - low) * (2**bits - 1)
        grid = grid.astype(jnp.uint32)
        parts = [spread(jnp.take(grid, i, axis)) << i for i in range(d)]
        code = parts[0] | parts[1] | (parts[2] if d == 3 else _u(0))
        ordered, place = lax.sort_key_val(code, jnp.arange(n))
        prefix = lax.clz(ordered[1:] ^ ordered[:-1]).astype(jnp.uint8)
        return ordered, value[place], prefix

    shape = (d, n) if axis == 0 else (n, d)
    return fun, (draw.normal(*shape), draw.normal(n))


@template
def packed_integers(draw: Draw):
    """Differences of sorted numbers, folded to be positive, packed by few bits, and unpacked."""
    blocks, length, bits = draw.size(2000, 80000), 128, draw.choice(4, 8, 16)
    per_word = 32 // bits
    sorted_ = draw.choice(True, False)

    def fun(x):
        before = jnp.concatenate([x[:, :1], x[:, :-1]], 1)
        delta = x - before
        folded = ((delta << 1) ^ (delta >> 31)).astype(jnp.uint32)
        width = 32 - lax.clz(folded.max(1))
        fits = (folded < _u(2**bits)).all(1)
        small = jnp.minimum(folded, _u(2**bits - 1)).reshape(blocks, -1, per_word)
        shift = bits * jnp.arange(per_word, dtype=jnp.uint32)
        words = (small << shift).sum(-1, dtype=jnp.uint32)
        back = (words[..., None] >> shift) & _u(2**bits - 1)
        back = back.reshape(blocks, length)
        signed = (back >> 1).astype(jnp.int32) ^ -(back & 1).astype(jnp.int32)
        return words, width.astype(jnp.uint8), fits, x[:, :1] + jnp.cumsum(signed, 1)

    def values(r, s):
        steps = r.integers(0 if sorted_ else -(2 ** (bits - 3)), 2 ** (bits - 2), s)
        return steps.cumsum(1)

    return fun, (draw.leaf((blocks, length), "int32", values),)


@template
def stream_cipher(draw: Draw):
    """Blocks of a cipher from sums, exclusive ors and turns; text is combined with them."""
    blocks, double_rounds = draw.size(10000, 600000), draw.choice(2, 4)

    def fun(key, nonce, text):
        constants = jnp.array([0x61707865, 0x3320646E, 0x79622D32, 0x6B206574], jnp.uint32)
        counter = jnp.arange(blocks, dtype=jnp.uint32)
        fixed = jnp.concatenate([constants, key])
        x = [jnp.full(blocks, fixed[i]) for i in range(12)]
        x += [counter, *(jnp.full(blocks, nonce[i]) for i in range(3))]
        start = list(x)

        def quarter(a, b, c, d):
            x[a] += x[b]
            x[d] = _rotated(x[d] ^ x[a], 16)
            x[c] += x[d]
            x[b] = _rotated(x[b] ^ x[c], 12)
            x[a] += x[b]
            x[d] = _rotated(x[d] ^ x[a], 8)
            x[c] += x[d]
            x[b] = _rotated(x[b] ^ x[c], 7)

        for _ in range(double_rounds):
            for i in range(4):
                quarter(i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        stream = jnp.stack([a + b for a, b in zip(x, start, strict=True)], -1)
        return text ^ stream

    return fun, (draw.bits(8), draw.bits(3), draw.bits(blocks, 16))
