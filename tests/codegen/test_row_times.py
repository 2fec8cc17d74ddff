"""What kernels take for their rows, by the cost estimate of their statements."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.generate import CodegenOptions, draft
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.costmodel.work import SECTOR_BYTES
from tests.codegen.regions import whole_of

H200 = device("h200")


def cost(fun: Any, *dims: int, **tuning: Any) -> KernelCost:
    """Of the kernel of a function of one f32 array."""
    region = whole_of(fun, jax.ShapeDtypeStruct(dims, jnp.float32))
    return draft(region, H200, CodegenOptions(tuning=Tuning(**tuning))).cost


def softmax_us(**tuning: Any) -> float:
    return cost_us(cost(jax.nn.softmax, 8192, 4096, **tuning), H200)


@pytest.mark.parametrize(
    ("measured", "tuning"),
    [
        (67.2, {}),
        (93.7, {"block": 1024, "team": 1024}),
        # 64 elements a thread: registers keep no row, and two sweeps more read it from DRAM
        (132.5, {"block": 64}),
    ],
)
def test_softmax_by_different_blocks(measured: float, tuning: dict[str, Any]) -> None:
    """Measured on an H200: benchmarks/results/h200-2026-11-21-schedules.json. Nine of ten kernels
    are met as well as this."""
    assert abs(math.log2(softmax_us(**tuning) / measured)) < 0.6


def test_rows_of_few_threads_take_long() -> None:
    """416 us on the same H200."""
    assert softmax_us(team=4) > 400


def from_l2(fun: Any, *dims: int) -> int:
    """Bytes that a kernel moves from L2 beside what it touches."""
    return cost(fun, *dims).work.l2_bytes


def test_rows_across_an_input_bring_a_sector_for_each_element() -> None:
    dims = (512, 8, 8, 64)
    assert from_l2(lambda x: jax.nn.softmax(x, axis=-1), *dims) == 0
    across = from_l2(lambda x: jax.nn.softmax(x.transpose(3, 1, 2, 0), axis=-1), *dims)
    assert across == 512 * 8 * 8 * 64 * (SECTOR_BYTES - 4)


@pytest.mark.parametrize("used", [1, 2, 4])
def test_what_lies_in_a_sector_with_what_is_used_crosses_dram(used: int) -> None:
    """A sector holds two rows of four."""

    def fields(x: jax.Array) -> jax.Array:
        return sum(jnp.sin(x[:, n]) for n in range(used)) * 2

    found = cost(fields, 1 << 20, 4)
    assert found.outside == pytest.approx((16 + 4) << 20, rel=1e-5)


def test_columns_side_by_side_share_sectors() -> None:
    assert from_l2(lambda x: jnp.exp(x).sum(0) * 2, 512, 4096) == 0
