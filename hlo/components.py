"""The components of a graph: what lies between the ops that libraries keep, and may be fused.

Two ops are of one component where as many kept ops come before the one as before the other, and
one reads the other, or both read the same array. So a component is convex, and components and kept
ops can run one after the other.
"""

from __future__ import annotations

from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Kinds of ops that are neither kept nor in a component.
NEITHER = frozenset({Kind.STRUCTURE, Kind.SOURCE})


def components(graph: Graph, fusible: int, free: int = 0) -> tuple[int, ...]:
    """The components of the ops `fusible`, as bitsets in the order of their first ops; all others
    are kept but those that are `free` and compute nothing."""
    depths = _depths(graph, fusible, free)
    homes = list(range(len(graph)))

    def home(i: int) -> int:
        while homes[i] != i:
            homes[i] = homes[homes[i]]
            i = homes[i]
        return i

    def join(one: Op, other: Op) -> None:
        first, second = sorted((home(one.id), home(other.id)))
        homes[second] = first

    for op in graph:
        members = [user for user in graph.users[op.id] if fusible >> user.id & 1]
        if free >> op.id & 1 or (op.shape.size <= 1 and not fusible >> op.id & 1):
            continue  # who reads a number has nothing in common with its other readers
        readers: dict[int, Op] = {}
        if fusible >> op.id & 1:
            readers[depths[op.id]] = op
        for user in members:
            join(readers.setdefault(depths[user.id], user), user)
    found: dict[int, int] = {}
    for op in graph:
        if fusible >> op.id & 1:
            found[home(op.id)] = found.get(home(op.id), 0) | 1 << op.id
    return tuple(found.values())


def _depths(graph: Graph, fusible: int, free: int) -> list[int]:
    """By op how many kept ops come before it on the way that has most of them, itself included."""
    depths: list[int] = []
    for op in graph:
        is_kept = kind_of(op.opcode) not in NEITHER and not (fusible | free) >> op.id & 1
        depths.append(max((depths[o.id] for o in op.operands), default=0) + is_kept)
    return depths
