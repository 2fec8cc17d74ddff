"""Loops of grown programs in every form that they can have, against NumPy and float64.

Blocks and threads run in random order; races and accesses beyond arrays are found.
"""

from __future__ import annotations

import os

import pytest

from fusionstitch.runtime import emulate
from tests.loops import forms
from tests.loops.growth import from_seed

#: Programs a test, of which there are six; `make fuzz` sets more.
PROGRAMS = int(os.environ.get("FUSIONSTITCH_FUZZ", "10"))
TESTS = 6


@pytest.mark.parametrize("number", range(TESTS))
def test_grown_loops_give_what_numpy_gives(host_compiler: str, number: int) -> None:
    device = list(forms.DEVICES)[number % len(forms.DEVICES)]
    cases = [
        (seed, case)
        for seed in range(number * PROGRAMS, (number + 1) * PROGRAMS)
        for whole in forms.wholes(from_seed(seed))
        if whole.is_clear
        for case in forms.cases(whole, device)
    ]
    built = emulate.build([case.kernel for _, case in cases], checked=True)
    wrong = [
        f"seed {seed}, {case.whole.name}, {case.kernel.template}: {found}"
        for (seed, case), artifact in zip(cases, built, strict=True)
        if (found := forms.run(case, artifact, seed))
    ]
    assert not wrong
    assert {"rows", "block", "grid"} <= {case.form for _, case in cases}
