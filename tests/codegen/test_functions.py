"""Equal elementwise groups as one device function that is called for each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.codegen.regions import ORDERS, Case, build, whole_of

CALL = re.compile(r"^ *elementwise\w*\((.*)\);", re.MULTILINE)


def update(*tensors: jax.Array) -> list[jax.Array]:
    return [p - 0.1 * g for p, g in zip(tensors[::2], tensors[1::2], strict=True)]


def products(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The right sides are computed once, into scratch, for the blocks of another phase."""
    return jnp.tanh(a) @ jnp.tanh(b), jnp.tanh(c) @ jnp.tanh(d)


def twice(a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
    """Values that are results and read by other blocks."""
    x, y = jnp.tanh(a), jnp.tanh(b)
    return x, y, x @ x, y @ y


@pytest.mark.parametrize(
    ("fun", "count", "written"),
    [(update, 4, "_out"), (products, 4, "_scratch"), (twice, 2, "_out")],
)
def test_every_call_writes_its_own_tensors(
    host_compiler: str, fun: Callable[..., Any], count: int, written: str
) -> None:
    draw = np.random.default_rng(0)
    args = [draw.standard_normal((64, 64), np.float32) for _ in range(count)]
    case = Case(whole_of(fun, *args), args)
    built = build([case])
    [*calls] = CALL.findall(built.kernels[case].source)
    assert len(calls) == 2
    assert all(call.endswith(written) for call in calls)
    for order, seed in ORDERS:
        built.check(case, order, seed)
