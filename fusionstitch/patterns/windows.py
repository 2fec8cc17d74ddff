"""Windows: runs of neighbouring levels of a graph, with what lies between them.

Algorithm 1 offers either everything between two kept ops, or everything split at every small GEMM
or reduction. An unrolled recurrence of fifty steps wants something in between: a few steps at a
time. Windows double in length and overlap by half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionstitch.patterns.contract import contract, overlap
from fusionstitch.patterns.convex import components
from fusionstitch.patterns.substitution import intervals, levels_of, partition_steps
from hlo.graph import Graph, ids


def windows(graph: Graph, fusible: int) -> Iterator[tuple[int, str]]:
    """Runs of the intervals of each step as (bitset, rule), partition ops included. Convex: levels
    rise along every edge, so a path between two ops of a window stays inside its levels, and
    inside the interval of the first step that it was cut from."""
    steps = list(partition_steps(graph, fusible))
    for order in ("earliest", "latest"):
        whole = intervals(graph, fusible, steps[0][1], order)
        for step, parts in steps[1:]:
            levels = levels_of(graph, parts, order)
            for interval in whole:
                by_level: dict[int, int] = {}
                for i in ids(interval):
                    by_level[levels[i]] = by_level.get(levels[i], 0) | 1 << i
                for bits in _runs([by_level[level] for level in sorted(by_level)]):
                    yield bits, f"window ({step}, {order} order)"


def unit_windows(graph: Graph, units: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Runs of the depths of `units` as (bitset, rule), and their connected parts: several of XLA's
    kernels in a row as one. Ops that several units hold join where all of those are in."""
    by_depth: dict[int, list[int]] = {}
    for number, depth in contract(graph, units).depths().items():
        by_depth.setdefault(depth, []).append(number)
    several = overlap(units)
    bands = []
    for depth in sorted(by_depth):
        bits = 0
        for number in by_depth[depth]:
            bits |= units[number]
        bands.append(bits)
    for bits in _runs(bands):
        outside = 0
        for unit in units:
            if unit & ~several & ~bits:
                outside |= unit
        inside = bits & ~(outside & several)
        yield inside, "window (units)"
        for part in components(graph, inside, shared_inputs=True):
            yield part, "window (units)"


def _runs(bands: Sequence[int]) -> Iterator[int]:
    width = 1
    while width < len(bands):
        stride = max(1, width // 2)
        for start in range(0, len(bands), stride):
            bits = 0
            for band in bands[start : start + width]:
                bits |= band
            yield bits
        width *= 2
