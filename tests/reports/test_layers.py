"""Graphs in layers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.reports.page.layers import LONG, layers


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(0, 40))
    return [
        draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True)) if n else []
        for n in range(count)
    ]


@given(graphs())
def test_nodes_lie_below_what_they_read(reads: list[list[int]]) -> None:
    found = layers(reads)
    row = {node: number for number, nodes in enumerate(found.rows) for node in nodes}
    assert sorted(row) == list(range(len(row)))  # everything has one place
    assert sorted(tuple(path[:: len(path) - 1]) for path in found.edges) == sorted(
        (other, node) for node, own in enumerate(reads) for other in own
    )
    for path in found.edges:
        rows = [row[node] for node in path]
        steps = [b - a for a, b in pairwise(rows)]
        assert set(steps) == {1} or (len(steps) == 1 and steps[0] > LONG)
        assert all(node >= found.nodes for node in path[1:-1])


def test_edges_against_the_order_decide_nothing() -> None:
    found = layers([[1], [0]])
    assert [list(row) for row in found.rows] == [[0], [1]]
    assert sorted(map(list, found.edges)) == [[0, 1], [1, 0]]


def test_what_waits_for_nothing_lies_above_its_reader() -> None:
    chain = [[], [], *([n - 1] for n in range(2, 9)), [8, 0]]
    row = {node: n for n, nodes in enumerate(layers(chain).rows) for node in nodes if node < 10}
    assert row[0] == row[9] - 1


def test_wide_graphs_are_wrapped() -> None:
    assert max(map(len, layers([[]] * 100).rows)) <= 12


def test_sorting_takes_crossings_out() -> None:
    """Two chains that stand crosswise."""
    found = layers([[], [], [1], [0]])
    upper, lower = (list(row) for row in found.rows)
    assert [{2: 1, 3: 0}[node] for node in lower] == upper
