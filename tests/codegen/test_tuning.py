"""Kernels under schedule choices other than the defaults: still right, and really other kernels."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import pytest

from fusionstitch.codegen.generate import draft, generate
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.hlo.errors import CodegenError
from tests.codegen.cases import CASES
from tests.codegen.regions import ORDERS, Built, Case, build
from tests.shares import asked

TUNINGS = (
    Tuning(block=64, tile=2.0),
    Tuning(team=8, vector_bytes=8),
    Tuning(team=1024, row_registers=96),
    Tuning(block=512, blocks_per_sm=2),
    Tuning(block=128, team=1, row_registers=0, columns=8),
    Tuning(tile=0.5, parts=2.0, vector_bytes=4),
    Tuning(parts=0.0, merge=False, block=1024),
    Tuning(block=256, team=64),
    Tuning(block=512, team=128, blocks_per_sm=1, once=True),
)


#: A sum of so many terms that one thread alone (`team=1`) makes a larger error than the others.
LONG_SUMS = {"split_rows", "teams_of_halves"}
#: With one thread a row, each keeps parts of long column sums: more than shared memory holds.
TOO_LARGE = {"norm_both_ways_1024_bfloat16", "norm_both_ways_4096_bfloat16"}
#: Every second case, with a choice of its own whatever cases there are beside it.
CHOSEN = {
    name: number // 2 % len(TUNINGS)
    for name in CASES
    if (number := zlib.crc32(name.encode())) % 2 == 0 and name not in LONG_SUMS
}
TUNED = {name: number for name, number in CHOSEN.items() if name not in TOO_LARGE}


def _tuned(name: str, number: int) -> Case:
    case = CASES[name].case()
    options = replace(case.options, tuning=TUNINGS[number])
    return replace(case, options=options)


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> dict[str, Case]:
    return {name: _tuned(name, TUNED[name]) for name in asked(request, TUNED)}


@pytest.fixture(scope="module")
def built(cases: dict[str, Case], host_compiler: str) -> Built:
    return build(cases.values())


@pytest.mark.parametrize("name", TUNED)
def test_a_tuned_kernel_is_near_the_float64_run(
    built: Built, cases: dict[str, Case], name: str
) -> None:
    case = cases[name]
    for order, seed in ORDERS:
        built.check(case, order, seed)


@pytest.mark.parametrize("name", sorted(TOO_LARGE))
def test_a_choice_whose_kernel_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(CodegenError, match="do not fit into shared memory"):
        _tuned(name, CHOSEN[name]).kernel()


def test_the_default_is_taken_where_a_tuned_template_is_refused() -> None:
    """But one that is requested is followed in any case."""
    case = CASES["softmax_300"].case()
    quick = replace(case.options, compared=False)
    plain = generate(case.graph, case.device, quick)
    wrong = re.sub(r"team=\d+", "team=33", plain.template)
    found = generate(case.graph, case.device, replace(quick, tuned=wrong))
    assert found.source == plain.source
    assert draft(case.graph, case.device, replace(quick, tuned=wrong)).template == plain.template
    with pytest.raises(CodegenError):
        generate(case.graph, case.device, replace(quick, template=wrong))


@pytest.mark.parametrize("number", range(len(TUNINGS)))
def test_every_choice_makes_another_kernel_of_some_case(number: int) -> None:
    names = ("softmax_1000", "layer_norm_backward", "split_columns", "chain", "columns")
    plain = [CASES[name].case().kernel() for name in names]
    assert [_tuned(name, number).kernel() for name in names] != plain


def test_the_default_changes_nothing() -> None:
    case = CASES["softmax_both_ways"].case()
    tuned = replace(case, options=replace(case.options, tuning=Tuning()))
    assert tuned.kernel() == case.kernel()


def test_blocks_are_powers_of_two() -> None:
    with pytest.raises(CodegenError, match="power of two"):
        Tuning(block=48)
