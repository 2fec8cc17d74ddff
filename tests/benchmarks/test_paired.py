"""The interval of paired ratios, and rounds in turns."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.measuring import in_turns
from benchmarks.paired import ratios


def test_the_interval_of_thirty_rounds_leaves_out_nine_at_each_end() -> None:
    ours = [1.0] * 30
    theirs = [1 + i / 100 for i in (*range(15, 30), *range(15))]
    found = ratios(theirs, ours)
    assert (found.low, found.median, found.high) == pytest.approx((1.09, 1.145, 1.20))
    assert found.data() == {"median": 1.145, "low": 1.09, "high": 1.2, "rounds": 30}


@pytest.mark.parametrize("count", [1, 5])
def test_the_interval_of_few_rounds_is_all_of_them(count: int) -> None:
    found = ratios([float(i + 1) for i in range(count)], [1.0] * count)
    assert (found.low, found.high) == (1, count)


@pytest.mark.parametrize("rounds", [8, 30, 41])
def test_the_interval_holds_the_true_median_in_95_of_100_cases(rounds: int) -> None:
    random, held = np.random.default_rng(0), 0
    for _ in range(2000):
        found = ratios(random.lognormal(size=rounds).tolist(), [1.0] * rounds)
        held += found.low <= 1 <= found.high
    assert held / 2000 > 0.94


def test_sides_without_rounds_or_of_different_ones_are_refused() -> None:
    with pytest.raises(ValueError, match="no rounds to compare"):
        ratios([], [])
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_takers_change_their_order_every_round() -> None:
    turns: list[str] = []
    takers = {name: lambda name=name: float(turns.append(name) or 1) for name in "abc"}
    assert in_turns(takers, 3, 0.0) == {"a": [1.0] * 3, "b": [1.0] * 3, "c": [1.0] * 3}
    assert "".join(turns) == "abcbcacab"
