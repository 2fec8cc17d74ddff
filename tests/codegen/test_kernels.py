"""Generated kernels on the emulator against a float64 run and against jax.jit."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fusionstitch.accuracy import limit, relative_error
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.runtime import emulate
from tests.codegen.cases import CASES
from tests.codegen.regions import ORDERS, Built, Case, build
from tests.shares import asked

NAMES = list(CASES)


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> dict[str, Case]:
    asked_for = asked(
        request, CASES, "bf16_strict", "squares", "squares_unshared", "layer_norm_100"
    )
    return {name: CASES[name].case() for name in asked_for}


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
    expected = built.wanted(case)
    own = [relative_error(x, w) for x, w in zip(xla, expected, strict=True)]
    assert all(e < 0.02 for e in own), "the float64 run itself is far from jax.jit"
    for order, seed in ORDERS:
        for value, reference, e in zip(built.run(case, order, seed), expected, own, strict=True):
            assert relative_error(value, reference) <= limit(value.dtype, e), order


@pytest.mark.parametrize("name", [n for n, p in CASES.items() if p.shows])
def test_kernel_is_scheduled_as_its_case_says(built: Built, cases: dict, name: str) -> None:
    source = built.kernels[cases[name]].source
    for text in CASES[name].shows:
        assert text in source


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
