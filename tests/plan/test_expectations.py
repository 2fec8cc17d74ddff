"""What patterns are expected to win by those like them, and how much that spares."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.graph import Graph
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.expectations import (
    CONTAINED,
    CONTAINING_POWER,
    OVERLAPPING,
    Expectations,
    share_of,
)
from fusionstitch.plan.ilp import SolverLimits
from fusionstitch.plan.scores import Score
from fusionstitch.plan.search import DOUBTED, UNLIKELY, Search
from tests.graphs import Builder
from tests.plan.costs import kernel_of

#: Ops of the graph below.
OPS = 24


def _graph() -> Graph:
    """Unary ops that have nothing to do with each other: any set of them is a pattern."""
    b = Builder()
    return b.graph(*(b.exp(b.parameter((64, n + 1))) for n in range(OPS)))


GRAPH = _graph()
#: The ids of the ops.
ROOTS = [op.id for op in GRAPH if op.opcode == "exponential"]


def members(*numbers: int) -> int:
    return sum(1 << ROOTS[n] for n in numbers)


@dataclass(frozen=True)
class Given:
    """A scorer that is given what patterns win at most, and in truth."""

    bounds: dict[int, float]
    gains: dict[int, float]
    asked: list[int] = field(default_factory=list)

    def bound(self, pattern: Pattern) -> float:
        return self.bounds[pattern.bits]

    def score(self, pattern: Pattern, facts: KernelFacts) -> Score:
        self.asked.append(pattern.bits)
        gain = self.gains[pattern.bits]
        return Score(gain, 1000.0 - gain, 1000.0, "" if gain > 0 else "It wins nothing.")

    def confirms(self, pattern: Pattern, score: Score, others: int) -> bool:
        return True


def searched(given: Given) -> tuple[Search, list[int]]:
    """A search that has ended, and what it chose."""
    search = Search(GRAPH, kernel_of, given, SolverLimits(), xla_us=1000.0)
    search.add([Pattern(GRAPH, bits, "test") for bits in given.bounds], ())
    return search, [one.bits for one in search.chosen(search.run())]


def test_a_pattern_that_contains_another_falls_short_with_it() -> None:
    assert share_of(members(0, 1), members(0, 1, 2, 3)) == CONTAINED
    assert share_of(members(0, 1), members(0, 1)) == CONTAINED


def test_a_part_of_a_pattern_falls_short_if_it_is_most_of_it() -> None:
    whole = members(*range(10))
    most, half = (share_of(whole, members(*range(n))) for n in (9, 5))
    assert most == pytest.approx(0.9**CONTAINING_POWER)
    assert half == pytest.approx(0.5**CONTAINING_POWER)


def test_patterns_that_overlap_are_alike_by_their_common_ops() -> None:
    assert share_of(members(0, 1, 2), members(1, 2, 3)) == pytest.approx(OVERLAPPING * 2 / 4)
    assert share_of(members(0, 1), members(2, 3)) == 0.0


def test_what_is_learned_from_several_is_the_most_that_one_says() -> None:
    known = Expectations()
    other = members(0, 1, 2)
    assert known.short_us(other) == 0.0
    assert known.learn(members(0), 10.0, [other]) == [pytest.approx(10.0 * CONTAINED)]
    known.learn(members(0, 1), 100.0, [])
    known.learn(members(5), 1e6, [])
    assert known.short_us(other) == pytest.approx(100.0 * CONTAINED)


def test_patterns_like_one_that_fell_short_are_not_looked_at() -> None:
    """All contain the first op, which takes long whatever is computed beside it."""
    sets = [members(*range(n)) for n in range(1, OPS + 1)]
    given = Given(
        {bits: 400.0 + 25 * bits.bit_count() for bits in sets},
        {bits: 25.0 * bits.bit_count() for bits in sets},
    )
    search, chosen = searched(given)
    assert chosen == [sets[-1]]
    assert len(given.asked) <= 5 + DOUBTED[1] < OPS / 2
    reasons = [one.reason for one in search._beaten(search.chosen(search.run()))]
    assert reasons.count(UNLIKELY) == OPS - len(given.asked)


def test_expectations_that_are_wrong_are_found_out() -> None:
    """Nearly all of the largest pattern falls short; one op less, and a kernel is as it should."""
    whole, part = members(*range(OPS)), members(*range(OPS - 1))
    given = Given({whole: 500.0, part: 450.0}, {whole: 60.0, part: 440.0})
    _, chosen = searched(given)
    assert given.asked == [whole, part]
    assert chosen == [part]


def test_patterns_offered_later_are_expected_to_win_as_much_as_those_before() -> None:
    """A union of patterns that were chosen takes as long as these do."""
    one, other, both = members(0, 1), members(2, 3), members(0, 1, 2, 3)
    given = Given(
        {one: 300.0, other: 300.0, both: 610.0},
        {one: 100.0, other: 290.0, both: 300.0},
    )
    search = Search(GRAPH, kernel_of, given, SolverLimits(), xla_us=1000.0)
    search.add([Pattern(GRAPH, bits, "test") for bits in (one, other)], ())
    search.run()
    search.add([Pattern(GRAPH, both, "test")], ())
    added = search.by_bits[both]
    assert added.value == pytest.approx(610.0 - DOUBTED[0] * CONTAINED * 200.0)


def test_large_patterns_are_dropped_unless_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """After code generation was given enough ops."""
    for limit in ("LEAST_INSPECTED", "INSPECTED_ANYWAY", "INSPECTED_PER_OP"):
        monkeypatch.setattr(f"fusionstitch.plan.search.{limit}", 0)
    whole, large, chain = members(*range(8)), members(0, 1, 2, 3), members(4, 5, 6, 7)
    given = Given({whole: 900.0, large: 300.0, chain: 300.0}, {whole: 0.0, large: 9.0, chain: 9.0})
    search = Search(GRAPH, kernel_of, given, SolverLimits(), xla_us=1000.0)
    search.add([Pattern(GRAPH, bits, "test", stays=bits == chain) for bits in given.bounds], ())
    assert [one.bits for one in search.chosen(search.run())] == [chain]
    assert given.asked == [whole, chain]
