"""Windows: runs of neighbouring intervals of Algorithm 1, with the partition ops between them.

Algorithm 1 offers either everything between two kept ops, or everything split at every small GEMM
or reduction. An unrolled recurrence of fifty steps wants something in between: a few steps at a
time. Windows double in length and overlap by half.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.patterns.substitution import intervals, levels_of, partition_steps
from hlo.graph import Graph, ids


def windows(graph: Graph, fusible: int) -> Iterator[tuple[int, str]]:
    """(bitset, rule) of every window. Convex: levels rise along every edge, so a path between two
    ops of a window stays inside its levels, and inside the interval it was cut from."""
    steps = list(partition_steps(graph, fusible))
    for order in ("earliest", "latest"):
        whole = intervals(graph, fusible, steps[0][1], order)
        for step, parts in steps[1:]:
            levels = levels_of(graph, parts, order)
            for interval in whole:
                by_level: dict[int, int] = {}
                for i in ids(interval):
                    by_level[levels[i]] = by_level.get(levels[i], 0) | 1 << i
                bands = [by_level[level] for level in sorted(by_level)]
                for bits in _runs(bands):
                    yield bits, f"window ({step}, {order} order)"


def _runs(bands: list[int]) -> Iterator[int]:
    width = 1
    while width < len(bands):
        stride = max(1, width // 2)
        for start in range(0, len(bands), stride):
            bits = 0
            for band in bands[start : start + width]:
                bits |= band
            yield bits
        width *= 2
