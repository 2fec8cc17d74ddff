"""Elementwise ops, conversions, complex and random numbers under fs.jit on the emulator, against
jax.jit and float64."""

from __future__ import annotations

import pytest

from tests.coverage.running import OPTIONS, all_groups

FAMILIES = ("elementwise", "types", "complex", "random", "others")
NAMES = [name for name, group in all_groups().items() if group.family in FAMILIES]


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("name", NAMES)
def test_cases_are_as_right_as_under_jax_jit(name: str) -> None:
    all_groups()[name].check(OPTIONS.replace(fallback="error"))
