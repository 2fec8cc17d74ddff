"""Cycles in the graph that results when every chosen pattern becomes one node."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fusionstitch.hlo.graph import Graph
from fusionstitch.patterns.contract import contract


def contracted_cycle(graph: Graph, patterns: Sequence[int]) -> list[int] | None:
    """A shortest cycle through disjoint `patterns` (bitsets), as their indices; None for a DAG."""
    contracted = contract(graph, patterns)
    nodes = contracted.needs
    stuck = nodes.keys() - contracted.order()
    if not stuck:
        return None
    best: list[int] | None = None
    for start in sorted(n for n in stuck if n < len(patterns)):
        found = _shortest(nodes, stuck, start)
        if found is not None and (best is None or len(found) < len(best)):
            best = found
        if best is not None and len(best) <= 2:
            break
    assert best is not None, "a cycle of a contracted DAG goes through a pattern"
    return sorted(n for n in best if n < len(patterns))


def _shortest(needs: dict[int, set[int]], within: set[int], start: int) -> list[int] | None:
    """A shortest cycle from `start` back to it along `needs`."""
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        n = queue.popleft()
        for before in sorted(needs[n] & within):
            if before == start:
                path = [n]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path
            if before not in came:
                came[before] = n
                queue.append(before)
    return None
