"""Dots in register tiles: the device functions, the choice of tiles, and kernels of any size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import figure1
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.dots import chains
from fusionstitch.codegen.dots.tile import Tile
from fusionstitch.codegen.generate import generate, plan_kernel
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.schedule.schedule import NestPlan
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import H200, ORDERS, SMALL, Case, build, lowered, whole, whole_of
from tests.codegen.small_kernels import Launch, on_emulator
from tests.conftest import Golden
from tests.graphs import Builder

BATCH = 16_384


@pytest.fixture(autouse=True, scope="module")
def tiled() -> Iterator[None]:
    """Long rows, too, have tiles: see test_streams.py for what walks along them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "MANY_ROWS", math.inf)
        yield


# ---- device functions ----------------------------------------------------------------------------


def _warp_product(name: str, parts: str, a: np.ndarray, b: np.ndarray) -> Launch:
    """c = a b + a b by one warp: a [16, 8], b [8, 8]."""
    body = f"""
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  float c[4] = {{}};
  float left[4];
  for (int i = 0; i < 4; ++i) left[i] = a[(g + i % 2 * 8) * 8 + t + i / 2 * 4];
  const float right[2] = {{b[t * 8 + g], b[(t + 4) * 8 + g]}};
  fs_mma<{parts}>(c, c + 2, left, right);
  fs_mma<{parts}>(c, c + 2, left, right);
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];"""
    return Launch.of(name, body, (a, b), "f32", 128, block=32)


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_a_warp_multiplies_small_matrices(order: Any, seed: int, host_compiler: str) -> None:
    draw = np.random.default_rng(1)
    a, b = draw.standard_normal((16, 8)), draw.standard_normal((8, 8))
    halves = [x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (a, b)]
    floats = [x.astype(np.float32) for x in (a, b)]
    results = on_emulator(
        [
            _warp_product("one_part", "1, 1", *halves),
            _warp_product("two_parts", "2, 2", *floats),
            _warp_product("mixed_parts", "2, 1", floats[0], halves[1]),
        ],
        order,
        seed,
    )
    operands = [halves, floats, [floats[0], halves[1]]]
    for got, (left, right) in zip(results, operands, strict=True):
        expected = 2 * (left.astype(np.float64) @ right.astype(np.float64)).ravel()
        error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
        assert error < 5e-7


@pytest.mark.parametrize(("width", "count"), [(1, 4), (2, 8), (8, 2), (8, 8), (32, 64), (4, 1)])
def test_lanes_share_out_the_results_they_add_up(
    width: int, count: int, host_compiler: str
) -> None:
    values = np.random.default_rng(2).integers(-9, 9, (32, count)).astype(np.float32)
    share, apart = max(1, count // width), max(1, width // count)
    body = f"""
  float values[{count}];
  for (int i = 0; i < {count}; ++i) values[i] = a[threadIdx.x * {count} + i];
  fs_scatter_lanes<{width}, {count}, FsAdd>(values);
  const int first = threadIdx.x % {width} / {apart} * {share};
  for (int i = 0; i < {share}; ++i)
    out[threadIdx.x / {width} * {count} + first + i] = values[i];"""
    launch = Launch.of("scatter", body, (values,), "f32", 32 // width * count, block=32)
    [got] = on_emulator([launch])
    expected = values.reshape(32 // width, width, count).sum(1).ravel()
    np.testing.assert_array_equal(got, expected)


# ---- the choice ----------------------------------------------------------------------------------


def pattern(depth: int, dtype: Any = jnp.float32) -> Graph:
    q = jax.ShapeDtypeStruct((BATCH, 94, depth), dtype)
    bias = jax.ShapeDtypeStruct((94, 94), dtype)
    return whole_of(figure1.pattern, q, q, q, bias, q, name="figure1")


def tiles(graph: Graph) -> list[NestPlan]:
    plan = plan_kernel(graph, device("h200")).plan
    return [nest for group in plan.groups for nest in group.nests]


def test_deep_scores_go_to_tensor_cores_and_shallow_ones_do_not() -> None:
    [deep], [shallow] = tiles(pattern(8)), tiles(pattern(2))
    assert isinstance(deep.tile, Tile)
    assert isinstance(shallow.tile, Tile)
    assert deep.tile.tensor
    assert (deep.tile.rows, deep.tile.lanes, deep.tile.steps) == (2, 4, 24)
    assert not shallow.tile.tensor
    assert (shallow.tile.rows, shallow.tile.lanes, shallow.tile.steps) == (3, 8, 12)
    assert deep.tile.reason


def test_doubles_and_integers_never_go_to_tensor_cores() -> None:
    with jax.enable_x64(True):
        double = tiles(pattern(8, jnp.float64))
    whole_numbers = jax.ShapeDtypeStruct((64, 64), jnp.int32)
    integers = tiles(whole_of(lambda x, y: x @ y, whole_numbers, whole_numbers))
    for nest in (*double, *integers):
        assert nest.tile is None or not nest.tile.tensor
    assert any(nest.tile for nest in double)
    assert all(nest.tile for nest in integers)


def test_a_block_is_as_large_as_its_tile_and_announces_what_it_reads_late() -> None:
    kernel = generate(pattern(8), device("h200"))
    assert kernel.block == 32 * 6  # six warps of 16 rows hold 94
    assert kernel.shared_bytes == 0
    assert kernel.source.count("fs_prefetch(") == 2  # values and gate, of a block's batch entry
    assert "__launch_bounds__(192, 4)" in kernel.source


def test_a_dot_that_lanes_share_better_is_left_to_them() -> None:
    x = jax.ShapeDtypeStruct((100, 256), jnp.float32)
    w = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    assert "fs_mma" in generate(whole_of(lambda x, w: x @ w, x, w), H200).source
    assert "fs_mma" not in generate(whole_of(lambda x, w: x @ w.T, x, w), H200).source


def test_a_dot_of_highest_precision_stays_off_tensor_cores() -> None:
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)

    def fun(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.dot(x, y, precision=jax.lax.Precision.HIGHEST)

    source = generate(whole_of(fun, x, x), H200).source
    assert "_tile[" in source
    assert "fs_mma" not in source


# ---- texts ---------------------------------------------------------------------------------------


def _attention() -> Kernel:
    b = Builder()
    q, k, v = (b.parameter((300, 32, 16)) for _ in range(3))
    for op, name in zip((q, k, v), "qkv", strict=True):
        op.name = name
    scores = b.dot(q, b.transpose(k, (0, 2, 1)), batch=1)
    weights = b.exp(scores)
    return generate(whole(b.graph(b.dot(weights, v, batch=1)), "weighted"), SMALL)


def test_source_of_a_dot_along_rows_of_a_dot(golden: Golden) -> None:
    golden(_attention().source)


def test_source_of_a_tiled_dot(golden: Golden) -> None:
    b = Builder()
    x, w = b.parameter((64, 48)), b.parameter((48, 32))
    x.name, w.name = "x", "w"
    golden(generate(whole(b.graph(b.exp(b.dot(x, w))), "projected"), H200).source)


# ---- any size ------------------------------------------------------------------------------------

SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 47, 48, 64])
DTYPES = st.sampled_from([np.float32, np.float32, ml_dtypes.bfloat16, np.float16, np.int32])


@st.composite
def dots(draw: st.DrawFn) -> Case:
    """A dot with a batch or without, operands transposed or not, of a random type and size."""
    batch, m, k, n = (draw(SIZES) for _ in range(4))
    dtype = draw(DTYPES)
    left, right = draw(st.sampled_from(["ik", "ki"])), draw(st.sampled_from(["kj", "jk"]))
    prefix = draw(st.sampled_from(["", "b"]))
    extents = {"b": min(batch, 7), "i": m, "j": n, "k": k}
    make = np.random.default_rng(draw(st.integers(0, 99)))
    values = [
        make.integers(-3, 4, [extents[d] for d in prefix + side]).astype(dtype)
        for side in (left, right)
    ]
    text = f"{prefix}{left},{prefix}{right}->{prefix}ij"

    def fun(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.einsum(text, x, y) * 2

    on = draw(st.sampled_from([H200, SMALL]))
    return Case(whole(lowered(fun, *values), f"dot_{m}_{k}_{n}"), values, on)


@st.composite
def attentions(draw: st.DrawFn) -> Case:
    """A softmax between two dots, of a random size."""
    batch, rows, columns, depth, results = (draw(SIZES) for _ in range(5))
    make = np.random.default_rng(draw(st.integers(0, 99)))
    dims = (batch, rows, depth), (batch, columns, depth), (batch, columns, results)
    values = [make.standard_normal(d).astype(np.float32) for d in dims]

    def fun(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        p = jax.nn.softmax(jnp.einsum("bid,bjd->bij", q, k) * depth**-0.5)
        return jnp.einsum("bij,bjd->bid", p, v) + 1

    on = draw(st.sampled_from([H200, SMALL, replace(SMALL, sm_count=4)]))
    return Case(whole(lowered(fun, *values), f"a_{rows}_{columns}_{depth}_{results}"), values, on)


@settings(max_examples=4)
@given(st.lists(st.one_of(dots(), attentions()), min_size=10, max_size=10))
def test_dots_of_any_size_are_near_the_float64_run(host_compiler: str, cases: list[Case]) -> None:
    built = build([replace(case, limit=None) for case in cases])
    for case in built.kernels:
        for order, seed in ORDERS:
            built.check(case, order, seed)
