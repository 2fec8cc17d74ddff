"""Cycles of the graph that results when every chosen pattern becomes one node."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fusionstitch.patterns.convex import predecessors
from hlo.graph import Graph, ids


def contracted_cycle(graph: Graph, patterns: Sequence[int]) -> list[int] | None:
    """A shortest cycle through disjoint `patterns` (bitsets) as their indices, None for a DAG."""
    nodes = _contract(graph, patterns)
    stuck = _stuck(nodes)
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


def _contract(graph: Graph, patterns: Sequence[int]) -> dict[int, set[int]]:
    """node -> nodes it depends on. Patterns are 0..k-1, an op outside them is k + its id."""
    k = len(patterns)
    node = {op.id: k + op.id for op in graph}
    for p, bits in enumerate(patterns):
        for i in ids(bits):
            node[i] = p
    needs: dict[int, set[int]] = {n: set() for n in node.values()}
    for op, before in zip(graph, predecessors(graph), strict=True):
        mine = node[op.id]
        needs[mine].update(node[i] for i in ids(before))
    for p in range(k):
        needs[p].discard(p)
    return needs


def _stuck(needs: dict[int, set[int]]) -> set[int]:
    """What Kahn's algorithm leaves: nodes on a cycle or behind one."""
    missing = {n: len(before) for n, before in needs.items()}
    users: dict[int, list[int]] = {n: [] for n in needs}
    for n, before in needs.items():
        for b in before:
            users[b].append(n)
    ready = [n for n, count in missing.items() if not count]
    while ready:
        n = ready.pop()
        del missing[n]
        for user in users[n]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return set(missing)


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
