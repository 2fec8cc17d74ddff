"""A graph network: three rounds of message passing, trained to predict a value of each node.

Each edge computes a message from the nodes at its ends, and each node sums what arrives. XLA
has separate kernels for gathers, products, norms and scatters, forward and backward.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, sgd, size

Layer = dict[str, jax.Array]
Params = list[dict[str, Layer]]
Graph = dict[str, jax.Array]


def mlp(p: Layer, x: jax.Array) -> jax.Array:
    """Two dense layers and a layer norm over each row of x."""
    x = jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    return jax.nn.standardize(x) * p["scale"] + p["shift"]


def cost(params: Params, graph: Graph) -> jax.Array:
    """Squared error of the first feature of each node after all rounds."""
    nodes, edges = graph["nodes"], graph["edges"]
    for layer in params:
        ends = [nodes[graph["senders"]], nodes[graph["receivers"]]]
        edges = edges + mlp(layer["edge"], jnp.concatenate([edges, *ends], axis=1))
        arrived = jax.ops.segment_sum(edges, graph["receivers"], num_segments=len(nodes))
        nodes = nodes + mlp(layer["node"], jnp.concatenate([nodes, arrived], axis=1))
    return jnp.mean((nodes[:, 0] - graph["target"]) ** 2)


def step(params: Params, graph: Graph) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(cost)(params, graph)
    return sgd(params, grads, 0.01), loss


def init(draw: Random, inputs: int, width: int) -> Layer:
    layer = {"w1": draw.glorot(inputs, width), "w2": draw.glorot(width, width)}
    layer |= {name: jnp.zeros(width) for name in ("b1", "b2", "shift")}
    return {**layer, "scale": jnp.ones(width)}


def train_step() -> Workload:
    """10,000 nodes, 60,000 edges, width 64 (small: 20, 60, 8)."""
    nodes, edges, width = size((10_000, 60_000, 64), (20, 60, 8))
    draw = Random()
    params = [
        {"edge": init(draw, 3 * width, width), "node": init(draw, 2 * width, width)}
        for _ in range(3)
    ]
    graph = {
        "nodes": draw.normal(nodes, width),
        "edges": draw.normal(edges, width),
        "senders": draw.integers(edges, high=nodes),
        "receivers": draw.integers(edges, high=nodes),
        "target": draw.normal(nodes),
    }
    return step, (params, graph)
