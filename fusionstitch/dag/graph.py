"""The DAG of launched work, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusionstitch.dag.element import Element


@dataclass(frozen=True)
class Edge:
    """Element `after` waited for element `before`; `arrays` names the arrays that both use."""

    before: int
    after: int
    arrays: tuple[str, ...]


@dataclass(frozen=True)
class Vertex:
    """One element.

    Attributes:
        number: index among the elements of the scheduler, from 0
        name: the kernel's name
        stream: the stream on which it ran
        frontier: whether later elements could depend on it when the graph was made
    """

    number: int
    name: str
    stream: int
    frontier: bool


@dataclass(frozen=True)
class Graph:
    """What was launched, in that order, and what waited for what.

    The host's accesses are not vertices. They show only in that nothing depends on the work they
    waited for.
    """

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    @property
    def streams(self) -> int:
        """The number of streams on which it ran."""
        return len({vertex.stream for vertex in self.vertices})

    @property
    def waits(self) -> int:
        """The number of edges between different streams, which need an event."""
        stream = {vertex.number: vertex.stream for vertex in self.vertices}
        return sum(stream.get(edge.before) != stream[edge.after] for edge in self.edges)

    @property
    def frontier(self) -> tuple[str, ...]:
        """The names of the elements that later ones may depend on."""
        return tuple(vertex.name for vertex in self.vertices if vertex.frontier)

    def pairs(self) -> list[tuple[str, str]]:
        """The edges as pairs of names."""
        name = {vertex.number: vertex.name for vertex in self.vertices}
        return [(name.get(edge.before, "?"), name[edge.after]) for edge in self.edges]

    def __str__(self) -> str:
        """A line for each element: its name, its stream, what it waited for, and why."""
        after: dict[int, list[str]] = {}
        for edge in self.edges:
            after.setdefault(edge.after, []).append(f"{edge.before} ({', '.join(edge.arrays)})")
        return "\n".join(
            f"{v.number}: {v.name} on stream {v.stream}"
            + (f" after {', '.join(after[v.number])}" if v.number in after else "")
            for v in self.vertices
        )

    def dot(self) -> str:
        """The graph in Graphviz's language: a color for each stream, arrays on the edges."""
        lines = ["digraph dag {", '  node [shape=box, style=filled, fontname="sans-serif"];']
        for vertex in self.vertices:
            lines.append(
                f"  n{vertex.number} [label={_quoted(vertex.name)}, "
                f'fillcolor="/set312/{vertex.stream % 12 + 1}", '
                f'tooltip="stream {vertex.stream}"];'
            )
        for edge in self.edges:
            lines.append(
                f"  n{edge.before} -> n{edge.after} [label={_quoted(', '.join(edge.arrays))}];"
            )
        return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def graph(elements: Iterable[Element]) -> Graph:
    """The graph of some elements in their present state, without edges from other elements."""
    listed = list(elements)
    numbers = {element.number for element in listed}
    return Graph(
        tuple(Vertex(e.number, e.work.name, e.lane.number, e.in_frontier) for e in listed),
        tuple(
            Edge(before, element.number, arrays)
            for element in listed
            for before, arrays in element.edges
            if before in numbers
        ),
    )
