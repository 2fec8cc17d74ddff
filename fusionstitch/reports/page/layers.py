"""Graphs drawn in layers: which node lies in which row, and in what order.

The way of Sugiyama, Tagawa and Toda. What takes long is done here, before the page is opened; where
in its row a node lies depends on what is unfolded, and is worked out in the page in linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Nodes of a row at most: so many, or the square root of all nodes by this factor.
LEAST_WIDTH, WIDTH_SHARE = 6, 1.2
#: Rows that an edge may cross and still have a place of its own in each of them.
LONG = 30
#: Times that all rows are sorted by the places of their neighbours, downwards and upwards.
SWEEPS = 4


@dataclass(frozen=True)
class Layers:
    """`rows` hold nodes by their numbers; from `nodes` on they are bends of edges. Of `edges` each
    is a path: from a node by bends to a node."""

    nodes: int
    rows: Sequence[Sequence[int]]
    edges: Sequence[Sequence[int]]

    def to_dict(self) -> dict[str, object]:
        """As the page reads it."""
        return {"nodes": self.nodes, "rows": self.rows, "edges": self.edges}


def layers(reads: Sequence[Sequence[int]]) -> Layers:
    """`reads[n]` are the nodes that node n reads from; edges against the order of the nodes are
    drawn, and decide nothing."""
    count = len(reads)
    row_of = _rows(reads)
    rows: list[list[int]] = [[] for _ in range(max(row_of, default=-1) + 1)]
    for node, row in enumerate(row_of):
        rows[row].append(node)
    edges: list[list[int]] = []
    bends = count
    for node, own in enumerate(reads):
        for other in sorted(set(own)):
            path = [other]
            span = row_of[node] - row_of[other]
            if 1 < span <= LONG:
                for row in range(row_of[other] + 1, row_of[node]):
                    rows[row].append(bends)
                    path.append(bends)
                    bends += 1
            edges.append([*path, node])
    _untangled(rows, edges, bends)
    return Layers(count, rows, edges)


def _rows(reads: Sequence[Sequence[int]]) -> list[int]:
    """The row of each node: after all it reads, where there is room."""
    most = max(LEAST_WIDTH, int(WIDTH_SHARE * len(reads) ** 0.5))
    taken: list[int] = []
    found: list[int] = []
    for node, own in enumerate(reads):
        row = max((found[other] + 1 for other in own if other < node), default=0)
        while row < len(taken) and taken[row] >= most:
            row += 1
        taken += [0] * (row + 1 - len(taken))
        taken[row] += 1
        found.append(row)
    _sunk(reads, found)
    return found


def _sunk(reads: Sequence[Sequence[int]], row_of: list[int]) -> None:
    """Moves what waits for nothing, such as constants, down to what reads it first."""
    first = [len(row_of)] * len(row_of)
    floats = [False] * len(row_of)
    for node, own in enumerate(reads):
        floats[node] = len(own) < 2 and all(other < node and floats[other] for other in own)
    for node in range(len(reads) - 1, -1, -1):
        if floats[node] and first[node] < len(row_of):
            row_of[node] = max(row_of[node], first[node] - 1)
        for other in reads[node]:
            first[other] = min(first[other], row_of[node])


def _untangled(rows: list[list[int]], edges: Sequence[Sequence[int]], count: int) -> None:
    """Sorts rows by the medians of what their nodes are joined with above and below."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for path in edges:
        for one, other in pairwise(path):
            below[one].append(other)
            above[other].append(one)
    place = [0.0] * count
    for row in rows:
        _placed(row, place)
    for _ in range(SWEEPS):
        for order, joined in ((rows[1:], above), (rows[-2::-1], below)):
            for row in order:
                wanted = {node: _median(place, joined[node], place[node]) for node in row}
                row.sort(key=wanted.__getitem__)
                _placed(row, place)


def _placed(row: Sequence[int], place: list[float]) -> None:
    """Places are shares of the row, so that rows of different lengths compare."""
    for number, node in enumerate(row):
        place[node] = (number + 0.5) / len(row)


def _median(place: Sequence[float], nodes: Sequence[int], otherwise: float) -> float:
    if not nodes:
        return otherwise
    places = sorted(place[node] for node in nodes)
    half = len(places) // 2
    return places[half] if len(places) % 2 else (places[half - 1] + places[half]) / 2
