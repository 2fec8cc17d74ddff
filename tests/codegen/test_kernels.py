"""Generated kernels on the emulator against a float64 run and against jax.jit."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fusionstitch.accuracy import limit, relative_error
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.runtime import emulate
from tests.codegen.cases import CASES
from tests.codegen.kernel_cases import VECTORS
from tests.codegen.regions import ORDERS, Built, Case, build

NAMES = list(CASES)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: program.case() for name, program in CASES.items()}


@pytest.fixture(scope="module")
def built(cases: dict[str, Case], host_compiler: str) -> Built:
    return build(cases.values())


@pytest.fixture(scope="module")
def checked(built: Built) -> Built:
    return built.checked()


@pytest.mark.parametrize("name", NAMES)
def test_kernel_is_near_the_float64_run_in_every_order(
    built: Built, cases: dict[str, Case], name: str
) -> None:
    case, program = cases[name], CASES[name]
    with jax.enable_x64(program.wide):
        xla = [np.asarray(x) for x in jax.tree.leaves(jax.jit(program.fun)(*program.args))]
    wanted = built.wanted(case)
    own = [relative_error(x, w) for x, w in zip(xla, wanted, strict=True)]
    assert all(e < 0.02 for e in own), "the float64 run itself is far from jax.jit"
    for order, seed in ORDERS:
        for value, reference, e in zip(built.run(case, order, seed), wanted, own, strict=True):
            assert relative_error(value, reference) <= limit(value.dtype, e), order


@pytest.mark.parametrize("name", [n for n, p in CASES.items() if p.shows])
def test_kernel_is_scheduled_as_its_case_says(built: Built, cases: dict, name: str) -> None:
    source = built.kernels[cases[name]].source
    for text in CASES[name].shows:
        assert text in source


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


def test_strict_kernels_round_as_every_op_does(built: Built, cases: dict[str, Case]) -> None:
    """Elementwise bf16: bit for bit what op by op gives, which is not what default gives."""
    case = cases["bf16_strict"]
    [strict] = built.run(case)
    [by_op] = evaluate(case.graph, case.args)
    assert strict.tobytes() == by_op.tobytes()
    loose = build([Case(case.graph, case.args)])
    [relaxed] = loose.run(next(iter(loose.kernels)))
    assert relaxed.tobytes() != by_op.tobytes()


def test_sharing_changes_memory_and_no_result(built: Built, cases: dict[str, Case]) -> None:
    shared, unshared = cases["squares"], cases["squares_unshared"]
    two, three = (built.kernels[case].shared_bytes for case in (shared, unshared))
    assert 3 * two == 2 * three
    for one, other in zip(built.run(shared), built.run(unshared), strict=True):
        assert one.tobytes() == other.tobytes()


def test_orders_change_no_bit_of_any_result(built: Built, cases: dict[str, Case]) -> None:
    """Reductions join in a fixed order, so runs are reproducible."""
    for case in cases.values():
        first, *others = (built.run(case, order, seed) for order, seed in ORDERS)
        for other in others:
            for a, b in zip(first, other, strict=True):
                assert a.tobytes() == b.tobytes(), case.graph.name


def test_a_kernel_runs_alone_as_it_does_among_others(built: Built, cases: dict[str, Case]) -> None:
    case = cases["layer_norm_100"]
    [alone] = emulate.run(built.kernels[case], case.args)
    assert alone.tobytes() == built.run(case)[0].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_accesses_of_threads_to_the_same_place_have_barriers_between(
    checked: Built, cases: dict[str, Case], name: str
) -> None:
    """Where results may overwrite operands they do."""
    case = cases[name]
    checked.run(case, "random", 7, in_place=bool(checked.kernels[case].in_place))


#: A few of each kind: barriers of blocks, teams, clusters and grids.
PLANTED = [
    *("of_reduction", "concatenated_reductions", "gram_in_batch", "dot_then_sum", "attention"),
    *(
        "attention_wide",
        "attention_backward",
        "heads",
        "self_attention",
        "squares",
        "squared_matrix",
    ),
    *("columns_then_rows", "softmax_both_ways", "all_four_compositions", "chained_dots", "bits"),
    *("split_columns", "split_rows", "softmax_split", "whole_norm", "three_phases", "mlp_gradient"),
    *(
        "cluster_rows",
        "cluster_norm",
        "cluster_cross_entropy",
        "streamed_wide_f32",
        "teams_of_halves",
        "teams_of_4_and_8",
        "teams_of_records",
    ),
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
        for place in checked.barriers(cases[name]):
            try:
                checked.barriers(cases[name], ignoring=place)
            except VerifyError:
                needed += 1
            else:
                dead[name] = place
    assert dead.keys() <= UNSEEN.keys(), dead
    assert needed >= 60
