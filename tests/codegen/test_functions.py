"""Equal elementwise groups as one device function that is called for each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.generate import draft, plan_kernel
from fusionstitch.codegen.lower.program import written
from fusionstitch.codegen.schedule.outlining import without_functions
from fusionstitch.codegen.while_loops.generate import Looped
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


def parts(x: jax.Array) -> tuple[jax.Array, ...]:
    """Rows from several indices on, of one array."""
    return tuple(jnp.tanh(x[n : n + 8]).sum(1) for n in (8, 16, 32))


def others(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """Stages that are alike, of other expressions."""
    return jnp.tanh(x).sum(1), jnp.exp(y).sum(1)


def loop(*xs: jax.Array) -> Any:
    return lax.fori_loop(0, 9, lambda _, ys: [y[::-1] * 2 + 1 for y in ys], list(xs))


@pytest.mark.parametrize(
    ("fun", "shapes", "functions"),
    [
        (update, [(64, 64), (64, 64)], [None]),
        (update, [(64, 64), (64, 64), (32, 8), (32, 8)], [0, 0]),
        (row_sums, [(64, 256), (64, 256), (16, 512)], [0, 0, None]),
        (others, [(64, 256), (64, 256)], [None, None]),
    ],
)
def test_the_schedule_says_which_groups_share_a_function(
    fun: Callable[..., Any], shapes: list[tuple[int, int]], functions: list[int | None]
) -> None:
    """Elementwise ones of any shapes, others of the same, that compute the same."""
    region = whole_of(fun, *(np.zeros(dims, np.float32) for dims in shapes))
    plan = plan_kernel(region, H200).plan
    groups = sorted(plan.groups, key=lambda group: group.group.stages[0].op.id)
    assert [group.function for group in groups] == functions
    assert {group.function for group in without_functions(plan).groups} == {None}


@pytest.mark.parametrize(
    ("fun", "shapes"), [(update, [(64, 64)] * 4), (row_sums, [(64, 256)] * 3), (parts, [(64, 64)])]
)
def test_groups_that_the_schedule_says_are_alike_become_one_function(
    fun: Callable[..., Any], shapes: list[tuple[int, int]]
) -> None:
    scheduled = plan_kernel(whole_of(fun, *(np.zeros(dims, np.float32) for dims in shapes)), H200)
    groups = scheduled.plan.groups
    lowered = written(scheduled, "default")
    assert [group.function for group in groups] == [0] * len(groups)
    assert len(lowered.lowered.functions) == len(groups) > 1
    assert len(lowered.passed(check=True).lowered.functions) == 1


def test_a_loop_has_no_functions() -> None:
    """They would not know the number of an iteration."""
    region = whole_of(loop, *[np.zeros(4096, np.float32)] * 4)
    found = draft(region, H200)
    assert isinstance(found, Looped)
    assert not found.written.lowered.functions
