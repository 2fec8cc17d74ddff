"""The independent check rejects every kind of bad plan."""

from __future__ import annotations

import math

import pytest

from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.work import Work
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.checker import check_plan, check_times, verify_plan, verify_times
from fusionstitch.plan.plan import Chosen, Plan
from tests.graphs import Builder
from tests.plan.costs import cost_of


def _pattern(graph: Graph, *ops: Op) -> Pattern:
    return Pattern(graph, sum(1 << op.id for op in ops), "test")


def _chain() -> tuple[Graph, list[Op]]:
    b = Builder()
    x = b.parameter((8,))
    first = b.exp(x)
    middle = b.kept(first)
    last = b.add(first, middle)
    return b.graph(last), [x, first, middle, last]


def test_a_legal_plan() -> None:
    graph, (_, first, _, last) = _chain()
    assert check_plan(graph, [_pattern(graph, first), _pattern(graph, last)], [0.0, 1.0])


def test_an_empty_plan_is_legal() -> None:
    graph, _ = _chain()
    assert check_plan(graph, [], [])


def test_overlap() -> None:
    b = Builder()
    first = b.exp(b.parameter((8,)))
    last = b.tanh(first)
    graph = b.graph(last)
    verdict = check_plan(graph, [_pattern(graph, first), _pattern(graph, first, last)], [1, 1])
    assert str(verdict) == "Two patterns overlap. (first 0, second 1, op exponential.1)"


def test_not_convex() -> None:
    graph, (_, first, _, last) = _chain()
    verdict = check_plan(graph, [_pattern(graph, first, last)], [1.0])
    assert str(verdict) == "A pattern is not convex. (pattern 0, through collective-permute.2)"


def test_cycle_between_convex_patterns() -> None:
    b = Builder()
    x, y = b.parameter((8,)), b.parameter((8,))
    a, c = b.exp(x), b.exp(y)
    d, e = b.tanh(c), b.tanh(a)
    graph = b.graph(d, e)
    patterns = [_pattern(graph, a, d), _pattern(graph, c, e)]
    assert check_plan(graph, patterns[:1], [1.0])
    verdict = check_plan(graph, patterns, [1.0, 1.0])
    assert verdict.reason == "The contracted graph has a cycle."


def test_a_cycle_by_control_dependence() -> None:
    b = Builder()
    x = b.parameter((8,))
    a = b.exp(x)
    middle = b.op("sort", (8,), x, control=(a.origin or 0,), dimension=0)
    c = b.tanh(middle)
    graph = b.graph(c, a)
    verdict = check_plan(graph, [_pattern(graph, a, c)], [1.0])
    assert verdict.reason == "A pattern is not convex."


@pytest.mark.parametrize("score", [-0.5, math.nan, math.inf])
def test_scores(score: float) -> None:
    graph, (_, first, _, _) = _chain()
    verdict = check_plan(graph, [_pattern(graph, first)], [score])
    assert verdict.reason == "A pattern has a negative score."


def test_members() -> None:
    graph, (x, _, middle, _) = _chain()
    assert check_plan(graph, [_pattern(graph, x)], [1.0]).reason == "A parameter can be no member."
    assert (
        check_plan(graph, [_pattern(graph, middle)], [1.0]).reason
        == "A collective-permute can be no member."
    )
    assert check_plan(graph, [Pattern(graph, 0, "")], [1.0]).reason == "A pattern has no ops."


def test_values_at_the_border_need_an_instruction() -> None:
    graph, (_, first, _, _) = _chain()
    first.origin = None
    verdict = check_plan(graph, [_pattern(graph, first)], [1.0])
    assert verdict.reason == "A value at the border has no instruction in the module."


def test_another_graph_and_other_lengths() -> None:
    graph, (_, first, _, _) = _chain()
    other, _ = _chain()
    assert not check_plan(other, [_pattern(graph, first)], [1.0])
    assert not check_plan(graph, [_pattern(graph, first)], [])


def test_verify_raises() -> None:
    graph, (_, first, _, last) = _chain()
    with pytest.raises(VerifyError, match=r"The plan of main is not legal: A pattern is not conv"):
        verify_plan(graph, [_pattern(graph, first, last)], [1.0])


def _timed(xla_us: float, modelled_us: float, *parts: tuple[float, float]) -> Plan:
    """A plan with these times; `parts` are (spared, modelled) of each pattern."""
    graph, (_, first, _, _) = _chain()
    facts = KernelFacts(cost_of(Work()))
    chosen = tuple(
        Chosen(_pattern(graph, first), 1.0, ours, spared, facts, spared) for spared, ours in parts
    )
    return Plan(graph, chosen, xla_us=xla_us, modelled_us=modelled_us)


def test_times_that_add_up() -> None:
    assert check_times(_timed(10.0, 10.0))
    assert check_times(_timed(10.0, 4.0, (7.0, 2.0), (3.0, 2.0)))
    assert check_times(_timed(10.0, 12.0, (2.0, 4.0))), "the paper's scorer may choose it"


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (_timed(200.0, 44.7, (120.0, 60.0), (146.2, 50.9)), "less than its parts"),
        (_timed(10.0, 3.0, (8.0, 2.0), (3.0, 1.0)), "less than its parts"),
        (_timed(10.0, 4.0, (7.0, 2.0)), "differs between both sides"),
        (_timed(10.0, math.nan, (7.0, 2.0)), "no number"),
        (_timed(10.0, 5.0, (math.inf, 2.0)), "no number"),
    ],
)
def test_times_that_do_not(plan: Plan, why: str) -> None:
    verdict = check_times(plan)
    assert not verdict
    assert why in verdict.reason
    with pytest.raises(VerifyError, match="do not add up"):
        verify_times(plan)
