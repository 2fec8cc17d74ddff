"""What paired times prove."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.trial.ratios import Ratio, ratio
from fusionstitch.trial.sides import MOST_ROUNDS, OPEN, ROUNDS, Times, _shared_out

TIMES = st.floats(1.0, 1e6)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=2, max_size=40))
def test_an_interval_contains_its_median_and_inverts_with_the_sides(
    pairs: list[tuple[float, float]],
) -> None:
    theirs, ours = zip(*pairs, strict=True)
    found, turned = ratio(theirs, ours), ratio(ours, theirs)
    assert found.low <= found.median <= found.high
    assert turned.low == pytest.approx(1 / found.high)
    assert turned.high == pytest.approx(1 / found.low)
    assert not (found.better and found.worse)


def test_equal_sides_are_rarely_better() -> None:
    drawn = random.Random(0)
    wrong = 0
    for _ in range(400):
        theirs, ours = ([drawn.gauss(100, 5) for _ in range(10)] for _ in range(2))
        wrong += ratio(theirs, ours).better
    assert wrong < 0.05 * 400


@pytest.mark.parametrize("rounds", [1, 2, 5, 10])
def test_a_side_that_is_a_tenth_faster_is_better(rounds: int) -> None:
    drawn = random.Random(rounds)
    theirs = [drawn.gauss(110, 1) for _ in range(rounds)]
    ours = [drawn.gauss(100, 1) for _ in range(rounds)]
    assert ratio(theirs, ours).better
    assert ratio(theirs, ours).of_one.better
    assert ratio(ours, theirs).worse


def test_one_odd_pair_of_ten_decides_nothing() -> None:
    assert not ratio([100.0] * 9 + [1e6], [100.0] * 10).better
    assert ratio([120.0] * 9 + [1.0], [100.0] * 10).better
    assert not ratio([100.0] * 9 + [1.0], [100.0] * 10).worse


def test_a_single_pair_is_believed_beyond_a_margin_alone() -> None:
    assert not ratio([103.0], [100.0]).of_one.better
    assert ratio([110.0], [100.0]).of_one.better


@given(st.floats(1e-6, 10.0), st.floats(0.3, 100.0))
def test_runs_fit_into_their_time(each_s: float, most_s: float) -> None:
    rounds, most, calls = _shared_out(each_s, most_s, (32, 8))
    assert 1 <= rounds <= ROUNDS
    assert rounds <= most <= MOST_ROUNDS
    assert most % rounds == 0
    assert min(calls) >= 1
    assert 2 * most * sum(calls) * each_s <= OPEN * most_s or most == 1


def times(wall: float, span: float, noise: float = 0.0) -> Times:
    """XLA's over ours by both clocks, with an interval of so much to each side."""
    both = [Ratio(one, one * (1 - noise), one * (1 + noise)) for one in (span, wall)]
    return Times(1.0, 1.0, 1.0, 1.0, *both, ROUNDS)


@pytest.mark.parametrize(
    ("found", "settled", "won"),
    [
        (times(1.2, 1.2), True, True),
        (times(0.9, 1.2), True, False),
        (times(1.0, 1.001), True, False),
        (times(1.0, 1.3, noise=0.05), False, True),  # slower on the host, or not
        (times(0.98, 1.3, noise=0.05), False, False),
        (times(0.995, 1.3, noise=0.05), False, True),
        (times(1.0, 1.3, noise=0.08), False, False),  # possibly much slower on the host
        (times(1.0, 1.02, noise=0.05), False, False),  # faster, or not
        (times(0.9, 0.9, noise=0.05), True, False),
    ],
)
def test_more_rounds_are_for_what_is_open(found: Times, settled: bool, won: bool) -> None:
    assert (found.is_settled, found.won) == (settled, won)
