"""Substitution fusion (paper 4.2.1, Algorithm 1): everything between partition ops is a pattern."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping

from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.patterns.convex import components, predecessors


class Class(enum.Enum):
    """What makes an op a partition op, in the order in which they are added."""

    BATCHED_DOT = "batched dot"
    DOT = "dot"
    COLUMN = "column reduction"
    SCALAR = "scalar reduction"
    ROW = "row reduction"


def partition_class(op: Op) -> Class | None:
    """The class of a fusible op; None for elementwise and movement ops.

    A row reduction sums over the last dims, a scalar one over all, any other is a column
    reduction. Dims of extent one do not matter.
    """
    if op.opcode == "dot":
        return Class.BATCHED_DOT if op.attrs["lhs_batch"] else Class.DOT
    if kind_of(op.opcode) is not Kind.REDUCTION:
        return None
    dims = op.operands[0].dims
    reduced = [d in op.attrs["dimensions"] for d, n in enumerate(dims) if n > 1]
    if all(reduced):
        return Class.SCALAR
    return Class.ROW if reduced == sorted(reduced) and reduced[-1] else Class.COLUMN


def partition_steps(graph: Graph, fusible: int) -> Iterator[tuple[str, int]]:
    """(name, bitset of partition ops) per step of the multi-step heuristic, the first one being
    all ops that cannot be fused at all."""
    classes: dict[Class, int] = dict.fromkeys(Class, 0)
    for i in ids(fusible):
        found = partition_class(graph.ops[i])
        if found is not None:
            classes[found] |= 1 << i
    bits, inert = 0, fusible | free_bits(graph)
    for op in graph:
        # a tuple that is read separates its parts from its readers
        barrier = op.opcode in ("tuple", "after-all") and graph.users[op.id]
        if barrier or (kind_of(op.opcode) is not Kind.STRUCTURE and not inert >> op.id & 1):
            bits |= 1 << op.id
    yield "left to XLA", bits
    for found in Class:
        if classes[found]:
            bits |= classes[found]
            yield found.value, bits


def _input_order(graph: Graph, parts: int) -> list[int]:
    level = 0
    levels: list[int] = []
    for op in graph:
        level += parts >> op.id & 1
        levels.append(level)
    return levels


def _earliest(graph: Graph, parts: int) -> list[int]:
    before = predecessors(graph)
    levels: list[int] = []
    for op in graph:
        level = max((levels[i] for i in ids(before[op.id])), default=0)
        levels.append(level + (parts >> op.id & 1))
    return levels


def _latest(graph: Graph, parts: int) -> list[int]:
    before = predecessors(graph)
    levels = [0] * len(graph)
    for op in reversed(graph.ops):
        # a member just before a partition op is one level before it; the partition op itself shares
        # the level of its successors, as in the other two orders
        level = levels[op.id]
        for i in ids(before[op.id]):
            levels[i] = min(levels[i], level - (parts >> op.id & 1))
    return levels


#: Topological orders that Algorithm 1 is run on, each as the number of partition ops at or before
#: an op. `input` is the graph's own order; `earliest` and `latest` put every op as soon or as late
#: after a partition op as its dependences allow, which makes the fewest patterns.
ORDERS: Mapping[str, Callable[[Graph, int], list[int]]] = {
    "input": _input_order,
    "earliest": _earliest,
    "latest": _latest,
}


def levels_of(graph: Graph, parts: int, order: str) -> list[int]:
    """Per op, how many partition ops come at or before it in `order`; rises along every edge."""
    return ORDERS[order](graph, parts)


def intervals(graph: Graph, fusible: int, parts: int, order: str) -> list[int]:
    """Algorithm 1: the fusible ops between one partition op and the next, START before the first.

    Every result is convex: an op on a path between two ops of one interval lies between them in
    the order, and it is not a partition op, because those raise the count.
    """
    found: dict[int, int] = {}
    levels = levels_of(graph, parts, order)
    for i in ids(fusible & ~parts):
        found[levels[i]] = found.get(levels[i], 0) | 1 << i
    return [found[level] for level in sorted(found)]


def substitution(graph: Graph, fusible: int) -> Iterator[tuple[int, str]]:
    """All patterns of the multi-step heuristic as (bitset, rule): the intervals of every step and
    order, and their connected parts, since packing independent parts is a separate choice."""
    for step, parts in partition_steps(graph, fusible):
        for order in ORDERS:
            for interval in intervals(graph, fusible, parts, order):
                rule = f"substitution ({step}, {order} order)"
                yield interval, rule
                for shared in (True, False):
                    for part in components(graph, interval, shared):
                        yield part, rule
