"""Blocks that wait for each other by counters: planted faults of synchronisation are refused by the
verifier, and found by the emulator without verification.
"""

from __future__ import annotations

import numpy as np
import pytest

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.hlo.errors import PassError, VerifyError
from fusionstitch.runtime import emulate, nvrtc
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.counter_cases import FAULTS, REFUSED, RIGHT, TWICE, X
from tests.codegen.synchronised import kernel, printed, runs


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(name: str) -> None:
    planted, what = REFUSED[name]
    with pytest.raises(PassError) as caught:
        verify(planted)
    assert what in str(caught.value)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    verify(RIGHT[name][0])


@pytest.fixture(scope="module")
def built(host_compiler: str) -> dict[Lowered, tuple[Artifact, Artifact]]:
    """All kernels of the tables, without checks and with them."""
    kernels = [*(right for right, _ in RIGHT.values()), *(one.planted for one in FAULTS.values())]
    texts = [printed(one) for one in kernels]
    both = (emulate.build(texts, checked=checks) for checks in (False, True))
    return dict(zip(kernels, zip(*both, strict=True), strict=True))


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_gives_one_result(
    name: str, built: dict[Lowered, tuple[Artifact, Artifact]]
) -> None:
    right, expected = RIGHT[name]
    for artifact in built[right]:
        for out in runs(printed(right), artifact, X):
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_refused(name: str) -> None:
    with pytest.raises(PassError) as caught:
        verify(FAULTS[name].planted)
    assert FAULTS[name].refused in str(caught.value)


@pytest.mark.parametrize("name", FAULTS)
def test_the_emulator_finds_what_nobody_refused(
    name: str, built: dict[Lowered, tuple[Artifact, Artifact]]
) -> None:
    fault = FAULTS[name]
    _, artifact = built[fault.planted]
    with pytest.raises(VerifyError, match=fault.found):
        list(runs(printed(fault.planted), artifact, X))


def test_there_are_faults_of_all_kinds() -> None:
    assert len(FAULTS) >= 30


def test_a_kernel_with_counters_compiles_for_gpus() -> None:
    for arch in ("sm_80", "sm_90"):
        compiled = nvrtc.compile(printed(kernel(*TWICE)).source, arch)
        [(_, used)] = compiled.resources
        assert not used.spills
        assert used.stack_bytes == 0
