"""Grown kernels whose blocks wait for each other: what the verifier accepts gives one result, under
random delays too, and what it refuses the emulator finds.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen import long_counters
from tests.codegen.grown_counters import Grown, grown, wanted
from tests.codegen.long_counters import TOGETHER, compare

MANY = st.lists(grown(), min_size=TOGETHER, max_size=TOGETHER)


@settings(max_examples=3)
@given(programs=MANY, picked=st.integers(0, 1000))
def test_grown_kernels_equal_numpy(
    host_compiler: str, programs: Sequence[Grown], picked: int
) -> None:
    compare(programs, picked)


@pytest.mark.slow
@settings(max_examples=100)
@given(programs=MANY, picked=st.integers(0, 1000))
def test_thousands_of_grown_kernels_equal_numpy(
    host_compiler: str, programs: Sequence[Grown], picked: int
) -> None:
    compare(programs, picked)


def test_a_long_run_says_how_many_kernels_are_equal(
    host_compiler: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_counters, "TOGETHER", 2)
    long_counters.main(["--kernels", "3", "--delays", "1", "--mutants", "0"])
    assert capsys.readouterr().out.splitlines() == [
        "2 kernels under 1 delays each are equal",
        "3 kernels under 1 delays each are equal",
    ]


def test_a_kernel_that_computes_something_else_is_found(
    host_compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_counters, "wanted", lambda one, x: wanted(one, x) + 1)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        long_counters.main(["--kernels", "1", "--delays", "1", "--mutants", "0"])
