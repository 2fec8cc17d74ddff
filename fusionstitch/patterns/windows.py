"""Windows: runs of adjacent levels of a graph, with everything in between.

Algorithm 1 offers either everything between two ops that libraries keep, or everything split at
every small GEMM or reduction. An unrolled recurrence of fifty steps needs something in between: a
few steps at a time. Windows double in length and overlap by half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import or_

from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.patterns.contract import contract, overlap, owned, union
from fusionstitch.patterns.convex import components
from fusionstitch.patterns.substitution import intervals, levels_of, partition_steps


def windows(graph: Graph, fusible: int) -> Iterator[tuple[int, str]]:
    """Runs of the intervals of each step as (bitset, rule), including partition ops. They are
    convex: levels rise along every edge, so a path between two ops of a window stays inside its
    levels, and inside the interval of the first step that it was cut from."""
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
                for first, end in _runs(len(bands)):
                    yield union(bands[first:end]), f"window ({step}, {order} order)"


def unit_windows(graph: Graph, units: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Runs of the depths of `units` as (bitset, rule), and their connected parts: several
    consecutive XLA kernels as one.

    Ops in several units join where all of these units are in the window. Other patterns have them
    where the first of the units is, which then passes their values on.
    """
    by_depth: dict[int, list[int]] = {}
    for number, depth in contract(graph, units).depths().items():
        by_depth.setdefault(depth, []).append(number)
    levels = [by_depth[depth] for depth in sorted(by_depth)]
    several = overlap(units)
    bands = [union(units[number] for number in level) for level in levels]
    # ops that units of other levels also compute, if those have ops of their own
    shared = [
        union(units[number] & several for number in level if units[number] & ~several)
        for level in levels
    ]
    before = list(accumulate(shared, or_, initial=0))
    after = list(accumulate(reversed(shared), or_, initial=0))[::-1]
    for first, end in _runs(len(levels)):
        yield from _with_parts(graph, union(bands[first:end]) & ~(before[first] | after[end]))
    own = owned(units)
    bands = [union(own[number] for number in level) for level in levels]
    for first, end in _runs(len(levels)):
        yield from _with_parts(graph, union(bands[first:end]))


def _with_parts(graph: Graph, bits: int) -> Iterator[tuple[int, str]]:
    yield bits, "window (units)"
    for part in components(graph, bits, shared_inputs=True):
        yield part, "window (units)"


def _runs(count: int) -> Iterator[tuple[int, int]]:
    """(first, end) of runs among `count` adjacent items."""
    width = 1
    while width < count:
        for first in range(0, count, max(1, width // 2)):
            yield first, min(count, first + width)
        width *= 2
