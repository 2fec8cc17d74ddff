"""Elements that lie apart bring their sectors with them: what the model counts of that."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.generate import inspect
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.work import SECTOR_BYTES
from tests.codegen.regions import whole_of

H200 = device("h200")


def from_l2(fun: Any, *dims: int) -> int:
    """Bytes that the kernel of a function of one f32 array moves from L2 beside all it needs."""
    found = inspect(whole_of(fun, jax.ShapeDtypeStruct(dims, jnp.float32)), H200)
    assert isinstance(found, KernelFacts)
    return found.work.l2_bytes


def test_rows_across_an_input_bring_a_sector_for_each_element() -> None:
    dims = (512, 8, 8, 64)
    assert from_l2(lambda x: jax.nn.softmax(x, axis=-1), *dims) == 0
    across = from_l2(lambda x: jax.nn.softmax(x.transpose(3, 1, 2, 0), axis=-1), *dims)
    assert across == 512 * 8 * 8 * 64 * (SECTOR_BYTES - 4)


@pytest.mark.parametrize("used", [1, 2, 4])
def test_loads_of_a_thread_share_sectors(used: int) -> None:
    """A sector holds two rows of four: what is used of them is moved anyway."""

    def fields(x: jax.Array) -> jax.Array:
        return sum(jnp.sin(x[:, n]) for n in range(used)) * 2

    assert from_l2(fields, 1 << 20, 4) == (4 - used) * 4 << 20


def test_a_small_array_stays_beside_the_multiprocessor() -> None:
    assert from_l2(lambda x: jnp.sin(x[:, 1]) * 2, 1024, 4) == 0
    assert from_l2(lambda x: jnp.sin(x[:, 1]) * 2, 1 << 20, 4) > 0


def test_columns_side_by_side_share_sectors() -> None:
    assert from_l2(lambda x: jnp.exp(x).sum(0) * 2, 512, 4096) == 0
