"""Streamed rows whose number has no good divisor: padded to whole tiles, and stored as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.dots.chains import find_streams
from fusionstitch.codegen.dots.tile import TENSOR_ROWS
from fusionstitch.codegen.dots.whole_tiles import fill_tiles, padded_rows
from fusionstitch.codegen.generate import generate, plan_kernel
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import H200, ORDERS, SMALL, Case, build, lowered, whole, whole_of

Array = Any
F32, BF16, F16 = np.float32, ml_dtypes.bfloat16, np.float16


@pytest.mark.parametrize(
    ("rows", "padded"),
    [
        *((256, None), (512, None), (384, None), (100, None), (1500, None), (16, None)),
        # an image in 14 x 14 pieces and a class; 16 x 16; 24 x 24
        *((197, 224), (257, 288), (577, 640)),
        (509, 512),
    ],
)
def test_rows_are_padded_where_their_parts_are_bad(rows: int, padded: int | None) -> None:
    assert padded_rows(rows, 128) == padded


@given(st.integers(1, 5000), st.sampled_from([64, 128]))
def test_padded_rows_are_whole_tiles_and_few_more(rows: int, most: int) -> None:
    padded = padded_rows(rows, most)
    if padded is not None:
        assert padded > rows
        assert padded % TENSOR_ROWS == 0
        assert padded < rows + most
        assert padded_rows(padded, most) is None


def attention(q: Array, k: Array, v: Array) -> Array:
    s = jnp.einsum("bid,bjd->bij", q, k).astype(F32)
    return jnp.einsum("bij,bjd->bid", jax.nn.softmax(s).astype(v.dtype), v)


def _region(fun: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = BF16) -> Graph:
    return whole_of(fun, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))


def _filled(graph: Graph) -> Graph:
    return fill_tiles(graph, find_streams(graph, H200))


def test_every_op_with_the_rows_has_more_and_the_output_as_many_as_before() -> None:
    graph = _region(attention, (96, 257, 64), (96, 300, 64), (96, 300, 64))
    filled = _filled(graph)
    assert {n for op in filled.ops[:-1] for n in op.dims if 256 < n < 290} == {257, 288}
    assert [op.opcode for op in filled.ops[:-1] if 257 in op.dims] == ["parameter", "slice"]
    assert [o.dims for o in filled.root.operands] == [o.dims for o in graph.root.operands]


def test_positions_are_more_for_rows_and_as_many_for_columns() -> None:
    """Both come from the same numbers."""

    def causal(q: Array, k: Array, v: Array) -> Array:
        at = jnp.arange(257)
        s = jnp.where(at[:, None] >= at, jnp.einsum("bid,bjd->bij", q, k).astype(F32), -1e9)
        return jnp.einsum("bij,bjd->bid", jax.nn.softmax(s).astype(v.dtype), v)

    filled = _filled(_region(causal, *[(96, 257, 64)] * 3))
    iotas = [op.dims for op in filled.ops if op.opcode == "iota"]
    assert sorted(iotas) == [(257,), (288,)]
    assert not any(op.opcode == "pad" and op.dtype == "s32" for op in filled.ops[:-1])


@pytest.mark.parametrize(
    "fun",
    [
        lambda q, k, v: attention(q, k, v).astype(F32).sum(1),
        lambda q, k, v: attention(q, k, v)[:, 3:],
        lambda q, k, v: attention(q, k, v).reshape(96 * 257, 64),
        lambda q, k, v: jnp.cumsum(attention(q, k, v).astype(F32), 1),
    ],
    ids=["summed over", "sliced", "in one dim with others", "scanned"],
)
def test_rows_that_something_needs_to_count_stay(fun: Callable[..., Any]) -> None:
    graph = _region(fun, *[(96, 257, 64)] * 3)
    assert _filled(graph) is graph


def test_rows_in_good_parts_stay() -> None:
    graph = _region(attention, *[(96, 256, 64)] * 3)
    assert _filled(graph) is graph


@pytest.mark.parametrize("length", [197, 257, 577])
def test_images_in_pieces_and_a_class_fill_their_blocks(length: int) -> None:
    graph = _region(attention, *[(192, length, 64)] * 3)
    kernel = generate(graph, device("h200"))
    [group] = plan_kernel(graph, device("h200")).plan.groups
    [nest] = group.nests
    assert not kernel.scratch
    assert not kernel.cooperative
    assert nest.rows % TENSOR_ROWS == 0
    assert nest.rows * group.tiles == 192 * (padded_rows(length, 64) or 0)


# ---- what is computed ----------------------------------------------------------------------------

ROWS = st.sampled_from([131, 137, 149, 151, 157, 197])
COLUMNS = st.sampled_from([129, 137, 160, 197])
DEPTHS = st.sampled_from([3, 16, 24])
KINDS = st.sampled_from(["plain", "causal", "biased", "padded", "grouped", "tabled", "logsums"])


def _case(kind: str, rows: int, columns: int, depth: int, dtype: Any) -> Case:
    draw = np.random.default_rng(rows * columns + depth)

    def normal(*dims: int) -> np.ndarray:
        return (draw.standard_normal(dims) * 0.5).astype(dtype)

    own = (2, rows, depth)
    if kind == "grouped":
        own = (2, rows, 3, depth)
    args: list[np.ndarray] = [normal(*own), normal(2, columns, depth), normal(2, columns, depth)]
    if kind == "biased":
        args.append(normal(rows, columns))
    elif kind == "padded":
        args.append(draw.integers(1, columns, (2, rows)).astype(np.int32))
    elif kind == "tabled":
        args += [normal(8), draw.integers(0, 8, (rows, columns)).astype(np.int32)]

    def fun(q: Array, k: Array, v: Array, *more: Array) -> Any:
        if kind == "grouped":
            s = jnp.einsum("bimd,bjd->bmij", q, k).astype(F32)
            return jnp.einsum("bmij,bjd->bimd", jax.nn.softmax(s).astype(dtype), v)
        s = jnp.einsum("bid,bjd->bij", q, k).astype(F32)
        match kind:
            case "causal":
                s = jnp.where(jnp.arange(rows)[:, None] >= jnp.arange(columns), s, -np.inf)
            case "biased":
                s = s + more[0]
            case "padded":
                s = jnp.where(jnp.arange(columns) < more[0][:, :, None], s, -1e9)
            case "tabled":
                s = s + more[0][more[1]]
        p = jax.nn.softmax(s).astype(dtype)
        mixed = jnp.einsum("bij,bjd->bid", p, v)
        return (mixed, jax.nn.logsumexp(s, -1)) if kind == "logsums" else mixed

    name = f"{kind}_{rows}_{columns}_{depth}_{np.dtype(dtype).name}"
    return Case(whole(lowered(fun, *args), name), args, SMALL)


@settings(max_examples=2)
@given(
    st.lists(
        st.tuples(KINDS, ROWS, COLUMNS, DEPTHS, st.sampled_from([F32, BF16, F16])),
        min_size=6,
        max_size=6,
        unique=True,
    )
)
def test_padded_rows_are_near_the_float64_run(
    host_compiler: str, specs: list[tuple[Any, ...]]
) -> None:
    built = build([_case(*spec) for spec in specs])
    assert all("fs_mma_across" in kernel.source for kernel in built.kernels.values())
    for case in built.kernels:
        for order, seed in ORDERS:
            built.check(case, order, seed)
