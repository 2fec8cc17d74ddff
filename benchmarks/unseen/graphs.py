"""Graphs: message passing, attention over edges, molecules, ranks, matchings."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.unseen.inputs import Draw, Program


def gcn(params: Any, x: Any, senders: Any, receivers: Any, labels: Any) -> Any:
    """The loss of two graph convolutions with symmetric normalization."""
    nodes = x.shape[0]
    degree = jax.ops.segment_sum(jnp.ones(receivers.shape), receivers, nodes) + 1.0
    scale = lax.rsqrt(degree)
    weight = (scale[senders] * scale[receivers])[:, None]

    def layer(h: Any, w: Any) -> Any:
        h = h @ w
        return jax.ops.segment_sum(h[senders] * weight, receivers, nodes) + h / degree[:, None]

    h = jax.nn.relu(layer(x, params["first"]) + params["bias"])
    log_p = jax.nn.log_softmax(layer(h, params["second"]))
    known = labels >= 0
    picked = jnp.take_along_axis(log_p, jnp.maximum(labels, 0)[:, None], axis=1)[:, 0]
    return -jnp.sum(picked * known) / jnp.sum(known)


def node_classification() -> Program:
    draw = Draw(41)
    params = {
        "first": draw.weight(128, 64),
        "bias": draw.normal(64, scale=0.01),
        "second": draw.weight(64, 7),
    }
    edges = (draw.integers(40009, high=6007) for _ in range(2))
    labels = draw.integers(6007, low=-3, high=7)
    return jax.value_and_grad(gcn), (params, draw.normal(6007, 128), *edges, labels)


def edge_attention(params: Any, x: Any, edges: Any, senders: Any, receivers: Any) -> Any:
    """A layer of graph attention with 4 heads and edge features, softmax over incoming edges."""
    nodes = x.shape[0]
    h = (x @ params["w"]).reshape(nodes, 4, 16)
    score = jnp.sum(h * params["from"], -1)[senders] + jnp.sum(h * params["to"], -1)[receivers]
    score = jax.nn.leaky_relu(score + edges @ params["edge"], 0.2)
    top = jax.ops.segment_max(score, receivers, nodes)
    weight = jnp.exp(score - top[receivers])
    total = jax.ops.segment_sum(weight, receivers, nodes)
    weight = weight / (total[receivers] + 1e-9)
    out = jax.ops.segment_sum(h[senders] * weight[..., None], receivers, nodes)
    return jax.nn.elu(out.reshape(nodes, 64))


def graph_attention() -> Program:
    draw = Draw(42)
    params = {
        "w": draw.weight(64, 64),
        "from": draw.normal(4, 16, scale=0.3),
        "to": draw.normal(4, 16, scale=0.3),
        "edge": draw.weight(5, 4),
    }
    x, edges = draw.normal(10007, 64), draw.normal(80021, 5)
    ends = (draw.integers(80021, high=10007) for _ in range(2))
    return edge_attention, (params, x, edges, *ends)


def equivariant(params: Any, h: Any, x: Any, atoms: Any) -> tuple[Any, Any]:
    """A layer of an E(n)-equivariant network over all pairs of one molecule."""
    count = h.shape[0]
    difference = x[:, None] - x[None, :]
    square = jnp.sum(difference**2, axis=-1)
    real = jnp.arange(count) < atoms
    pair = (real[:, None] & real[None, :] & ~jnp.eye(count, dtype=bool))[..., None]
    distance = jnp.sqrt(square + 1e-8)[..., None]
    rings = jnp.exp(-10.0 * (distance - jnp.linspace(0.0, 5.0, 16)) ** 2)
    first = h @ params["from"]
    second = h @ params["to"]
    m = jax.nn.silu(first[:, None] + second[None, :] + rings @ params["rings"])
    m = jax.nn.silu(m @ params["message"]) * pair
    push = jnp.tanh(m @ params["push"])
    moved = x + jnp.sum(difference / (distance + 1.0) * push * pair, axis=1) / (count - 1)
    update = jnp.concatenate([h, jnp.sum(m, axis=1)], axis=-1) @ params["update"]
    return (h + jax.nn.silu(update)) * real[:, None], moved


def molecules() -> Program:
    draw = Draw(43)
    params = {
        "from": draw.weight(32, 32),
        "to": draw.weight(32, 32),
        "rings": draw.weight(16, 32),
        "message": draw.weight(32, 32),
        "push": draw.weight(32, 1),
        "update": draw.weight(64, 32),
    }
    fun = jax.vmap(equivariant, in_axes=(None, 0, 0, 0))
    h, x = draw.normal(128, 29, 32), draw.normal(128, 29, 3, scale=2.0)
    return fun, (params, h, x, draw.integers(128, low=9, high=30))


def ranks(senders: Any, receivers: Any) -> tuple[Any, Any]:
    """PageRank by the power method until the ranks no longer change, 50 steps at most."""
    nodes = 20011
    out = jax.ops.segment_sum(jnp.ones(senders.shape), senders, nodes)
    share = jnp.where(out > 0, 1.0 / jnp.maximum(out, 1.0), 0.0)

    def step(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        rank, _, count = carry
        moved = jax.ops.segment_sum((rank * share)[senders], receivers, nodes)
        lost = jnp.sum(jnp.where(out > 0, 0.0, rank))
        new = 0.15 / nodes + 0.85 * (moved + lost / nodes)
        return new, jnp.sum(jnp.abs(new - rank)), count + 1

    def go_on(carry: tuple[Any, Any, Any]) -> Any:
        return (carry[1] > 1e-5) & (carry[2] < 50)

    rank, _, count = lax.while_loop(go_on, step, (jnp.full(nodes, 1 / nodes), jnp.inf, 0))
    return rank, count


def page_rank() -> Program:
    draw = Draw(44)
    receivers = (20011 * draw.uniform(400009) ** 2).astype(np.int32)
    return ranks, (draw.integers(400009, high=20011), receivers)


def sinkhorn(a: Any, b: Any) -> tuple[Any, Any]:
    """Soft matching of two point sets: 30 Sinkhorn iterations in logarithms, and its cost."""
    cost = jnp.sum((a[:, :, None] - b[:, None, :]) ** 2, axis=-1)
    cost = cost / jnp.mean(cost, axis=(1, 2), keepdims=True)
    kernel = -cost / 0.05

    def step(_: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        _, g = carry
        f = -jax.nn.logsumexp(kernel + g[:, None, :], axis=2) - jnp.log(a.shape[1])
        return f, -jax.nn.logsumexp(kernel + f[:, :, None], axis=1) - jnp.log(b.shape[1])

    start = jnp.zeros(a.shape[:2]), jnp.zeros(b.shape[:2])
    f, g = lax.fori_loop(0, 30, step, start)
    plan = jnp.exp(kernel + f[:, :, None] + g[:, None, :])
    return plan, jnp.sum(plan * cost, axis=(1, 2))


def sinkhorn_matching() -> Program:
    draw = Draw(45)
    return sinkhorn, (draw.normal(32, 127, 3), draw.normal(32, 131, 3))
