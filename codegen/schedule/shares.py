"""Blocks for independent sums of columns.

One sum of columns fills the device with parts of its rows. Several of them, one after the other,
would each wait for memory anew, and each leave as many partial sums. Side by side, each gets a
share of the blocks in proportion to the bytes it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.hlo.graph import Graph, Op, ids


def shares(graph: Graph, sums: Sequence[Op]) -> dict[int, float]:
    """The share of the device that each of several `sums` gets, by op id, those of all that read
    different arrays together 1. Sums down the same rows work in the same blocks."""
    if len(sums) < 2:
        return {}
    import networkx as nx  # on first use: few programs need it, and it takes a while to load

    arrays = {op.id: _arrays(graph, op) for op in sums}
    together = nx.Graph((op, ("array", i)) for op, read in arrays.items() for i in read)
    clusters = [[i for i in found if i in arrays] for found in nx.connected_components(together)]
    weights = [_bytes(graph, set().union(*(arrays[i] for i in found))) for found in clusters]
    pairs = zip(clusters, weights, strict=True)
    return {i: weight / sum(weights) for cluster, weight in pairs for i in cluster}


def _arrays(graph: Graph, op: Op) -> set[int]:
    """The inputs of about as many elements as a reduction visits that it is computed from."""
    size = op.operands[0].shape.size
    read = (graph.ops[i] for i in ids(graph.reach[op.id]))
    return {o.id for o in read if o.opcode == "parameter" and 2 * o.shape.size >= size}


def _bytes(graph: Graph, numbers: set[int]) -> int:
    return sum(graph.ops[i].shape.bytes for i in numbers)
