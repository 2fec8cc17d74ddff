"""Kernels under schedule choices other than the defaults: still right, and really other kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen.tuning import Tuning
from tests.codegen.kernel_cases import CASES
from tests.codegen.regions import ORDERS, Built, Case, build

TUNINGS = (
    Tuning(block=64, tile=2.0),
    Tuning(team=8, vector_bytes=8),
    Tuning(team=1024, row_registers=96),
    Tuning(block=512, blocks_per_sm=2, persistent=True),
    Tuning(block=128, team=1, row_registers=0, columns=8),
    Tuning(tile=0.5, parts=2.0, vector_bytes=4),
    Tuning(parts=0.0, merge=False, block=1024),
)


def _tuned(name: str, number: int) -> Case:
    case = CASES[name].case()
    options = replace(case.options, tuning=TUNINGS[number % len(TUNINGS)])
    return replace(case, options=options)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """Every second case, each with the next choice of the table."""
    return {name: _tuned(name, number) for number, name in enumerate(list(CASES)[::2])}


@pytest.fixture(scope="module")
def built(cases: dict[str, Case], host_compiler: str) -> Built:
    return build(cases.values())


@pytest.mark.parametrize("name", list(CASES)[::2])
def test_a_tuned_kernel_is_near_the_float64_run(
    built: Built, cases: dict[str, Case], name: str
) -> None:
    case = cases[name]
    for order, seed in ORDERS:
        built.check(case, order, seed)
