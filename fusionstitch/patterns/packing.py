"""Kernel packing (paper 5.1, Figure 5a): independent pieces of work in one launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionstitch.patterns.contract import contract
from fusionstitch.patterns.convex import borders, escaping
from hlo.graph import Graph


def packing(
    graph: Graph, units: Sequence[int], max_pointers: int, max_ops: int
) -> Iterator[tuple[int, str]]:
    """Unions of `units` of equal depth as (bitset, rule): all of a depth, and those of a depth
    that have the same number of ops; each split where a kernel would need more than `max_pointers`
    pointers or `max_ops` ops. Depth is the longest chain of units before a unit, so equals are
    independent."""
    by_depth: dict[int, list[int]] = {}
    for number, depth in sorted(contract(graph, units).depths().items()):
        by_depth.setdefault(depth, []).append(units[number])
    for depth in sorted(by_depth):
        level = by_depth[depth]
        yield from _chunks(graph, level, max_pointers, max_ops)
        alike: dict[int, list[int]] = {}
        for unit in level:
            alike.setdefault(unit.bit_count(), []).append(unit)
        if len(alike) > 1:
            for group in alike.values():
                yield from _chunks(graph, group, max_pointers, max_ops)


def _chunks(
    graph: Graph, units: Sequence[int], max_pointers: int, max_ops: int
) -> Iterator[tuple[int, str]]:
    bits, members, pointers = 0, 0, 0
    for unit in units:
        need = borders(graph, unit).bit_count() + escaping(graph, unit).bit_count()
        full = pointers + need > max_pointers or (bits | unit).bit_count() > max_ops
        if members and full:
            if members > 1:
                yield bits, "packing"
            bits, members, pointers = 0, 0, 0
        bits, members, pointers = bits | unit, members + 1, pointers + need
    if members > 1:
        yield bits, "packing"
