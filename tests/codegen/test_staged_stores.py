"""Records that go through shared memory on their way to global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.devices import device
from tests.codegen.movement_cases import rotation
from tests.codegen.regions import ORDERS, Case, build, whole_of

H200 = device("h200")
CHECKED = CodegenOptions(check=True)


def normal(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(dims).standard_normal(dims).astype(dtype)


def powers(count: int) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        found = [x]
        for _ in range(count - 1):
            found.append(found[-1] * (x / 4) + 1)
        return jnp.stack(found, -1)

    return fun


def several(q: Any) -> Any:
    """Records of two outputs, and elements of a third."""
    return rotation(q), powers(11)(q[:, 0]), q[:, 1] + q[:, 2]


def cubes(x: Any) -> Any:
    """Stacks of stacks of stacks."""
    parts = iter(jnp.sin(n * x) for n in range(12))
    rows = [[jnp.stack([next(parts) for _ in range(3)], -1) for _ in range(2)] for _ in range(2)]
    return jnp.stack([jnp.stack(row, -2) for row in rows], -3)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "matrices": (rotation, (normal(20001, 4),)),
    "whole blocks": (rotation, (normal(20480, 4),)),
    "several outputs": (several, (normal(8001, 4),)),
    "an even length": (powers(12), (normal(20001),)),
    "three dims": (cubes, (normal(20001),)),
    "halves": (powers(20), (normal(8001, dtype=np.float16),)),
    "bfloat16": (powers(17), (normal(8001, dtype=ml_dtypes.bfloat16),)),
    "of a batch": (lambda q: jax.vmap(rotation)(q), (normal(3, 6667, 4),)),
}


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_all_orders_of_threads_store_the_same(order: Any, seed: int, host_compiler: str) -> None:
    cases = {
        name: Case(whole_of(fun, *args), args, options=CHECKED)
        for name, (fun, args) in PROGRAMS.items()
    }
    built = build(cases.values())
    assert all("_staged[" in kernel.source for kernel in built.kernels.values())
    for name, (fun, args) in PROGRAMS.items():
        expected = jax.tree.leaves(jax.jit(fun)(*args))
        for got, wanted in zip(built.run(cases[name], order, seed), expected, strict=True):
            # what is between the elements of a record need not be rounded to halves
            near = 1e-5 if got.dtype == np.float32 else 0.05
            wide = np.asarray(wanted).astype(np.float32)
            np.testing.assert_allclose(got.astype(np.float32), wide, rtol=near, atol=near)


def source_of(fun: Callable[..., Any], *dims: int) -> str:
    return generate(whole_of(fun, jax.ShapeDtypeStruct(dims, jnp.float32)), H200).source


def test_records_are_stored_by_neighbouring_threads() -> None:
    source = source_of(rotation, 1 << 20, 4)
    assert source.count("_staged[") == 10
    assert "for (int i = threadIdx.x; i < " in source
    [store] = (line for line in source.splitlines() if "_out[" in line)
    assert store.endswith("_staged[i];")


def test_rows_of_an_even_length_are_apart_by_an_odd_one() -> None:
    source = source_of(powers(12), 1 << 20)
    assert "* 13 + 11] =" in source
    assert "_staged[(i / 12) + i]" in source


@pytest.mark.parametrize(
    ("fun", "dims"),
    [
        (powers(3), (1 << 20,)),  # the hardware joins so few
        (lambda x: powers(12)(x)[..., :6], (1 << 20,)),
        (lambda x: jnp.sin(x) + 1, (1 << 20, 12)),  # neighbors already
    ],
)
def test_other_stores_stay_as_they_are(fun: Callable[..., Any], dims: tuple[int, ...]) -> None:
    assert "_staged[" not in source_of(fun, *dims)


def test_a_vector_of_records_is_no_vector_of_threads() -> None:
    """Threads four records apart would store far from each other."""
    assert "FS_UNROLL for (int v = 0" not in source_of(several, 1 << 20, 4)


def test_arrays_that_no_block_has_room_for_stay_as_they_are() -> None:
    source = source_of(lambda x: (powers(61)(x), powers(29)(x + 1)), 1 << 20)
    assert source.count("_staged = (float*)") == 1
    assert source.count("_staged[") == 30
