"""Iterated linear algebra: a reduction over everything in each iteration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


@loop("grid", size=8)
def conjugate_gradients(size: int = 1024) -> Program:
    """A dense positive system until the residual is small."""

    def run(a: Any, b: Any) -> Any:
        def go_on(carry: Any) -> Any:
            return (carry[3] > 1e-8) & (carry[4] < 200)

        def step(carry: Any) -> Any:
            x, r, p, square, n = carry
            along = a @ p
            alpha = square / (p @ along)
            x, r = x + alpha * p, r - alpha * along
            new = r @ r
            return x, r, r + new / square * p, new, n + 1

        start = jnp.zeros(size), b, b, b @ b, 0
        x, _, _, square, _ = lax.while_loop(go_on, step, start)
        return x, jnp.sqrt(square) < 1e-3

    draw = Draw(81)
    g = draw.weight(size, size)
    a = g @ g.T
    a[range(size), range(size)] += 1.0
    return run, (a, draw.normal(size))


@loop("grid", nodes=16, edges=40, steps=3)
def page_rank(nodes: int = 16384, edges: int = 131072, steps: int = 50) -> Program:
    """Ranks pushed along edges by a sum over segments."""

    def run(senders: Any, receivers: Any) -> Any:
        out = jnp.zeros(nodes).at[senders].add(1.0)
        share = jnp.where(out > 0, 1 / jnp.maximum(out, 1.0), 0.0)

        def step(_: Any, rank: Any) -> Any:
            sent = (rank * share)[senders]
            new = jax.ops.segment_sum(sent, receivers, nodes)
            lost = jnp.sum(jnp.where(out > 0, 0.0, rank))
            return 0.15 / nodes + 0.85 * (new + lost / nodes)

        return lax.fori_loop(0, steps, step, jnp.full(nodes, 1 / nodes))

    draw = Draw(82)
    return run, (draw.integers(edges, high=nodes), draw.integers(edges, high=nodes))


@loop("grid", size=8, steps=4)
def power_iteration(size: int = 2048, steps: int = 100) -> Program:
    """The greatest eigenvalue of a dense matrix."""

    def run(a: Any, v: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            v = a @ carry
            size = jnp.sqrt(jnp.sum(v * v))
            return v / size, size

        return lax.scan(step, v, None, length=steps)

    draw = Draw(83)
    g = draw.weight(size, size)
    return run, (0.5 * (g + g.T), draw.normal(size))


@loop("grid", rows=8, columns=6, steps=4)
def sinkhorn(rows: int = 1024, columns: int = 1024, steps: int = 100) -> Program:
    """Optimal transport in logarithms: sums over rows, then over columns."""

    def run(cost: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            f, g = carry
            f = -0.1 * jax.nn.logsumexp((g - cost) / 0.1, axis=1)
            return f, -0.1 * jax.nn.logsumexp((f[:, None] - cost) / 0.1, axis=0)

        return lax.fori_loop(0, steps, step, (jnp.zeros(rows), jnp.zeros(columns)))

    return run, (Draw(84).uniform(rows, columns),)


@loop("rows", batch=2, size=5, steps=4)
def sinkhorn_batch(batch: int = 512, size: int = 32, steps: int = 50) -> Program:
    """Many small transports at once, by scaling."""

    def run(cost: Any) -> Any:
        kernel = jnp.exp(-cost / 0.2)

        def step(carry: Any, _: Any) -> tuple[Any, None]:
            _, v = carry
            u = 1.0 / (jnp.einsum("bij,bj->bi", kernel, v) * size)
            return (u, 1.0 / (jnp.einsum("bij,bi->bj", kernel, u) * size)), None

        one = jnp.ones((batch, size))
        (u, v), _ = lax.scan(step, (one, one), None, length=steps)
        return u[:, :, None] * kernel * v[:, None, :]

    return run, (Draw(85).uniform(batch, size, size),)


@loop("grid", points=32, clusters=3, steps=3)
def k_means(points: int = 16384, clusters: int = 16, steps: int = 30) -> Program:
    """Lloyd's iterations in eight dimensions."""

    def run(x: Any, centers: Any) -> Any:
        def step(_: Any, centers: Any) -> Any:
            away = jnp.sum(x**2, 1)[:, None] - 2 * x @ centers.T + jnp.sum(centers**2, 1)
            own = jax.nn.one_hot(jnp.argmin(away, axis=1), clusters)
            count = own.sum(axis=0)[:, None]
            return jnp.where(count > 0, own.T @ x / jnp.maximum(count, 1.0), centers)

        return lax.fori_loop(0, steps, step, centers)

    x = Draw(86).normal(points, 8)
    return run, (x, x[:clusters].copy())
