"""Recommendation: bags of embeddings, interactions, ranking losses and metrics, factorisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


@template
def embedding_bags(draw: Draw):
    """Ragged bags of weighted items, summed or averaged per row, from a table of 32 or 16 bits."""
    rows, items, c = draw.size(1000, 16000), draw.size(10000, 300000), draw.choice(16, 32, 64, 100)
    total, dtype = rows * draw.size(3, 20), draw.dtype("float32", "bfloat16", "float16")
    mean = draw.choice(True, False)

    def fun(table, item, weight, bag):
        found = table[item].astype(jnp.float32) * weight[:, None]
        y = jax.ops.segment_sum(found, bag, rows, indices_are_sorted=True)
        if mean:
            size = jax.ops.segment_sum(weight, bag, rows, indices_are_sorted=True)
            y = y / jnp.maximum(size, 1e-6)[:, None]
        return y * lax.rsqrt((y**2).sum(-1, keepdims=True) + 1e-6)

    table = draw.normal(items, c, dtype=dtype)
    args = (draw.popular(total, high=items), draw.uniform(total), draw.segments(total, rows))
    return fun, (table, *args)


@template
def pairwise_interactions(draw: Draw):
    """Products of all pairs of embeddings beside a dense tower, and the gradients of all."""
    rows, fields, c = draw.size(512, 4096), draw.size(8, 32), draw.choice(16, 32, 64)
    items, dense = draw.size(1000, 20000), draw.odd_size(5, 17)

    def loss(params, numbers, index, clicked):
        numbers = jnp.log1p(jnp.maximum(numbers, 0))
        bottom = jax.nn.relu(numbers @ params["bottom"]["w"] + params["bottom"]["b"])
        e = params["tables"][jnp.arange(fields), index]
        all_ = jnp.concatenate([bottom[:, None], e], 1)
        pairs = jnp.einsum("nic,njc->nij", all_, all_)
        i, j = jnp.triu_indices(fields + 1, 1)
        top = jnp.concatenate([bottom, pairs[:, i, j]], -1)
        logit = (top @ params["top"]["w"] + params["top"]["b"])[:, 0]
        return jnp.mean(jax.nn.softplus(logit) - clicked * logit)

    params = {
        "bottom": draw.layers(dense, c)[0],
        "tables": draw.normal(fields, items, c, scale=0.1),
        "top": draw.layers(c + (fields + 1) * fields // 2, 1)[0],
    }
    index = draw.popular(rows, fields, high=items)
    args = (draw.normal(rows, dense, scale=3), index, draw.mask(rows, share=0.2))
    return jax.value_and_grad(loss), (params, *args)


@template
def interest_in_history(draw: Draw):
    """Past items weighed by a small network against the candidate, with an adaptive activation."""
    rows, t, c = draw.size(128, 1024), draw.size(20, 100), draw.choice(16, 32, 64)
    hidden, dtype = draw.choice(36, 64, 80), draw.dtype("float32", "bfloat16")

    def dice(x, alpha):
        wide = x.astype(jnp.float32)
        gate = jax.nn.sigmoid((wide - wide.mean((0, 1))) / jnp.sqrt(wide.var((0, 1)) + 1e-8))
        return (gate * wide + (1 - gate) * alpha * wide).astype(x.dtype)

    def fun(candidate, history, length, first, second, alpha):
        a = jnp.broadcast_to(candidate[:, None], history.shape)
        both = jnp.concatenate([a, history, a - history, a * history], -1)
        h = dice(both @ first["w"] + first["b"], alpha)
        score = (h @ second["w"] + second["b"])[..., 0].astype(jnp.float32)
        score = jnp.where(jnp.arange(t) < length[:, None], score, 0)
        return jnp.einsum("nt,ntc->nc", score.astype(dtype), history)

    first, second = draw.layers(4 * c, hidden, 1, dtype=dtype)
    pair = (draw.normal(rows, c, dtype=dtype), draw.normal(rows, t, c, dtype=dtype))
    return fun, (*pair, draw.lengths(rows, t), first, second, draw.normal(hidden, scale=0.1))


@template
def field_aware_factors(draw: Draw):
    """Each feature has a vector for each other field: the sum over pairs, and the loss."""
    rows, fields, c = draw.size(2048, 16384), draw.size(6, 20), draw.choice(4, 8, 10)
    features = draw.size(2000, 30000)

    def loss(linear, factor, index, value, clicked):
        v = factor[index] * value[..., None, None]
        pairs = jnp.einsum("nijc,njic->nij", v, v)
        upper = jnp.triu(jnp.ones((fields, fields)), 1)
        logit = (linear[index] * value).sum(-1) + (pairs * upper).sum((1, 2))
        each = jnp.logaddexp(0.0, jnp.where(clicked, -logit, logit))
        return each.mean() + 1e-4 * (v**2).sum() / rows

    factor = draw.normal(features, fields, c, scale=c**-0.5)
    args = (draw.popular(rows, fields, high=features), draw.uniform(rows, fields))
    args = (draw.normal(features), factor, *args, draw.mask(rows, share=0.3))
    return jax.value_and_grad(loss, argnums=(0, 1)), args


@template
def hardest_negatives(draw: Draw):
    """A hinge against the hardest of several drawn items; both tables take a step."""
    users, items = draw.size(10000, 120000), draw.size(5000, 100000)
    rows, wrong, c = draw.size(1024, 8192), draw.choice(5, 10, 20), draw.choice(32, 50, 64)
    margin, rate = draw.number(0.2, 1), draw.number(0.01, 0.1)

    def loss(tables, user, good, bad):
        u, i = tables
        vector = u[user]
        near = ((vector - i[good]) ** 2).sum(-1)
        far = ((vector[:, None] - i[bad]) ** 2).sum(-1)
        hardest = far.min(1)
        rank = (far < near[:, None] + margin).mean(1) * items
        return (jnp.log1p(rank) * jax.nn.relu(margin + near - hardest)).mean()

    def fun(tables, user, good, bad):
        value, grads = jax.value_and_grad(loss)(tables, user, good, bad)

        def step(p, g):
            p = p - rate * g
            return p / jnp.maximum(jnp.linalg.norm(p, axis=1, keepdims=True), 1)

        return jax.tree.map(step, tables, grads), value

    tables = (draw.normal(users, c, scale=0.1), draw.normal(items, c, scale=0.1))
    triple = (draw.popular(rows, high=users), draw.popular(rows, high=items))
    return fun, (tables, *triple, draw.integers(rows, wrong, high=items))


@template
def corrected_sampled_softmax(draw: Draw):
    """Items of the batch and drawn ones as negatives, corrected by how often they are drawn."""
    rows, more, c = draw.size(512, 4096), draw.size(256, 2048), draw.choice(32, 64, 128)
    dtype, heat = draw.dtype("float32", "bfloat16"), draw.number(0.05, 0.2)

    def loss(query, item, other, ids, other_ids, log_q, other_log_q):
        def unit(x):
            x = x.astype(jnp.float32)
            return (x * lax.rsqrt((x**2).sum(-1, keepdims=True) + 1e-12)).astype(dtype)

        all_ = unit(jnp.concatenate([item, other]))
        logits = (unit(query) @ all_.T).astype(jnp.float32) / heat
        logits = logits - jnp.concatenate([log_q, other_log_q])
        same = ids[:, None] == jnp.concatenate([ids, other_ids])
        own = jnp.arange(rows)[:, None] == jnp.arange(rows + more)
        logits = jnp.where(same & ~own, -1e9, logits)
        return (jax.nn.logsumexp(logits, -1) - jnp.diagonal(logits)).mean()

    query, item = (draw.normal(rows, c, dtype=dtype) for _ in range(2))
    ids = (draw.popular(rows, high=50000), draw.popular(more, high=50000))
    log_q = (draw.uniform(rows, low=-12, high=-6), draw.uniform(more, low=-12, high=-6))
    args = (query, item, draw.normal(more, c, dtype=dtype), *ids, *log_q)
    return jax.value_and_grad(loss, argnums=(0, 1, 2)), args


@template
def hashed_embeddings(draw: Draw):
    """Two small tables by quotient and remainder, or by several hashes with weights."""
    rows, fields, c = draw.size(4000, 64000), draw.size(4, 26), draw.choice(8, 16, 32)
    buckets, by_hash = draw.odd_size(1009, 20011), draw.choice(True, False)
    op = draw.choice("sum", "product")

    def fun(ids, one, other, weight):
        if by_hash:
            a = (ids * jnp.uint32(2654435761)) ^ (ids >> 15)
            b = (ids ^ jnp.uint32(0x9E3779B9)) * jnp.uint32(0x85EBCA6B)
            a, b = (a >> 7) % jnp.uint32(buckets), (b >> 9) % jnp.uint32(buckets)
        else:
            a, b = ids % jnp.uint32(buckets), (ids // jnp.uint32(buckets)) % jnp.uint32(buckets)
        x, y = one[a.astype(jnp.int32)], other[b.astype(jnp.int32)]
        w = jax.nn.softmax(weight, 0)
        found = w[0] * x + w[1] * y if op == "sum" else x * (1 + y)
        return found.reshape(rows, fields * c), (a == b).mean(0)

    tables = (draw.normal(buckets, c) for _ in range(2))
    return fun, (draw.bits(rows, fields), *tables, draw.normal(2, fields, 1))


@template
def gated_experts(draw: Draw):
    """Experts shared by several tasks, mixed by a gate per task, and the tasks' losses."""
    rows, c, experts = draw.size(4096, 65536), draw.size(64, 384, 8), draw.choice(4, 6, 8)
    tasks, hidden = draw.choice(2, 3), draw.choice(32, 64, 128)

    def loss(params, x, label, weight):
        h = jax.nn.relu(jnp.einsum("nc,ech->neh", x, params["expert"]) + params["bias"])
        gate = jax.nn.softmax(jnp.einsum("nc,tce->tne", x, params["gate"]), -1)
        mixed = jnp.einsum("tne,neh->tnh", gate, h)
        logit = jnp.einsum("tnh,th->nt", jax.nn.relu(mixed), params["tower"])
        p = jnp.cumprod(jax.nn.sigmoid(logit), -1)
        p = jnp.clip(p, 1e-6, 1 - 1e-6)
        each = -(label * jnp.log(p) + (1 - label) * jnp.log1p(-p))
        return (each.mean(0) * weight).sum()

    params = {
        "expert": draw.weight(experts, c, hidden),
        "bias": draw.normal(experts, hidden, scale=0.1),
        "gate": draw.weight(tasks, c, experts),
        "tower": draw.normal(tasks, hidden, scale=0.1),
    }
    label = draw.integers(rows, tasks, high=2, dtype="float32")
    return jax.value_and_grad(loss), (params, draw.normal(rows, c), label, draw.uniform(tasks))


@template
def ranking_metrics(draw: Draw):
    """Lists are sorted by score: gain, precision, reciprocal rank, and a listwise loss."""
    lists, length, best = draw.size(4096, 65536), draw.odd_size(21, 301), draw.choice(5, 10, 20)
    dtype = draw.dtype("float32", "bfloat16")

    def fun(score, grade, size):
        there = jnp.arange(length) < size[:, None]
        score = jnp.where(there, score.astype(jnp.float32), -jnp.inf)
        gain = jnp.where(there, 2.0**grade - 1, 0)
        order = jnp.argsort(-score, axis=1)
        sorted_gain = jnp.take_along_axis(gain, order, 1)
        rank = jnp.arange(length)
        discount = jnp.where(rank < best, 1 / jnp.log2(rank + 2.0), 0)
        ideal = (-jnp.sort(-gain, axis=1) * discount).sum(1)
        ndcg = jnp.where(ideal > 0, (sorted_gain * discount).sum(1) / jnp.maximum(ideal, 1e-9), 0)
        hit = sorted_gain > 0
        precision = (hit & (rank < best)).mean(1) * length / best
        first = jnp.where(hit.any(1), 1 / (1 + hit.argmax(1)), 0)
        log_p = jax.nn.log_softmax(score, 1)
        target = gain / jnp.maximum(gain.sum(1, keepdims=True), 1)
        listwise = -jnp.where(there, target * jnp.where(there, log_p, 0), 0).sum(1)
        return ndcg, precision, first, listwise

    grade = draw.integers(lists, length, high=5, dtype="uint8")
    return fun, (draw.normal(lists, length, dtype=dtype), grade, draw.lengths(lists, length))


@template
def implicit_factors(draw: Draw):
    """The factors of users by least squares with confidences, all small systems at once."""
    users, seen, items = draw.size(1024, 12000), draw.size(10, 60), draw.size(2000, 40000)
    c, alpha, ridge = draw.choice(8, 16, 32), draw.number(1, 40), draw.number(0.01, 1)

    def fun(factor, item, count, length):
        valid = jnp.arange(seen) < length[:, None]
        y = factor[item]
        more = jnp.where(valid, alpha * jnp.log1p(count), 0)
        gram = factor.T @ factor + ridge * jnp.eye(c)
        a = gram + jnp.einsum("usi,us,usj->uij", y, more, y)
        b = jnp.einsum("us,usi->ui", jnp.where(valid, 1 + more, 0), y)
        x = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b[..., None])[..., 0]
        predicted = jnp.einsum("ui,usi->us", x, y)
        error = jnp.where(valid, (1 + more) * (1 - predicted) ** 2, 0).sum()
        return x, error + ridge * (x**2).sum()

    args = (draw.normal(items, c, scale=0.3), draw.popular(users, seen, high=items))
    return fun, (*args, draw.uniform(users, seen, high=20), draw.lengths(users, seen))


@template
def crossed_counters(draw: Draw):
    """Numbers fall into buckets, features are crossed, and click rates of the crosses counted."""
    rows, fields = draw.size(10000, 200000), draw.size(3, 9)
    borders, crosses = draw.choice(7, 15, 31), draw.size(1000, 50000)

    def fun(x, border, clicked, prior):
        bucket = (x[..., None] >= border).sum(-1).astype(jnp.uint32)
        mixed = jnp.zeros(rows, jnp.uint32)
        for f in range(fields):
            mixed = mixed * jnp.uint32(31) + bucket[:, f]
        cross = (mixed % jnp.uint32(crosses)).astype(jnp.int32)
        seen = jnp.zeros(crosses, jnp.float32).at[cross].add(1)
        hits = jnp.zeros(crosses, jnp.float32).at[cross].add(clicked)
        rate = (hits + prior * 20) / (seen + 20)
        return jnp.log(rate / (1 - rate))[cross], seen, bucket.astype(jnp.uint8)

    border = draw.leaf((fields, borders), "float32", lambda r, s: _sorted(r, s))
    args = (draw.normal(rows, fields), border, draw.mask(rows, share=0.1))
    return fun, (*args, draw.leaf((), "float32", lambda r, s: r.uniform(0.05, 0.2, s)))


def _sorted(random, shape):
    values = random.standard_normal(shape)
    values.sort(-1)
    return values
