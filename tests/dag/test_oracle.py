"""Random DAGs are those of GrCUDA's rules, edge by edge and stream by stream, by all policies."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dag import programs
from tests.dag.oracle import oracle
from tests.dag.programs import Runner, Step

POLICIES = list(itertools.product((True, False), (True, False)))


def check(steps: list[Step], const: bool, disjoint: bool) -> None:
    edges, streams = oracle(steps, const, disjoint)
    runner = Runner(const=const, parent="disjoint" if disjoint else "same-as-parent")
    graph = runner.run(steps)
    assert {(edge.before, edge.after) for edge in graph.edges} == edges
    assert [vertex.stream for vertex in graph.vertices] == streams


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    made = []
    for number in range(draw(st.integers(1, 12))):
        arrays = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True))
        uses = " ".join(array + draw(st.sampled_from(["", "?"])) for array in arrays)
        made.append((f"k{number}", uses))
    return made


@given(steps(), st.sampled_from(POLICIES))
def test_random_programs(program: list[Step], policies: tuple[bool, bool]) -> None:
    check(program, *policies)


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("name", ["VEC", "BS", "ML", "IMG", "IMG_ALL_CONST", "HITS", "DL"])
def test_the_benchmarks(name: str, policies: tuple[bool, bool]) -> None:
    check(getattr(programs, name), *policies)


def test_iterations_of_hits_stay_on_two_streams() -> None:
    assert oracle(programs.HITS * 10)[1] == [0, 1] * 30
    assert Runner().run(programs.HITS * 10).streams == 2
