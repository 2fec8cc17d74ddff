"""`x.at[2:-2, 1:].set(u)`, as codes of grids have it everywhere: an update of a slice, not a
scatter, so that it joins what is around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from tests.codegen.whole_loop_programs import stitched

DRAW = np.random.default_rng(0)
FIELD = DRAW.standard_normal((9, 14, 6)).astype(np.float32)


def borders(x: Any) -> Any:
    """Conditions at four borders, one after the other."""
    x = x.at[0].set(x[1]).at[-1].set(x[-2])
    return jnp.tanh(x.at[:, 0].set(0).at[:, -1].set(2 * x[:, -2]))


def fluxes(x: Any) -> Any:
    """Differences put into zeros, their sums added to the inside."""
    east = jnp.zeros_like(x).at[:-1].set(x[1:] - x[:-1])
    north = jnp.zeros_like(x).at[:, :-1].set(x[:, 1:] - x[:, :-1])
    inside = east[1:-1, 1:-1] - east[:-2, 1:-1] + north[1:-1, 1:-1] - north[1:-1, :-2]
    return x.at[1:-1, 1:-1].add(0.1 * inside)


def levels(x: Any) -> Any:
    """One of several levels of time is written, the others stay."""
    return x.at[2:-2, 2:-2, 1].set(x[2:-2, 2:-2, 0] * 0.5).at[..., 2].multiply(jnp.sin(x[..., 0]))


def extremes(x: Any) -> Any:
    return x.at[3:5].min(x[:2]).at[:, 4:8].max(x[:, 1:5])


def strided(x: Any) -> Any:
    """No slice: every second row."""
    return jnp.cos(x.at[::2].set(-x[1::2][:1]))


def repeated(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, x: fluxes(borders(x)), x)


def beyond(x: Any) -> Any:
    """A window that lies outside is dropped as a whole."""
    return x.at[jnp.array([8, 20])].set(x[:2] + 1, mode="drop") * 2


PROGRAMS: list[Callable[..., Any]] = [
    *(borders, fluxes, levels, extremes, strided, repeated, beyond)
]


@pytest.mark.parametrize("fun", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_updates_of_slices_are_those_of_xla(
    host_compiler: str, fun: Callable[..., Any], dtype: str
) -> None:
    x = jnp.asarray(8 * FIELD).astype(dtype)
    if dtype == "int32" and fun not in (extremes, beyond):
        x = x.astype(jnp.int32).astype(jnp.float32)
    ours = fs.jit(fun, options=fs.Options(backend="emulate", scorer="paper", fallback="error"))(x)
    theirs = jax.jit(fun)(x)
    assert ours.dtype == theirs.dtype
    bound = 2e-2 if dtype == "bfloat16" else 2e-6
    np.testing.assert_allclose(
        np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=bound, atol=bound
    )


@pytest.mark.parametrize("fun", [borders, fluxes, extremes])
def test_what_is_around_updates_of_slices_is_one_kernel(fun: Callable[..., Any]) -> None:
    found = stitched(fun, jax.ShapeDtypeStruct((256, 256, 40), np.float32), scorer="paper")
    assert len(found.kernels) == 1
    assert not [one for one in found.rejected if one.rule == "op"]
