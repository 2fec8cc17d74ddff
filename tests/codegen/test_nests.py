"""Loops over rows: what shares one, and which threads lie beside each other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fusionstitch.codegen.generate import plan_kernel
from tests.codegen.regions import H200, ORDERS, Case, build, whole_of

Array = jax.Array


def instance_norm(x: Array) -> Array:
    """Of images whose channels come last, each a group of its own."""
    n, h, w, c = x.shape
    groups = x.reshape(n, h * w, c, 1)
    mean, var = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
    return ((groups - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(x.shape) * 2


def test_threads_of_columns_lie_along_the_channels() -> None:
    """A tile has the channels of a line of memory, although it would be full with one; what
    follows the sums does not go along their rows, whose elements lie apart."""
    x = jax.ShapeDtypeStruct((16, 56, 56, 128), jnp.float32)
    [group] = plan_kernel(whole_of(instance_norm, x), H200).plan.groups
    assert group.points >= 8
    *sums, last = group.nests
    assert all(nest.teams.columns for nest in sums[:2])
    assert last.inner == 1


def test_norms_of_channels(host_compiler: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 12, 20, 32)).astype(np.float32) + 5
    case = Case(whole_of(instance_norm, x), [x], H200, limit=2e-6)
    built = build([case])
    for order, seed in ORDERS:
        built.check(case, order, seed)
