"""Programs under fs.jit beside jax.jit, where every bit of the results is to be the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs

#: Every pattern that saves a kernel, on either side; what cannot be compiled is an error.
BACKENDS = ("emulate", pytest.param("cuda", marks=pytest.mark.gpu))


def compiled(fun: Callable[..., Any], *args: Any, backend: str, **options: Any) -> Any:
    """`fun` compiled for `args`, its fallback an error."""
    chosen = fs.Options(backend=backend, scorer="paper", fallback="error", **options)
    return fs.jit(fun, options=chosen).lower(*args).compile()


def check(
    fun: Callable[..., Any],
    *args: Any,
    backend: str = "emulate",
    stitched: bool = True,
    on_cpu: bool = False,
) -> list[np.ndarray]:
    """Asserts that both give the same bits (NaNs are alike), and whether a kernel did; the results.

    `args` are arrays of NumPy; with `stitched` at least one kernel must have been made, else none.
    `on_cpu` lets jax.jit run on the CPU, where XLA for GPUs does not do what JAX promises.
    """
    ours = compiled(fun, *args, backend=backend)
    assert bool(ours.kernels) == stitched, ours.explain()
    got = [np.asarray(leaf) for leaf in jax.tree.leaves(ours(*args))]
    with jax.default_device(jax.devices("cpu")[0] if on_cpu else None):
        want = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(fun)(*args))]
    for mine, theirs in zip(got, want, strict=True):
        assert_same_bits(mine, theirs)
    return got


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal in type and value, zeros in sign; any NaN equals any other."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if jnp.issubdtype(got.dtype, jnp.floating):
        got, want = got.astype(np.float64), want.astype(np.float64)
        numbers = ~(np.isnan(got) & np.isnan(want))
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
    np.testing.assert_array_equal(got, want)
