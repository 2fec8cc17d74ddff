"""Graphs: messages along edges, attention, pooling, neighbours of points, structure by bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _segment_softmax(score, segment, count):
    high = jax.ops.segment_max(score, segment, count)
    e = jnp.exp(score - jnp.where(jnp.isfinite(high), high, 0)[segment])
    return e / (jax.ops.segment_sum(e, segment, count)[segment] + 1e-16)


def _edges(draw: Draw, nodes: int, degree: int, sort: bool):
    """Sources and targets of edges; sorted by target, as loaders of data leave them, or not."""
    count = nodes * degree
    target = draw.segments(count, nodes) if sort else draw.integers(count, high=nodes)
    return draw.popular(count, high=nodes), target


@template
def dynamic_attention(draw: Draw):
    """Attention over the edges whose score has its activation first."""
    nodes, degree = draw.size(4000, 40000), draw.size(4, 16)
    heads, c = draw.choice(1, 4, 8), draw.choice(8, 16, 32)

    def fun(x, left, right, a, source, target):
        hl = (x @ left).reshape(nodes, heads, c)
        hr = (x @ right).reshape(nodes, heads, c)
        score = (jax.nn.leaky_relu(hl[source] + hr[target], 0.2) * a).sum(-1)
        alpha = _segment_softmax(score, target, nodes)
        y = jax.ops.segment_sum(alpha[..., None] * hl[source], target, nodes)
        return jax.nn.elu(y.reshape(nodes, -1))

    edges = _edges(draw, nodes, degree, draw.choice(True, False))
    weights = (draw.weight(64, heads * c) for _ in range(2))
    return fun, (draw.normal(nodes, 64), *weights, draw.normal(heads, c), *edges)


@template
def two_convolutions_gradient(draw: Draw):
    """Two layers normalised by degrees, dropout by a mask, a loss on the labelled nodes."""
    nodes, degree, c = draw.size(4000, 60000), draw.size(3, 12), draw.size(32, 256, 8)
    classes, hidden = draw.odd_size(5, 47), draw.choice(16, 64)
    sort = draw.choice(True, False)

    def loss(params, x, source, target, label, train, keep):
        ones = jnp.ones(source.shape)
        out = lax.rsqrt(jnp.maximum(jax.ops.segment_sum(ones, source, nodes), 1))
        into = lax.rsqrt(jnp.maximum(jax.ops.segment_sum(ones, target, nodes), 1))

        def spread(h):
            return into[:, None] * jax.ops.segment_sum(
                (out[:, None] * h)[source], target, nodes, indices_are_sorted=sort
            )

        h = jax.nn.relu(spread(x @ params[0]["w"]) + params[0]["b"])
        h = jnp.where(keep, h / 0.5, 0)
        log_p = jax.nn.log_softmax(spread(h @ params[1]["w"]) + params[1]["b"])
        picked = jnp.take_along_axis(log_p, label[:, None], 1)[:, 0]
        return -(picked * train).sum() / train.sum()

    params, edges = draw.layers(c, hidden, classes), _edges(draw, nodes, degree, sort)
    args = (params, draw.normal(nodes, c), *edges, draw.integers(nodes, high=classes))
    masks = (draw.mask(nodes, share=0.2), draw.mask(nodes, hidden, share=0.5))
    return jax.value_and_grad(loss), (*args, *masks)


@template
def principal_aggregation(draw: Draw):
    """Mean, deviation, least and greatest of the neighbours, each scaled by degree."""
    nodes, degree, c = draw.size(2000, 24000), draw.size(4, 12), draw.size(16, 96, 4)
    dtype = draw.dtype("float32", "bfloat16")

    def fun(x, edge, source, target, w):
        message = jax.nn.relu(x[source] + edge).astype(jnp.float32)
        count = jax.ops.segment_sum(jnp.ones(target.shape), target, nodes)[:, None]
        safe = jnp.maximum(count, 1)
        mean = jax.ops.segment_sum(message, target, nodes) / safe
        square = jax.ops.segment_sum(message**2, target, nodes) / safe
        deviation = jnp.sqrt(jax.nn.relu(square - mean**2) + 1e-5)
        low = jnp.where(count > 0, jax.ops.segment_min(message, target, nodes), 0)
        high = jnp.where(count > 0, jax.ops.segment_max(message, target, nodes), 0)
        all_ = jnp.concatenate([mean, deviation, low, high], -1)
        scale = jnp.log(count + 1) / jnp.log(degree + 1.0)
        all_ = jnp.concatenate([all_, all_ * scale, all_ / jnp.maximum(scale, 0.1)], -1)
        return x + (all_.astype(dtype) @ w)

    x = draw.normal(nodes, c, dtype=dtype)
    edge = draw.normal(nodes * degree, c, dtype=dtype)
    edges = _edges(draw, nodes, degree, draw.choice(True, False))
    return fun, (x, edge, *edges, draw.weight(12 * c, c, dtype=dtype))


@template
def continuous_filters(draw: Draw):
    """Distances of atoms in a basis, filters from them with a cutoff: the energy's forces."""
    atoms, degree, c = draw.size(1000, 16000), draw.size(8, 32), draw.choice(32, 64, 128)
    basis, cutoff = draw.choice(20, 50), draw.number(4, 8)

    def energy(place, params, h, source, target):
        d = jnp.sqrt(((place[source] - place[target]) ** 2).sum(-1) + 1e-6)
        centre = jnp.linspace(0, cutoff, basis)
        wave = jnp.exp(-((d[:, None] - centre) ** 2) * (basis / cutoff) ** 2 / 2)
        near = jnp.where(d < cutoff, 0.5 * (jnp.cos(jnp.pi * d / cutoff) + 1), 0)
        w = jax.nn.softplus(wave @ params["in"]["w"] + params["in"]["b"]) - jnp.log(2.0)
        w = (w @ params["out"]["w"] + params["out"]["b"]) * near[:, None]
        y = jax.ops.segment_sum(h[source] * w, target, atoms)
        return (jax.nn.softplus(y) @ params["energy"]).sum()

    first, second = draw.layers(basis, c, c)
    params = {"in": first, "out": second, "energy": draw.weight(c, 1)}
    edges = _edges(draw, atoms, degree, True)
    args = (draw.normal(atoms, 3, scale=3), params, draw.normal(atoms, c), *edges)
    return jax.value_and_grad(energy), args


@template
def nearest_points(draw: Draw):
    """The nearest points of each, features of the edges to them, the greatest over these."""
    n, points, c = draw.size(4, 16), draw.size(256, 1536, 1, 20), draw.choice(3, 16, 64)
    near, wide = draw.choice(8, 16, 20), draw.choice(32, 64)

    def one(x, w, scale):
        square = (x**2).sum(-1)
        _, index = lax.top_k(2 * x @ x.T - square[:, None] - square, near)
        edge = jnp.concatenate([x[index] - x[:, None], jnp.repeat(x[:, None], near, 1)], -1)
        y = edge @ w
        y = (y - y.mean((0, 1))) / jnp.sqrt(y.var((0, 1)) + 1e-5) * scale
        return jax.nn.leaky_relu(y, 0.2).max(1)

    args = (draw.normal(n, points, c), draw.weight(2 * c, wide), draw.normal(wide))
    return jax.vmap(one, in_axes=(0, None, None)), args


@template
def link_prediction(draw: Draw):
    """Triples of a knowledge graph against drawn ones: gradients of both tables."""
    entities, relations = draw.size(10000, 160000), draw.size(10, 400)
    rows, wrong, c = draw.size(256, 2048), draw.choice(4, 16, 32), draw.choice(32, 64, 100)
    form = draw.choice("translation", "rotation", "bilinear")

    def score(head, relation, tail):
        if form == "translation":
            return 9 - jnp.abs(head + relation - tail).sum(-1)
        if form == "bilinear":
            return (head * relation * tail).sum(-1)
        (hr, hi), (tr, ti) = jnp.split(head, 2, -1), jnp.split(tail, 2, -1)
        cos, sin = jnp.cos(relation[..., : c // 2]), jnp.sin(relation[..., : c // 2])
        re, im = hr * cos - hi * sin - tr, hr * sin + hi * cos - ti
        return 9 - jnp.sqrt(re**2 + im**2 + 1e-9).sum(-1)

    def loss(tables, head, relation, tail, other):
        e, r = tables
        good = score(e[head], r[relation], e[tail])
        bad = score(e[head][:, None], r[relation][:, None], e[other])
        weight = lax.stop_gradient(jax.nn.softmax(bad, -1))
        against = (weight * jax.nn.log_sigmoid(-bad)).sum(-1)
        return -(jax.nn.log_sigmoid(good) + against).mean() / 2

    tables = (draw.normal(entities, c, scale=0.3), draw.normal(relations, c))
    triples = (draw.popular(rows, high=entities), draw.integers(rows, high=relations))
    others = (draw.popular(rows, high=entities), draw.integers(rows, wrong, high=entities))
    return jax.value_and_grad(loss), (tables, *triples, *others)


@template
def dense_graph_attention(draw: Draw):
    """Attention over all pairs with biases by distance in the graph and by kinds of edges."""
    n, nodes, heads = draw.size(64, 512), draw.odd_size(17, 129), draw.choice(4, 8)
    depth, kinds, dtype = draw.choice(16, 32), draw.size(4, 26), draw.dtype("float32", "bfloat16")

    def fun(q, k, v, far, kind, by_distance, by_kind, count):
        s = jnp.einsum("nihd,njhd->nhij", q, k).astype(jnp.float32) * depth**-0.5
        bias = by_distance[jnp.minimum(far, 19)] + by_kind[kind].mean(-2)
        s = s + bias.transpose(0, 3, 1, 2)
        there = jnp.arange(nodes) < count[:, None]
        p = jax.nn.softmax(jnp.where(there[:, None, None], s, -jnp.inf), -1)
        y = jnp.einsum("nhij,njhd->nihd", p.astype(dtype), v)
        return jnp.where(there[:, :, None, None], y, 0)

    q, k, v = (draw.normal(n, nodes, heads, depth, dtype=dtype) for _ in range(3))
    far = draw.integers(n, nodes, nodes, high=32, dtype="uint8")
    kind = draw.integers(n, nodes, nodes, 3, high=kinds)
    tables = (draw.normal(20, heads), draw.normal(kinds, heads))
    return fun, (q, k, v, far, kind, *tables, draw.lengths(n, nodes))


@template
def spread_labels(draw: Draw):
    """Known labels spread along the edges for a few steps, held where they are known."""
    nodes, degree = draw.size(5000, 60000), draw.size(4, 12)
    classes, steps, alpha = draw.odd_size(3, 41), draw.choice(2, 3, 4), draw.number(0.5, 0.95)

    def fun(label, known, source, target):
        hot = jnp.where(known[:, None], jax.nn.one_hot(label, classes), 0)
        degree_ = jax.ops.segment_sum(jnp.ones(target.shape), target, nodes)
        norm = jnp.where(degree_ > 0, lax.rsqrt(jnp.maximum(degree_, 1)), 0)
        weight = (norm[source] * norm[target])[:, None]
        y = hot
        for _ in range(steps):
            y = alpha * jax.ops.segment_sum(weight * y[source], target, nodes) + (1 - alpha) * hot
            y = jnp.clip(y, 0, 1)
        return jnp.where(known, label, y.argmax(-1)), y.max(-1)

    edges = _edges(draw, nodes, degree, draw.choice(True, False))
    return fun, (draw.integers(nodes, high=classes), draw.mask(nodes, share=0.1), *edges)


@template
def gated_update(draw: Draw):
    """Messages by kind of edge, then a gated recurrent cell updates every node."""
    nodes, degree, c = draw.size(4000, 32000), draw.size(2, 8), draw.choice(32, 64, 96)
    kinds, dtype = draw.choice(2, 3, 4), draw.dtype("float32", "bfloat16")

    def fun(h, kind, source, target, w, cell_in, cell_own):
        sent = jnp.einsum("nc,kcd->knd", h, w)[kind, source]
        m = jax.ops.segment_sum(sent.astype(jnp.float32), target, nodes).astype(dtype)
        r, z, new = jnp.split(m @ cell_in["w"] + cell_in["b"], 3, -1)
        own_r, own_z, own_new = jnp.split(h @ cell_own["w"] + cell_own["b"], 3, -1)
        gate, z = jax.nn.sigmoid(r + own_r), jax.nn.sigmoid(z + own_z)
        return (1 - z) * jnp.tanh(new + gate * own_new) + z * h

    edges = _edges(draw, nodes, degree, True)
    cells = [draw.layers(c, 3 * c, dtype=dtype)[0] for _ in range(2)]
    h, w = draw.normal(nodes, c, dtype=dtype), draw.weight(kinds, c, c, dtype=dtype)
    return fun, (h, draw.integers(nodes * degree, high=kinds), *edges, w, *cells)


@template
def shared_neighbours(draw: Draw):
    """Neighbourhoods as bits: common ones, Jaccard and Adamic scores of pairs of nodes."""
    nodes, words, pairs = draw.size(8000, 64000), draw.size(16, 250), draw.size(4000, 40000)

    def fun(bits, one, other):
        a, b = bits[one], bits[other]
        common = lax.population_count(a & b).astype(jnp.int32).sum(-1)
        either = lax.population_count(a | b).astype(jnp.int32).sum(-1)
        degree = lax.population_count(bits).astype(jnp.int32).sum(-1)
        product = degree[one].astype(jnp.float32) * degree[other]
        jaccard = jnp.where(either > 0, common / jnp.maximum(either, 1), 0.0)
        return common, jaccard, common * lax.rsqrt(jnp.maximum(product, 1))

    ends = (draw.popular(pairs, high=nodes), draw.integers(pairs, high=nodes))
    return fun, (draw.bits(nodes, words), *ends)


@template
def pooled_graphs(draw: Draw):
    """The best scored nodes of each graph, gated by their score, and the edges between them."""
    n, nodes, c = draw.size(32, 256), draw.size(40, 200), draw.choice(32, 64, 128)
    kept, axis = draw.size(10, 32), draw.choice(1, 2)
    kept = min(kept, nodes)

    def fun(x, links, p, count):
        score = x @ p / jnp.linalg.norm(p)
        score = jnp.where(jnp.arange(nodes) < count[:, None], score, -jnp.inf)
        best, index = lax.top_k(score, kept)
        gate = jnp.where(jnp.isfinite(best), jnp.tanh(best), 0)
        y = jnp.take_along_axis(x, index[..., None], 1) * gate[..., None]
        left = jnp.take_along_axis(links, index[:, :, None], 1)
        small = jnp.take_along_axis(left, index[:, None], 2)
        degree = small.sum(axis, keepdims=True)
        small = small / jnp.maximum(degree, 1)
        return jnp.concatenate([y.max(1), y.mean(1)], -1), small

    links = draw.integers(n, nodes, nodes, high=2, dtype="float32")
    return fun, (draw.normal(n, nodes, c), links, draw.normal(c), draw.lengths(n, nodes))
