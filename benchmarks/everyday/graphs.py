"""Graphs: messages along edges, attention over neighbours, iterations to a fixed point."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.ops import segment_max, segment_sum

from benchmarks.everyday.table import program

NODES, EDGES = 5003, 60013


def _edges(r):
    return r.integers(EDGES, high=NODES), r.integers(EDGES, high=NODES)


@program(lambda r: (r.normal(NODES, 48), *_edges(r), *r.layers(48, 32)))
def graph_convolution(x, source, target, layer):
    """Messages weighted by the degrees of both ends."""
    one = jnp.ones(source.shape)
    out, into = (segment_sum(one, ends, NODES) + 1 for ends in (source, target))
    weight = lax.rsqrt(out)[source] * lax.rsqrt(into)[target]
    h = x @ layer["w"]
    mixed = segment_sum(h[source] * weight[:, None], target, NODES) + h / into[:, None]
    return jax.nn.elu(mixed + layer["b"])


@program(lambda r: (r.normal(NODES, 4, 16), *_edges(r), r.normal(4, 16), r.normal(4, 16)))
def graph_attention(h, source, target, left, right):
    """A softmax over the neighbours of each node, four heads."""
    score = (h * left).sum(-1)[source] + (h * right).sum(-1)[target]
    score = jax.nn.leaky_relu(score, 0.2)
    top = segment_max(score, target, NODES)
    e = jnp.exp(score - jnp.where(jnp.isfinite(top), top, 0)[target])
    weight = e / (segment_sum(e, target, NODES)[target] + 1e-9)
    return segment_sum(h[source] * weight[..., None], target, NODES).reshape(NODES, -1)


@program(lambda r: (r.chance(0.02, 1009, 1009),))
def page_rank(links):
    """Twenty iterations with a dense matrix, as fori_loop."""
    a = links.astype(jnp.float32)
    degree = a.sum(1)
    step = jnp.where(degree[:, None] > 0, a / jnp.maximum(degree, 1)[:, None], 1 / a.shape[0])

    def body(_, p):
        p = 0.85 * (p @ step) + 0.15 / a.shape[0]
        return p / p.sum()

    return lax.fori_loop(0, 20, body, jnp.full(a.shape[0], 1 / a.shape[0]))


@program(lambda r: (r.normal(NODES, 24), r.normal(EDGES, 5), *_edges(r), r.layers(53, 40, 24)))
def message_passing(x, edge, source, target, layers):
    """A small network on every edge, the maximum and mean of what arrives."""
    m = jnp.concatenate([x[source], x[target], edge], -1)
    for layer in layers[:-1]:
        m = jax.nn.relu(m @ layer["w"] + layer["b"])
    m = m @ layers[-1]["w"] + layers[-1]["b"]
    top = segment_max(m, target, NODES)
    count = segment_sum(jnp.ones(EDGES), target, NODES)
    mean = segment_sum(m, target, NODES) / jnp.maximum(count, 1)[:, None]
    return x + jnp.where(jnp.isfinite(top), top, 0.0) + mean


@program(lambda r: (r.normal(1009, 37), r.uniform()))
def smoothed_over_neighbours(x, width):
    """A normalised kernel matrix of all pairs, applied and its entropy."""
    square = (x**2).sum(1)
    away = square[:, None] + square - 2 * x @ x.T
    kernel = jnp.exp(-jnp.maximum(away, 0) / (1 + width)) * (1 - jnp.eye(x.shape[0]))
    p = kernel / (kernel.sum(1, keepdims=True) + 1e-12)
    return p @ x, -(p * jnp.log(p + 1e-12)).sum(1)
