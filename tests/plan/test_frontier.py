"""Prices and frontiers: exact set packing."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.plan.frontier import pack
from fusionstitch.plan.prices import priced

ROWS = 7
Problem = tuple[list[list[int]], list[float]]


@st.composite
def _problems(draw: st.DrawFn) -> Problem:
    sets = st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=4).map(sorted)
    columns = draw(st.lists(sets, min_size=1, max_size=9))
    # no two packings are worth the same
    worth = st.integers(1, 40)
    return columns, [draw(worth) + 2.0 ** -(k + 2) for k in range(len(columns))]


def _packings(columns: list[list[int]]) -> list[tuple[int, ...]]:
    """Every choice of columns that no row is in twice."""
    found = []
    for size in range(len(columns) + 1):
        for chosen in itertools.combinations(range(len(columns)), size):
            rows = [row for column in chosen for row in columns[column]]
            if len(rows) == len(set(rows)):
                found.append(chosen)
    return found


@given(_problems())
def test_the_frontier_finds_the_best_packing(problem: Problem) -> None:
    columns, weights = problem
    best = max(_packings(columns), key=lambda chosen: sum(weights[c] for c in chosen))
    assert pack(columns, weights, priced(columns, weights, ROWS)) == list(best)


@given(_problems())
def test_no_packing_is_worth_more_than_the_prices_leave(problem: Problem) -> None:
    columns, weights = problem
    prices = priced(columns, weights, ROWS)
    worth = {}
    for chosen in _packings(columns):
        worth[chosen] = sum(weights[c] for c in chosen)
        held = {row for c in chosen for row in columns[c]}
        left = sum(prices.lost[c] for c in chosen)
        left += sum(unused for row, unused in enumerate(prices.unused) if row not in held)
        assert worth[chosen] <= prices.bound - left + 1e-6
    best = max(worth, key=worth.__getitem__)
    assert worth[best] >= prices.bound - prices.gap
    assert set(best) <= set(prices.remaining)


def test_a_packing_that_takes_all_needs_no_search() -> None:
    columns = [[0, 1], [2], [3, 4]]
    prices = priced(columns, [3.0, 2.0, 1.0], 5)
    assert prices.bound == 6.0
    assert pack(columns, [3.0, 2.0, 1.0], prices) == [0, 1, 2]
