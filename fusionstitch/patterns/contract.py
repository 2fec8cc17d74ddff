"""The graph that results when each of several sets of ops becomes one node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.patterns.convex import predecessors


@dataclass(frozen=True)
class Contracted:
    """`needs[n]` are the nodes that node n depends on. Nodes 0..units-1 are the sets in the given
    order; node units + i is the op with id i."""

    units: int
    needs: dict[int, set[int]]

    def order(self) -> list[int]:
        """The nodes in dependence order, without those on or after a cycle."""
        missing = {n: len(before) for n, before in self.needs.items()}
        users: dict[int, list[int]] = {n: [] for n in self.needs}
        for n, before in self.needs.items():
            for b in before:
                users[b].append(n)
        ready = [n for n, count in missing.items() if not count]
        order = []
        while ready:
            n = ready.pop()
            order.append(n)
            for user in users[n]:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        return order

    def depths(self) -> dict[int, int]:
        """For each unit that is not on a cycle, the length of the longest chain of units before
        it."""
        depth: dict[int, int] = {}
        for n in self.order():
            before = self.needs[n]
            depth[n] = max((depth[b] + (b < self.units) for b in before), default=0)
        return {n: d for n, d in depth.items() if n < self.units}


def contract(graph: Graph, units: Sequence[int]) -> Contracted:
    """Contracts the bitsets `units`. An op in several of them is computed by each; other readers of
    it wait for the first."""
    k = len(units)
    node = {op.id: k + op.id for op in graph}
    for number in reversed(range(k)):
        for i in ids(units[number]):
            node[i] = number
    several = overlap(units)
    needs: dict[int, set[int]] = {n: set() for n in range(k)}
    before = predecessors(graph)
    for op in graph:
        mine = node[op.id]
        outside = before[op.id] & ~units[mine] if mine < k else before[op.id]
        needs.setdefault(mine, set()).update(node[i] for i in ids(outside))
    for number, bits in enumerate(units):
        for i in ids(bits & several):
            needs[number].update(node[j] for j in ids(before[i] & ~bits))
        needs[number].discard(number)
    return Contracted(k, needs)


def overlap(units: Sequence[int]) -> int:
    """The ops in more than one of `units`."""
    seen = several = 0
    for bits in units:
        several |= seen & bits
        seen |= bits
    return several


def union(sets: Iterable[int]) -> int:
    """The ops in any of `sets`."""
    found = 0
    for bits in sets:
        found |= bits
    return found


def owned(units: Sequence[int]) -> list[int]:
    """For each of `units`, the ops that no earlier one contains."""
    seen, found = 0, []
    for bits in units:
        found.append(bits & ~seen)
        seen |= bits
    return found
