"""Kernel packing (paper 5.1, Figure 5a): independent pieces of work in one launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionstitch.hlo.graph import Graph
from fusionstitch.patterns.contract import contract, overlap
from fusionstitch.patterns.convex import borders, escaping


def packing(
    graph: Graph, units: Sequence[int], max_pointers: int, max_ops: int
) -> Iterator[tuple[int, str]]:
    """Unions of `units` of equal depth as (bitset, rule).

    For each depth it offers all units, and those with the same number of ops. Unions are split if a
    kernel would need more than `max_pointers` pointers or `max_ops` ops. Depth is the longest chain
    of units before a unit, so units of equal depth are independent. Ops in several chunks (cheap
    ones that XLA computes repeatedly) are removed from all, since otherwise only one of the chunks
    could be chosen.
    """
    by_depth: dict[int, list[int]] = {}
    for number, depth in sorted(contract(graph, units).depths().items()):
        by_depth.setdefault(depth, []).append(units[number])
    for depth in sorted(by_depth):
        level = by_depth[depth]
        alike: dict[int, list[int]] = {}
        for unit in level:
            alike.setdefault(unit.bit_count(), []).append(unit)
        groups = [level, *alike.values()] if len(alike) > 1 else [level]
        for group in groups:
            chunks = _chunks(graph, group, max_pointers, max_ops)
            several = overlap(chunks)
            yield from ((bits & ~several, "packing") for bits in chunks)


def _chunks(graph: Graph, units: Sequence[int], max_pointers: int, max_ops: int) -> list[int]:
    """Unions of adjacent units within the limits; a single unit is no chunk."""
    chunks: list[tuple[int, int]] = []  # ops, units
    bits, members, pointers = 0, 0, 0
    for unit in units:
        need = borders(graph, unit).bit_count() + escaping(graph, unit).bit_count()
        full = pointers + need > max_pointers or (bits | unit).bit_count() > max_ops
        if members and full:
            chunks.append((bits, members))
            bits, members, pointers = 0, 0, 0
        bits, members, pointers = bits | unit, members + 1, pointers + need
    chunks.append((bits, members))
    return [bits for bits, members in chunks if members > 1]
