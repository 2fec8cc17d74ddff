"""Grown kernels whose blocks wait for each other: what the verifier accepts gives one result, under
random delays too, and what it refuses the emulator finds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.hlo.errors import PassError, VerifyError
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.grown_counters import Grown, grown, lowered, mutants, wanted
from tests.codegen.synchronised import ELEMENTS, printed, runs

#: Kernels of one translation unit, and without how many statements each is tried.
TOGETHER, MUTANTS = 12, 2
X = np.arange(ELEMENTS, dtype=np.float32) % 32
DELAYS: Sequence[tuple[emulate.Order, int]] = [("delayed", seed) for seed in range(4)]
MANY = st.lists(grown(), min_size=TOGETHER, max_size=TOGETHER)


def compare(programs: Sequence[Grown], seed: int) -> None:
    """Runs all, and each without some of its statements of synchronisation."""
    right = [(one, lowered(one)) for one in programs]
    for _, kernel in right:
        verify(kernel)
    rng = np.random.default_rng(seed)
    changed: list[tuple[Grown, Lowered]] = []
    for one, kernel in right:
        less = list(mutants(kernel))
        picked = rng.choice(len(less), min(MUTANTS, len(less)), replace=False)
        changed += ((one, less[n]) for n in picked)
    both = [*right, *changed]
    texts = [printed(kernel) for _, kernel in both]
    plain = emulate.build(texts[: len(right)], checked=False)
    for (one, kernel), artifact in zip(right, plain, strict=True):
        agrees(one, kernel, artifact)
    for (one, kernel), artifact in zip(both, emulate.build(texts, checked=True), strict=True):
        if is_refused(kernel):
            with pytest.raises(VerifyError):
                agrees(one, kernel, artifact)
        else:
            agrees(one, kernel, artifact)


def agrees(one: Grown, kernel: Lowered, artifact: Artifact) -> None:
    for out in runs(printed(kernel), artifact, X, DELAYS):
        np.testing.assert_array_equal(out, wanted(one, X))


def is_refused(kernel: Lowered) -> bool:
    try:
        verify(kernel)
    except PassError:
        return True
    return False


@settings(max_examples=3)
@given(programs=MANY, seed=st.integers(0, 1000))
def test_grown_kernels_equal_numpy(
    host_compiler: str, programs: Sequence[Grown], seed: int
) -> None:
    compare(programs, seed)


@pytest.mark.slow
@settings(max_examples=100)
@given(programs=MANY, seed=st.integers(0, 1000))
def test_thousands_of_grown_kernels_equal_numpy(
    host_compiler: str, programs: Sequence[Grown], seed: int
) -> None:
    compare(programs, seed)
