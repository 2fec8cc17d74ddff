"""Grown programs over NaN, infinities, signed zeros, ties and duplicates, against jax.jit.

FUSIONSTITCH_FUZZ=N tries N programs.
"""

from __future__ import annotations

import os

import jax
import pytest

import fusionstitch as fs
from tests.strangers.trial import BLOCK, trial

pytestmark = pytest.mark.slow

PROGRAMS = int(os.environ.get("FUSIONSTITCH_FUZZ") or 24)


@pytest.mark.parametrize("first", range(0, PROGRAMS, BLOCK))
def test_grown_programs_agree_with_jax(first: int) -> None:
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    done = [trial(seed, options) for seed in range(first, min(first + BLOCK, PROGRAMS))]
    jax.clear_caches()
    assert not [str(one) for one in done if one.found]
    assert sum(one.kernels > 0 for one in done) >= 0.75 * len(done)
