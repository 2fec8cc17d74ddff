"""Comparing what two runs of a program of several steps end with."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def assert_near(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Equal trees and types; per array at most `tolerance` of relative L2 error."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        one, two = np.asarray(mine), np.asarray(other)
        assert (one.dtype, one.shape) == (two.dtype, two.shape)
        if not np.issubdtype(one.dtype, np.floating):
            np.testing.assert_array_equal(one, two)
            continue
        error = np.linalg.norm((one.astype(np.float64) - two).ravel())
        assert error <= tolerance * max(float(np.linalg.norm(two.ravel())), 1e-6)
