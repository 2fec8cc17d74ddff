"""The kernels of the whole table in one program: what takes all of them, and long."""

from __future__ import annotations

import pytest

from fusionstitch.hlo.errors import VerifyError
from tests.codegen.cases import CASES
from tests.codegen.kernel_cases import VECTORS
from tests.codegen.regions import ORDERS, Built, Case, build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: program.case() for name, program in CASES.items()}


@pytest.fixture(scope="module")
def built(cases: dict[str, Case], host_compiler: str) -> Built:
    return build(cases.values())


@pytest.fixture(scope="module")
def checked(built: Built) -> Built:
    return built.checked()


def test_results_may_overwrite_the_inputs_that_kernels_name(
    built: Built, cases: dict[str, Case]
) -> None:
    overwriting = [c for c, kernel in built.kernels.items() if kernel.in_place]
    assert len(overwriting) >= 15
    assert any(VECTORS in built.kernels[c].source for c in overwriting)
    for case in overwriting:
        apart = built.run(case)
        for order, seed in ORDERS:
            for one, other in zip(built.run(case, order, seed, in_place=True), apart, strict=True):
                assert one.tobytes() == other.tobytes(), (case.graph.name, order)


def test_orders_change_no_bit_of_any_result(built: Built, cases: dict[str, Case]) -> None:
    """Reductions join in a fixed order, so runs are reproducible."""
    for case in cases.values():
        first, *others = (built.run(case, order, seed) for order, seed in ORDERS)
        for other in others:
            for a, b in zip(first, other, strict=True):
                assert a.tobytes() == b.tobytes(), case.graph.name


#: A few of each kind: barriers of blocks, teams, clusters and grids.
PLANTED = [
    *("of_reduction", "concatenated_reductions", "gram_in_batch", "dot_then_sum", "attention"),
    *("attention_wide", "attention_backward", "heads", "self_attention", "squares"),
    "squared_matrix",
    *("columns_then_rows", "softmax_both_ways", "all_four_compositions", "chained_dots", "bits"),
    *("split_columns", "split_rows", "softmax_split", "whole_norm", "three_phases", "mlp_gradient"),
    *("cluster_rows", "cluster_norm", "cluster_cross_entropy", "streamed_wide_f32"),
    *("teams_of_halves", "teams_of_4_and_8", "teams_of_records"),
]


#: Kernels with a barrier that no run on the emulator needs, and why others may.
UNSEEN = {
    **dict.fromkeys(
        ("columns_then_rows", "softmax_both_ways", "split_columns"),
        "the host compiler reads totals in the threads alone that store them, which wrote them",
    ),
    "mlp_gradient": "every block of this grid comes to tiles of one kind alone",
    "streamed_wide_f32": "blocks of one warp, whose lanes meet at their products",
}


def test_without_one_of_its_barriers_a_kernel_is_found_out(
    checked: Built, cases: dict[str, Case]
) -> None:
    dead: dict[str, str] = {}
    needed = 0
    for name in PLANTED:
        for index in checked.barriers(cases[name]):
            try:
                checked.barriers(cases[name], ignoring=index)
            except VerifyError:
                needed += 1
            else:
                dead[name] = index
    assert dead.keys() <= UNSEEN.keys(), dead
    assert needed >= 60
