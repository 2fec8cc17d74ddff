"""What measuring some patterns implies for others."""

from __future__ import annotations

import pytest

from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.findings import Comparison, Findings
from fusionstitch.plan.scores import Score
from tests.graphs import Builder

GRAPH = Builder()
X = GRAPH.parameter((8,))
ONE, TWO, THREE = GRAPH.exp(X), GRAPH.tanh(X), GRAPH.add(X, X)
DONE = GRAPH.graph(ONE, TWO, THREE)
MEASURED = Pattern(DONE, 1 << ONE.id | 1 << TWO.id | 1 << THREE.id, "test")
OTHER = Pattern(DONE, 1 << ONE.id | 1 << TWO.id, "test")


@pytest.mark.parametrize(("ours_us", "wins"), [(299.0, False), (250.0, True)])
def test_a_measured_pattern_goes_before_one_that_may_win_a_little_more(
    ours_us: float, wins: bool
) -> None:
    """The times of both would have to scatter by less than they do."""
    found = Findings()
    found.add(Comparison(200.0, 1000.0), {MEASURED.bits: Score(400.0, 300.0, 700.0)}, 0.0, 0.0)
    measured = found.judged(MEASURED, Score(400.0, 300.0, 700.0))
    assert measured.gain_us == pytest.approx(800.0)
    other = found.judged(OTHER, Score(700.0 - ours_us, ours_us, 700.0))
    assert other.wins
    assert (other.gain_us > measured.gain_us) == wins
