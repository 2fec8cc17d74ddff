"""Equal elementwise groups as one device function that is called for each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.generate import plan_kernel
from tests.codegen.regions import H200, ORDERS, Case, build, whole_of

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


def row_sums(*xs: jax.Array) -> list[jax.Array]:
    return [jnp.exp(x).sum(1) for x in xs]


@pytest.mark.parametrize(
    ("fun", "shapes", "outlined"),
    [
        (update, [(64, 64), (64, 64)], [False]),
        (update, [(64, 64), (64, 64), (32, 8), (32, 8)], [True, True]),
        (row_sums, [(64, 256), (64, 256), (16, 512)], [True, True, False]),
    ],
)
def test_the_schedule_says_which_groups_may_share_a_function(
    fun: Callable[..., Any], shapes: list[tuple[int, int]], outlined: list[bool]
) -> None:
    """Elementwise ones of any shapes, others of the same."""
    region = whole_of(fun, *(np.zeros(dims, np.float32) for dims in shapes))
    groups = plan_kernel(region, H200).plan.groups
    groups.sort(key=lambda group: group.group.stages[0].op.id)
    assert [group.outlined for group in groups] == outlined
