"""The integer program: optimal, disjoint, acyclic, the same every time."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import PlanError
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.patterns.convex import is_convex
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.plan import frontier
from fusionstitch.plan.cycles import contracted_cycle
from fusionstitch.plan.ilp import Program, SolverLimits
from tests.graphs import Builder, random_graphs


def _bits(*ops: Op) -> int:
    return sum(1 << op.id for op in ops)


def _figure_3() -> tuple[Graph, list[Op]]:
    """A and C could be fused, but C also reads B, which reads A and cannot be fused."""
    b = Builder()
    x = b.parameter((8,))
    a = b.exp(x)
    between = b.kept(a)
    c = b.add(a, between)
    return b.graph(c), [a, between, c]


def test_figure_3_takes_a_cut() -> None:
    graph, (a, _, c) = _figure_3()
    solution = Program(graph, [_bits(a, c)]).solve({0: 5.0})
    assert solution.chosen == ()
    assert solution.cuts == 1


def test_the_solver_prints_nothing() -> None:
    code = (
        "import sys\n"
        "from fusionstitch.plan import frontier\n"
        "from tests.plan import test_ilp\n"
        "frontier.MOST_FRONTIERS = 0\n"
        "test_ilp.test_the_paper_s_exclusion_of_overlapping_patterns()\n"
        "assert 'highspy' in sys.modules"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_cycle_through_two_patterns_takes_a_cut() -> None:
    b = Builder()
    x, y = b.parameter((8,)), b.parameter((8,))
    a, c = b.exp(x), b.exp(y)
    d, e = b.tanh(c), b.tanh(a)
    graph = b.graph(d, e)
    # {a, d} waits for {c, e}, which waits for {a, d}
    program = Program(graph, [_bits(a, d), _bits(c, e)])
    solution = program.solve({0: 2.0, 1: 3.0})
    assert solution.chosen == (1,)
    assert solution.cuts == 1
    assert contracted_cycle(graph, program.bits) == [0, 1]
    assert contracted_cycle(graph, program.bits[:1]) is None


@st.composite
def _problems(draw: st.DrawFn) -> tuple[Graph, list[int], list[float]]:
    graph = draw(random_graphs(max_ops=12))
    fusible = list(ids(fusible_ops(graph, device("h200")).bits))
    if not fusible:
        return graph, [], []
    sets = st.lists(st.sampled_from(fusible), min_size=1, max_size=4, unique=True)
    patterns = draw(st.lists(sets, max_size=12))
    bits = list(dict.fromkeys(sum(1 << i for i in pattern) for pattern in patterns))
    convex = [b for b in bits if is_convex(graph, b)]
    score = st.integers(1, 50).map(lambda n: n / 4)
    return graph, convex, [draw(score) for _ in convex]


def _brute_force(graph: Graph, bits: list[int], scores: list[float]) -> float:
    best = 0.0
    for size in range(1, len(bits) + 1):
        for chosen in itertools.combinations(range(len(bits)), size):
            taken, disjoint = 0, True
            for i in chosen:
                disjoint &= not taken & bits[i]
                taken |= bits[i]
            if disjoint and contracted_cycle(graph, [bits[i] for i in chosen]) is None:
                best = max(best, sum(scores[i] for i in chosen))
    return best


@given(_problems())
def test_equals_brute_force(problem: tuple[Graph, list[int], list[float]]) -> None:
    graph, bits, scores = problem
    solution = Program(graph, bits).solve(dict(enumerate(scores)))
    assert solution.optimal
    assert sum(scores[i] for i in solution.chosen) == _brute_force(graph, bits, scores)


@given(_problems())
def test_the_solver_finds_what_the_frontier_finds(
    problem: tuple[Graph, list[int], list[float]],
) -> None:
    graph, bits, scores = problem
    one = Program(graph, bits).solve(dict(enumerate(scores)))
    with mock.patch.object(frontier, "MOST_FRONTIERS", 0):
        assert Program(graph, bits).solve(dict(enumerate(scores))) == one


@given(_problems())
def test_the_same_problem_has_the_same_solution(
    problem: tuple[Graph, list[int], list[float]],
) -> None:
    graph, bits, scores = problem
    one, two = (Program(graph, bits).solve(dict(enumerate(scores))) for _ in range(2))
    assert one == two


def test_equal_scores_go_to_the_earlier_candidate() -> None:
    b = Builder()
    x = b.parameter((8,))
    ops = [b.exp(x), b.tanh(x), b.add(x, x)]
    graph = b.graph(*ops)
    pairs = [_bits(ops[i], ops[j]) for i, j in ((0, 1), (1, 2), (0, 2))]
    assert Program(graph, pairs).solve({0: 1.0, 1: 1.0, 2: 1.0}).chosen == (0,)


def test_the_paper_s_exclusion_of_overlapping_patterns() -> None:
    b = Builder()
    x = b.parameter((8,))
    ops = [b.exp(x), b.tanh(x), b.add(x, x), b.mul(x, x)]
    graph = b.graph(*ops)
    sets = [_bits(*ops[:2]), _bits(*ops[1:3]), _bits(*ops[2:])]
    assert Program(graph, sets).solve({0: 2.0, 1: 3.5, 2: 2.0}).chosen == (0, 2)
    assert Program(graph, sets).solve({0: 1.0, 1: 3.5, 2: 1.0}).chosen == (1,)


def test_parts_whose_scores_stay_are_not_solved_again() -> None:
    b = Builder()
    x = b.parameter((8,))
    ops = [b.exp(x), b.tanh(x), b.add(x, x), b.mul(x, x)]
    graph = b.graph(*ops)
    sets = [_bits(ops[0]), _bits(*ops[:2]), _bits(ops[2]), _bits(*ops[2:])]
    program = Program(graph, sets)
    assert program.solve({0: 1.0, 1: 2.0, 2: 1.0, 3: 2.0}).chosen == (1, 3)
    assert program.solves == 2
    assert program.solve({0: 1.0, 1: 2.0, 2: 1.0, 3: 0.5}).chosen == (1, 2)
    assert program.solves == 3


def test_rounds_are_bounded() -> None:
    graph, (a, _, c) = _figure_3()
    program = Program(graph, [_bits(a, c)], SolverLimits(max_rounds=1))
    with pytest.raises(PlanError, match="Cycle cuts of main did not end after 1 rounds"):
        program.solve({0: 5.0})


def test_a_node_limit_still_gives_a_legal_plan() -> None:
    b = Builder()
    x = b.parameter((8,))
    ops = [b.binary("add", x, x) for _ in range(9)]
    graph = b.graph(*ops)
    sets = [_bits(ops[i], ops[j], ops[k]) for i, j, k in itertools.combinations(range(9), 3)]
    scores = {n: 10 + (n * 7919 % 13) / 8 for n in range(len(sets))}
    program = Program(graph, sets, SolverLimits(max_nodes=1))
    chosen = program.solve(scores).chosen
    assert sum(sets[i].bit_count() for i in chosen) == _union(sets[i] for i in chosen).bit_count()
    assert len(chosen) >= 2


def _union(sets: object) -> int:
    found = 0
    for bits in sets:  # type: ignore[attr-defined]
        found |= bits
    return found
