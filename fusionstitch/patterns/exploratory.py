"""Exploratory fusion (paper 4.2.2, Algorithm 2): patterns grown op by op around large tensors."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.patterns.convex import is_convex

#: Ops with more operands are excluded (paper 4.2.2): all subsets of operands would be explored.
MAX_OPERANDS = 10
#: The most patterns grown from one op, and the most ops of such a pattern.
MAX_PER_SEED = 32
MAX_OPS = 48


def explorable(graph: Graph, fusible: int, device: Device) -> int:
    """The ops for Algorithm 2: few operands, and a large tensor among operands and result."""
    bits = 0
    for i in ids(fusible):
        op = graph.ops[i]
        largest = max(op.shape.bytes, *(o.shape.bytes for o in op.operands))
        if len(op.operands) <= MAX_OPERANDS and largest >= device.large_tensor_bytes:
            bits |= 1 << i
    return bits


def exploratory(
    graph: Graph, fusible: int, device: Device, max_patterns: int
) -> Iterator[tuple[int, str]]:
    """Patterns as (bitset, rule), each connected and convex.

    Depth first from every op in topological order, producers before consumers, visiting each set of
    ops once. Ends at `max_patterns` in all and `MAX_PER_SEED` from one seed.
    """
    allowed = explorable(graph, fusible, device)
    seen: set[int] = set()
    for seed in ids(allowed):
        before = len(seen)
        stack = [1 << seed]
        while stack and len(seen) - before < MAX_PER_SEED:
            bits = stack.pop()
            if bits in seen or not is_convex(graph, bits):
                continue
            seen.add(bits)
            if bits.bit_count() > 1:
                yield bits, "exploratory"
            if len(seen) >= max_patterns:
                return
            if bits.bit_count() < MAX_OPS:
                stack += [bits | 1 << i for i in reversed(_expansion(graph, bits, allowed))]


def _expansion(graph: Graph, bits: int, allowed: int) -> list[int]:
    """Producers, then consumers, of the ops in `bits` that may join it."""
    producers, consumers = 0, 0
    for i in ids(bits):
        op: Op = graph.ops[i]
        for operand in op.operands:
            producers |= 1 << operand.id
        for user in graph.users[i]:
            consumers |= 1 << user.id
    producers &= allowed & ~bits
    consumers &= allowed & ~bits & ~producers
    return [*reversed(list(ids(producers))), *ids(consumers)]
