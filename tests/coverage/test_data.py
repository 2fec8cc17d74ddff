"""Movement, reductions, products, convolutions and sorts under fs.jit on the emulator, against
jax.jit and float64."""

from __future__ import annotations

import pytest

from tests.coverage.running import OPTIONS, all_groups

FAMILIES = ("movement", "places", "reductions", "windows", "dots", "convolutions", "sorts")
NAMES = [name for name, group in all_groups().items() if group.family in FAMILIES]


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("name", NAMES)
def test_cases_are_as_right_as_under_jax_jit(name: str) -> None:
    all_groups()[name].check(OPTIONS.replace(fallback="error"))
