"""GrCUDA's rules as in the paper: dependency sets of a frontier, and streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.dag.programs import Step


@dataclass(eq=False)
class Vertex:
    """`active` are its arrays on which later work may depend, with whether it only reads them."""

    number: int
    active: dict[str, bool]
    parents: list[Vertex] = field(default_factory=list)
    stream: int = -1
    passed_on: bool = False

    def comes_after(self, other: Vertex) -> bool:
        return any(p is other or p.comes_after(other) for p in self.parents)


def oracle(
    steps: Sequence[Step], const: bool = True, disjoint: bool = True
) -> tuple[set[tuple[int, int]], list[int]]:
    """The edges by numbers, and the stream of each step; nothing is ever waited for by the host."""
    vertices: list[Vertex] = []
    streams = 0
    for number, (_, uses) in enumerate(steps):
        new = Vertex(number, {w.rstrip("?"): w.endswith("?") for w in uses.split()})
        found = []
        for vertex in vertices:
            shared = [
                name
                for name, only_read in vertex.active.items()
                if name in new.active and not (const and only_read and new.active[name])
            ]
            if shared:
                found.append(vertex)
            for name in shared:
                if not (const and new.active[name]):
                    del vertex.active[name]
        new.parents = [
            v for v in found if not const or not any(o.comes_after(v) for o in found if o is not v)
        ]
        free = [p for p in new.parents if not (disjoint and p.passed_on)]
        if free:
            free[0].passed_on = True
            new.stream = free[0].stream
        else:
            new.stream, streams = streams, streams + 1
        vertices.append(new)
    edges = {(parent.number, v.number) for v in vertices for parent in v.parents}
    return edges, [vertex.stream for vertex in vertices]
