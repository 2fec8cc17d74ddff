"""Dims that were merged for a dot stay apart, and transposes for it are absorbed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.dots.chains import find_streams
from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.rewrite.dot_dims import keep_dims_apart, parts_of
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen.regions import H200, ORDERS, SMALL, Case, build, whole_of

Array = Any
F32, BF16, F16 = np.float32, ml_dtypes.bfloat16, np.float16


def _region(fun: Any, *dims: tuple[int, ...], dtype: Any = F32) -> Graph:
    return whole_of(fun, *(jax.ShapeDtypeStruct(d, dtype) for d in dims))


def _dots(graph: Graph) -> list[Op]:
    return [op for op in graph.ops if op.opcode == "dot"]


def _opcodes(graph: Graph) -> list[str]:
    return [op.opcode for op in graph.ops[:-1] if op.opcode != "parameter"]


def batched(a: Array, b: Array, left: int, right: int, batch: int) -> Array:
    """A product of matrices, by the dims that are summed over, behind so many of a batch."""
    dims = tuple(range(batch))
    return lax.dot_general(a, b, (((left,), (right,)), (dims, dims)))


@pytest.mark.parametrize(
    ("merged", "apart", "parts"),
    [
        ((6, 5), (2, 3, 5), ((2, 3), (5,))),
        ((5, 6), (5, 6), ((5,), (6,))),
        ((30,), (2, 3, 5), ((2, 3, 5),)),
        # extents of 1 belong to those before them
        ((6, 5), (2, 3, 1, 5), ((2, 3, 1), (5,))),
        ((6, 5), (2, 1, 3, 5), ((2, 1, 3), (5,))),
        ((1, 6), (1, 2, 3), ((1,), (2, 3))),
        # no products of neighbours, and too many
        ((5, 6), (2, 3, 5), None),
        ((6,), (4, 2), None),
        ((6,), (6, 5), None),
        ((6, 5), (6,), None),
    ],
)
def test_dims_are_runs_of_those_that_they_were_merged_from(
    merged: tuple[int, ...], apart: tuple[int, ...], parts: Any
) -> None:
    assert parts_of(merged, apart) == parts


# ---- dims that stay apart ------------------------------------------------------------------------


def _merged(k: Array, q: Array) -> Array:
    """k[b, t, d] with q[b, d, s, g], whose last dims are merged, then elementwise ops."""
    b, _, s, g = q.shape
    y = batched(k, q.reshape(b, -1, s * g), 2, 1, 1)
    return jnp.tanh(y * F32(0.5)).reshape(b, k.shape[1], s, g)


def test_free_dims_stay_apart_with_elementwise_ops_behind_them() -> None:
    found = keep_dims_apart(_region(_merged, (3, 5, 8), (3, 8, 4, 2)))
    [dot] = _dots(found)
    assert dot.dims == (3, 5, 4, 2)
    assert "reshape" not in _opcodes(found)
    assert {op.dims for op in found.ops if op.opcode == "tanh"} == {(3, 5, 4, 2)}


def test_other_operands_of_elementwise_ops_come_apart_as_well() -> None:
    def fun(k: Array, q: Array, bias: Array) -> Array:
        y = batched(k, q.reshape(3, 8, 8), 2, 1, 1)
        return jnp.exp(y + bias).reshape(3, 5, 4, 2)

    found = keep_dims_apart(_region(fun, (3, 5, 8), (3, 8, 4, 2), (3, 5, 8)))
    assert [op.dims for op in found.ops if op.opcode == "reshape"] == [(3, 5, 4, 2)]
    assert [op.dims for op in found.ops if op.opcode == "add"] == [(3, 5, 4, 2)]


def test_dims_of_batches_and_of_both_sides() -> None:
    def fun(a: Array, b: Array) -> Array:
        y = batched(a.reshape(2, 3, 8, 6), b.reshape(2, 3, 6, 12), 3, 2, 2)
        return y.reshape(2, 3, 4, 2, 3, 4)

    [dot] = _dots(keep_dims_apart(_region(fun, (2, 3, 4, 2, 6), (2, 3, 6, 3, 4))))
    assert dot.dims == (2, 3, 4, 2, 3, 4)
    assert dot.attrs["lhs_contract"] == (4,)
    assert dot.attrs["rhs_contract"] == (2,)
    assert dot.attrs["lhs_batch"] == dot.attrs["rhs_batch"] == (0, 1)


def _read_merged(k: Array, q: Array) -> Array:
    return batched(k, q.reshape(3, 8, 8), 2, 1, 1)


def _read_both_ways(k: Array, q: Array) -> tuple[Array, Array]:
    y = jnp.tanh(_read_merged(k, q))
    return y, y.reshape(3, 5, 4, 2)


def _split_dims_of_1(k: Array, q: Array) -> Array:
    return batched(k, q.reshape(3, 8, 8), 2, 1, 1).reshape(3, 5, 8, 1)


def _bytes(k: Array, q: Array) -> Array:
    return lax.bitcast_convert_type(_read_merged(k, q), jnp.int8).reshape(3, 5, 4, 2, 4)


@pytest.mark.parametrize(
    ("fun", "dims"),
    [
        (_read_merged, (3, 8, 4, 2)),
        (_read_both_ways, (3, 8, 4, 2)),
        (_split_dims_of_1, (3, 8, 8, 1)),
        (_bytes, (3, 8, 4, 2)),
        # of what is summed over, a part would be left
        (lambda k, q: batched(k, q.reshape(3, 8, 8), 2, 1, 1).reshape(3, 5, 4, 2), (3, 4, 2, 8)),
    ],
    ids=["merged", "both ways", "of extent 1", "bytes", "summed over"],
)
def test_dims_that_nobody_reads_apart_stay_merged(fun: Any, dims: tuple[int, ...]) -> None:
    graph = _region(fun, (3, 5, 8), dims)
    assert keep_dims_apart(graph) is graph


# ---- transposes ----------------------------------------------------------------------------------


def test_transposes_that_keep_the_order_of_free_dims_are_absorbed() -> None:
    def fun(q: Array, k: Array) -> Array:
        return batched(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), 3, 2, 2)

    found = keep_dims_apart(_region(fun, (2, 5, 3, 8), (2, 7, 3, 8)))
    [dot] = _dots(found)
    assert _opcodes(found) == ["dot"]
    assert dot.attrs["lhs_batch"] == dot.attrs["rhs_batch"] == (0, 2)
    assert dot.attrs["lhs_contract"] == dot.attrs["rhs_contract"] == (3,)


def test_transposes_that_change_the_order_of_free_dims_stay() -> None:
    def fun(q: Array, k: Array) -> Array:
        return lax.dot_general(q.transpose(1, 0, 2), k, (((2,), (1,)), ((), ())))

    graph = _region(fun, (5, 3, 8), (7, 8))
    assert keep_dims_apart(graph) is graph


# ---- what is computed ----------------------------------------------------------------------------


def _softmax(s: Array) -> Array:
    e = jnp.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def grouped(q: Array, k: Array, v: Array) -> Array:
    """Queries of two heads that share keys, as traced."""
    s = jnp.einsum("blngd,bknd->bngkl", q, k).swapaxes(-1, -2).astype(F32)
    p = _softmax(s * F32(0.2)).astype(v.dtype)
    return jnp.einsum("bngqk,bknd->bqngd", p, v)


def grouped_merged(q: Array, k: Array, v: Array) -> Array:
    """The same as matrix products: dims merged, operands transposed and swapped."""
    b, length, n, g, d = q.shape
    queries = q.transpose(0, 2, 4, 1, 3).reshape(b, n, d, length * g)
    s = batched(k.transpose(0, 2, 1, 3), queries, 3, 2, 2).reshape(b, n, -1, length, g)
    s = s.transpose(0, 1, 4, 3, 2).astype(F32)
    p = _softmax(s * F32(0.2)).astype(v.dtype).reshape(b, n, g * length, -1)
    o = batched(v.transpose(0, 2, 3, 1), p, 3, 3, 2)
    return o.reshape(b, n, v.shape[-1], g, length).transpose(0, 4, 1, 3, 2)


def masked(q: Array, k: Array, v: Array, count: Array) -> Array:
    """Rows without keys are zeros: the mask applies again after the softmax."""
    inside = (jnp.arange(k.shape[1]) < count[:, None])[:, None, None]
    s = batched(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), 3, 2, 2).astype(F32)
    p = _softmax(jnp.where(inside, s, -jnp.inf))
    p = jnp.where(inside, p, F32(0)).astype(v.dtype)
    return batched(v.transpose(0, 2, 3, 1), p, 3, 3, 2).transpose(0, 3, 1, 2)


def dropped(q: Array, k: Array, v: Array, keep: Array) -> Array:
    """Weights that a mask of data leaves out, the others larger by what is left."""
    s = batched(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), 3, 2, 2).astype(F32)
    p = jnp.where(keep > 0, (_softmax(s) * F32(1.25)).astype(v.dtype), v.dtype.type(0))
    return batched(v.transpose(0, 2, 3, 1), p, 3, 3, 2).transpose(0, 3, 1, 2)


def beside(q: Array, k: Array, v: Array, other: Array) -> Array:
    """Weights beside which each row has one of no key."""
    s = batched(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), 3, 2, 2).astype(F32)
    top = jnp.maximum(s.max(-1, keepdims=True), other[:, None, None])
    e = jnp.exp(s - top)
    p = e / (e.sum(-1, keepdims=True) + jnp.exp(other[:, None, None] - top))
    return batched(v.transpose(0, 2, 3, 1), p.astype(v.dtype), 3, 3, 2).transpose(0, 3, 1, 2)


def _values(seed: int, dtype: Any, *dims: tuple[int, ...]) -> list[np.ndarray]:
    make = np.random.default_rng(seed)
    return [make.standard_normal(d).astype(dtype) for d in dims]


def _heads(dtype: Any, queries: int = 37, keys: int = 53, depth: int = 16) -> list[np.ndarray]:
    """Operands whose scores are of size 1."""
    values = _values(queries, F32, *((2, n, 3, depth) for n in (queries, keys, keys)))
    return [(x * depth**-0.25).astype(dtype) for x in values]


def _many(dtype: Any, depth: int) -> list[np.ndarray]:
    return _values(5, dtype, (1, 40, 2, 2, depth), *[(1, 70, 2, depth)] * 2)


def _cases() -> dict[str, Case]:
    counts = np.array([0, 17], np.int32)
    keep = _values(3, F32, (2, 3, 37, 150))
    found: dict[str, tuple[Any, list[np.ndarray]]] = {
        "merged": (_merged, _values(1, F32, (3, 5, 8), (3, 8, 4, 2))),
        "grouped_f32": (grouped_merged, _many(F32, 24)),
        "grouped_bf16": (grouped_merged, _many(BF16, 16)),
        "grouped_f16": (grouped_merged, _many(F16, 80)),
        **{f"masked_{t.__name__}": (masked, [*_heads(t), counts]) for t in (F32, BF16, F16)},
        "masked_wide": (masked, [*_heads(BF16, 33, 40, 128), counts]),
        "beside": (beside, [*_heads(F32, 37, 150), np.array([-90, 0.5, 3], F32)]),
        "dropped": (dropped, [*_heads(BF16, 37, 150), *keep]),
    }
    return {name: _case(name, fun, args) for name, (fun, args) in found.items()}


def _case(name: str, fun: Any, args: list[np.ndarray]) -> Case:
    """Scores and weights are rounded to bf16, not the results alone."""
    limit = 8e-3 if args[0].dtype == BF16 else None
    return Case(whole_of(fun, *args, name=name), args, SMALL, limit=limit)


def test_kernels_are_near_the_float64_run(host_compiler: str) -> None:
    cases = _cases()
    built = build(cases.values())
    streamed = [
        name for name, case in cases.items() if "fs_mma_across" in built.kernels[case].source
    ]
    assert {name.split("_")[0] for name in streamed} == {"grouped", "masked", "dropped", "beside"}
    for case in cases.values():
        for order, seed in ORDERS:
            built.check(case, order, seed)


def test_rows_that_a_mask_leaves_nothing_of_are_zeros(host_compiler: str) -> None:
    """Their softmax is none: 0 / 0."""
    case = _cases()["masked_float32"]
    [got] = build([case]).run(case)
    assert not got[0].any()
    assert np.isfinite(got).all()
    assert got[1].all()


def test_what_is_rewritten_computes_the_same() -> None:
    for name, case in _cases().items():
        found = keep_dims_apart(case.graph)
        assert found is not case.graph, name
        for got, wanted in zip(
            evaluate(found, case.args, float64=True),
            evaluate(case.graph, case.args, float64=True),
            strict=True,
        ):
            np.testing.assert_allclose(
                got.astype(np.float64), wanted.astype(np.float64), rtol=1e-6, atol=1e-6
            )


def test_matrix_products_are_streamed_as_well_as_what_was_traced() -> None:
    shapes = [(8, 500, 2, 4, 16), (8, 500, 2, 16), (8, 500, 2, 16)]
    made = [
        generate(_region(fun, *shapes, dtype=F16), device("h200"))
        for fun in (grouped, grouped_merged)
    ]
    assert made[0].block == made[1].block
    assert made[0].grid == made[1].grid
    assert all("loop stream" in kernel.template for kernel in made)


@pytest.mark.parametrize(
    ("fun", "last"),
    [
        (masked, ((16,), np.int32)),
        (dropped, ((16, 4, 333, 333), F32)),
        (beside, ((4,), F32)),
    ],
)
def test_weights_are_divided_behind_their_sum(fun: Any, last: Any) -> None:
    """One walk along the columns: every score is computed once."""
    shapes = [(16, 333, 4, 32)] * 3
    args: list[Any] = [jax.ShapeDtypeStruct(s, BF16) for s in shapes]
    graph = whole_of(fun, *args, jax.ShapeDtypeStruct(*last))
    assert find_streams(graph, H200).sums
    kernel = generate(graph, device("h200"), CodegenOptions(check=True))
    assert kernel.source.count("fs_mma_along") == 1
