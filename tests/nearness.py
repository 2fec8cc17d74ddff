"""Whether two results of a program with loops are near each other: by type, without a floor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def assert_near(ours: Any, theirs: Any, bound: float, rough: float) -> None:
    """Arrays of the same types: floats whose relative L2 error is at most `bound`, or `rough` in
    16 bits, and all others equal."""
    for own, their in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert own.dtype == their.dtype
        a, b = np.asarray(own, np.float64), np.asarray(their, np.float64)
        if jnp.issubdtype(own.dtype, jnp.floating):
            most = rough if own.dtype.itemsize == 2 else bound
            assert np.linalg.norm(a - b) <= most * np.linalg.norm(b)
        else:
            assert (a == b).all()
