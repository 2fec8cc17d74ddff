"""Sums over pairs: teams that go through several rows at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.generate import generate, plan_kernel
from fusionstitch.codegen.schedule.schedule import NestPlan
from fusionstitch.codegen.schedule.tuning import PAIRED_ROWS
from fusionstitch.costmodel.devices import device
from tests.codegen.regions import H200, ORDERS, Case, build, whole_of

Array = jax.Array
#: A device that few rows fill.
SMALL = replace(H200, sm_count=1)
RNG = np.random.default_rng(5)


def points(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def squares(x: Array, y: Array) -> Array:
    return ((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1)


def forces(x: Array) -> Array:
    apart = x[:, None] - x[None]
    return (apart / ((apart**2).sum(-1) + 0.1)[..., None]).sum(1)


#: Programs with their arguments: many rows to a multiprocessor, at least 256 columns.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "nearest": (lambda x, y: squares(x, y).min(2), (points(2, 512, 3), points(2, 256, 3))),
    "both ways": (
        lambda x, y: (squares(x, y).min(1), squares(x, y).max(0)),
        (points(1024, 2), points(512, 2)),
    ),
    "kernel sums": (
        lambda x, y: jnp.exp(-jnp.abs(x[:, None] - y)).mean(1),
        (points(1024), points(2048)),
    ),
    "forces": (forces, (points(512, 3),)),
    "roots of sums": (
        lambda x, y, z: jnp.sqrt(squares(x, y).sum(1)) * z,
        (points(512, 3), points(1024, 3), points(512)),
    ),
}


def nest_of(name: str, target: Any = SMALL) -> NestPlan:
    fun, args = PROGRAMS[name]
    [nest] = plan_kernel(whole_of(fun, *args), target).plan.groups[0].nests
    return nest


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_at_once_are_near_the_float64_run(name: str, host_compiler: str) -> None:
    fun, args = PROGRAMS[name]
    case = Case(whole_of(fun, *args), args, SMALL, limit=2e-6)
    built = build([case])
    assert 1 < nest_of(name).walk.run.length <= PAIRED_ROWS
    for order, seed in ORDERS:
        built.check(case, order, seed)
    built.checked().check(case)


def test_the_other_side_is_read_once_for_all_rows() -> None:
    fun, args = PROGRAMS["kernel sums"]
    source = generate(whole_of(fun, *args), SMALL).source
    assert nest_of("kernel sums").walk.run.length == 4
    body = source[source.index("column < 512") :]
    assert body.count("fs_load_vec<float, 4>(y_1 ") == 1
    assert body.count("expf(") == 4


def test_few_rows_are_gone_through_one_by_one() -> None:
    """They are not enough to fill the device otherwise."""
    assert nest_of("nearest", H200).walk.run.length == 1


def test_rows_of_what_is_no_pair_are_gone_through_one_by_one() -> None:
    x = jax.ShapeDtypeStruct((65_536, 256), jnp.float32)
    plan = plan_kernel(whole_of(lambda x: jnp.exp(x).sum(1), x), H200).plan
    assert all(n.walk.run.length == 1 for group in plan.groups for n in group.nests)


def test_rows_at_once_compile_without_spills(nvrtc: Any) -> None:
    x = jax.ShapeDtypeStruct((16_384, 3), jnp.float32)
    for fun in (lambda x: squares(x, x).min(1), forces):
        kernel = generate(whole_of(fun, x), device("h200"))
        [(_, used)] = nvrtc.compile(kernel.source, "sm_90").resources
        assert not used.spills
