"""Scatters with one update per element: which they are, and what stands for them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scatter_rows import in_rows
from fusionstitch.codegen.rewrite.scatter_sums import comparable
from fusionstitch.codegen.rewrite.scatters import OneUpdate, expand_scatters, one_update
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.verdict import Verdict
from tests.codegen.regions import H200, lowered, whole

ROWS, COLUMNS = np.arange(6, dtype=np.int32), np.arange(5, dtype=np.int32)
SEVERAL = "Several updates may write the same element."


def drawn(*dims: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(1).standard_normal(dims), np.float32)


def places(*dims: int) -> np.ndarray:
    """Inside, below and above."""
    return np.asarray(np.random.default_rng(2).integers(-9, 9, dims), np.int32)


def scatter_of(graph: Graph) -> Op:
    [op] = [op for op in graph if op.opcode == "scatter"]
    return op


#: name -> (fun, args) of scatters that can be selects.
ONE = {
    "rows": (lambda x, i, u: x.at[jnp.arange(6), i].add(u), drawn(6, 5), places(6), drawn(6)),
    "columns": (lambda x, i, u: x.at[i, jnp.arange(5)].set(u), drawn(6, 5), places(5), drawn(5)),
    "batches": (jax.vmap(lambda x, i, u: x.at[i].max(u)), drawn(6, 5), places(6), drawn(6)),
    "transposed batches": (
        jax.vmap(lambda x, i, u: x.at[i].set(u), (1, 0, 0)),
        drawn(5, 6),
        places(6),
        drawn(6),
    ),
    "two batch dims": (
        jax.vmap(jax.vmap(lambda x, i, u: x.at[i].mul(u))),
        drawn(2, 3, 5),
        places(2, 3),
        drawn(2, 3),
    ),
    "whole windows": (
        jax.vmap(lambda x, i, u: x.at[i].set(u)),
        drawn(4, 3, 5),
        places(4),
        drawn(4, 5),
    ),
    "a row": (lambda x, i, u: x.at[i].add(u), drawn(6, 5), places(), drawn(5)),
    "an element": (lambda x, i, u: x.at[i, 2].set(u), drawn(6, 5), places(), drawn()),
    "a known column": (lambda x, u: x.at[jnp.arange(6), 2].set(u), drawn(6, 5), drawn(6)),
    "the diagonal": (
        lambda x, u: x.at[jnp.arange(6), jnp.arange(6)].add(u),
        drawn(6, 6),
        drawn(6),
    ),
    "rows from behind": (
        lambda x, i, u: x.at[jnp.arange(6) - 6, i].set(u),
        drawn(6, 5),
        places(6),
        drawn(6),
    ),
    "clipped": (
        lambda x, i, u: x.at[jnp.arange(6), i].set(u, mode="clip"),
        drawn(6, 5),
        places(6),
        drawn(6),
    ),
    "batches joined": (  # as XLA:GPU writes them: positions are digits of one number
        lambda x, i, u: lax.scatter_add(
            x,
            jnp.stack(
                [
                    jnp.broadcast_to(jnp.arange(2, dtype=jnp.int32)[:, None], (2, 3)),
                    jnp.broadcast_to(jnp.arange(3, dtype=jnp.int32), (2, 3)),
                    i,
                ],
                -1,
            ).reshape(6, 3),
            u,
            lax.ScatterDimensionNumbers((), (0, 1, 2), (0, 1, 2)),
        ),
        drawn(2, 3, 5),
        places(2, 3),
        drawn(6),
    ),
}
#: name -> (fun, args, why it is left to XLA).
MANY = {
    "unknown rows": (
        lambda x, i, u: x.at[i].add(u),
        (drawn(6, 5), places(4), drawn(4, 5)),
        SEVERAL,
    ),
    "two per row": (
        lambda x, i, u: x.at[jnp.arange(6)[:, None], i].add(u),
        (drawn(6, 5), places(6, 2), drawn(6, 2)),
        SEVERAL,
    ),
    "fewer rows": (
        lambda x, i, u: x.at[jnp.arange(4), i].add(u),
        (drawn(6, 5), places(4), drawn(4)),
        SEVERAL,
    ),
    "a part of the row": (
        lambda x, i, u: x.at[i, :3].add(u),
        (drawn(6, 5), places(), drawn(3)),
        "It scatters windows of several elements.",
    ),
    "a body of its own": (
        lambda x, i, u: lax.scatter_apply(
            x,
            i[:, None],
            lambda v: v * v,
            lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,)),
            update_shape=(6,),
        ),
        (drawn(6, 5), places(6), drawn(6)),
        "It scatters by more than one known operation.",
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_selects_give_what_the_scatter_gives(name: str) -> None:
    fun, *args = ONE[name]
    graph = whole(lowered(fun, *args))
    assert isinstance(one_update(scatter_of(graph)), OneUpdate)
    expanded = expand_scatters(graph)
    assert not any(op.opcode == "scatter" for op in expanded)
    ours, theirs = (evaluate(g, args, float64=True) for g in (expanded, graph))
    for mine, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, expected)
    np.testing.assert_allclose(ours[0], jax.jit(fun)(*args), rtol=1e-6)


@pytest.mark.parametrize("name", MANY)
def test_others_are_left_to_xla(name: str) -> None:
    fun, args, reason = MANY[name]
    graph = lowered(fun, *args)
    verdict = one_update(scatter_of(graph))
    assert isinstance(verdict, Verdict)
    assert not verdict
    assert verdict.reason == reason
    assert expand_scatters(whole(graph)).ops[0].opcode == "parameter"


def sums(u: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
    s = jnp.zeros((6, 5)).at[jnp.arange(6), i].add(u, mode="drop")
    return s.sum(1), s.sum(0), s.sum(), s.max(1)


def test_sums_over_the_scattered_dim_do_not_walk_it() -> None:
    args = drawn(6), places(6)
    graph = whole(lowered(sums, *args))
    expanded = expand_scatters(graph)
    for mine, expected in zip(evaluate(expanded, args), evaluate(graph, args), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-6)
    reduced = [op.operands[0].dims for op in expanded if op.opcode == "reduce"]
    # what is left: the sum of columns, the sum of 6 updates, the maximum
    assert sorted(reduced) == [(6,), (6, 5), (6, 5)]


def test_a_sum_from_elsewhere_or_onto_something_is_kept() -> None:
    def onto(u: jax.Array, i: jax.Array) -> jax.Array:
        return jnp.ones((6, 5)).at[jnp.arange(6), i].add(u).sum(1)

    expanded = expand_scatters(whole(lowered(onto, drawn(6), places(6))))
    assert [op.operands[0].dims for op in expanded if op.opcode == "reduce"] == [(6, 5)]


def label_loss(x: jax.Array, labels: jax.Array) -> jax.Array:
    log_p = jax.nn.log_softmax(x.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))


@pytest.mark.parametrize("numerics", ["default", "strict"])
def test_the_gradient_of_a_label_loss_is_one_kernel_without_atomics(numerics: str) -> None:
    x, labels = jax.ShapeDtypeStruct((64, 4096), jnp.bfloat16), jnp.zeros(64, jnp.int32)
    graph = whole(lowered(jax.value_and_grad(label_loss), x, labels))
    source = generate(graph, H200, CodegenOptions(numerics=numerics)).source
    assert "atomic" not in source
    assert source.count("_compare = int32_t(") == 1, "one comparison of column and label"


def test_what_is_picked_for_a_row_is_read_before_its_sweeps() -> None:
    x, labels = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16), jnp.zeros(4096, jnp.int32)
    graph = whole(lowered(lambda x, i: jax.nn.log_softmax(x)[jnp.arange(4096), i] * 2, x, labels))
    source = generate(graph, H200).source
    assert source.index("fs_clamp(0, ") < source.index("fs_reduce_block<")


# ---- rows that index vectors count ---------------------------------------------------------------


def joined(order: str, size: int = 5) -> tuple[Any, ...]:
    """A batch of 3 rows of 4 updates each as one scatter, and the row that each update is of."""
    rows, count = 3, 4
    n = np.arange(rows * count, dtype=np.int32)
    row = {"major": n // count, "minor": n % rows}[order]
    i = places(rows * count) % size

    def fun(x: jax.Array, u: jax.Array) -> jax.Array:
        # positions that ops alone decide, as XLA's GPU compiler writes them
        own = jnp.arange(rows, dtype=jnp.int32)
        own = jnp.repeat(own, count) if order == "major" else jnp.tile(own, count)
        vectors = jnp.stack([own, jnp.asarray(i)], -1)
        return lax.scatter_add(x, vectors, u, lax.ScatterDimensionNumbers((), (0, 1), (0, 1)))

    return fun, row, i


@pytest.mark.parametrize("order", ["major", "minor"])
def test_rows_that_index_vectors_count_are_batches(order: str) -> None:
    fun, row, i = joined(order)
    x, u = drawn(3, 5), drawn(12)
    graph = whole(lowered(fun, x, u))
    found = rewrite(graph, in_rows)
    scatter = scatter_of(found)
    assert scatter.attrs["input_batching_dims"] == (0,)
    assert scatter.attrs["scatter_dims_to_operand_dims"] == (1,)
    [ours] = evaluate(found, [x, u], float64=True)
    wanted = x.astype(np.float64)
    np.add.at(wanted, (row, i), u)
    np.testing.assert_allclose(ours, wanted, rtol=1e-12)


def test_rows_that_the_data_decides_are_none() -> None:
    def fun(x: jax.Array, r: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
        dims = lax.ScatterDimensionNumbers((), (0, 1), (0, 1))
        return lax.scatter_add(x, jnp.stack([r, i], -1), u, dims)

    graph = whole(lowered(fun, drawn(3, 5), places(12), places(12), drawn(12)))
    assert rewrite(graph, in_rows) is graph


def test_rows_that_do_not_fill_a_dim_are_none() -> None:
    """The number of a row may be a digit that the last updates cut short, or always be 0."""

    def cut(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
        row = jnp.tile(jnp.arange(3, dtype=jnp.int32), 5)[:13]
        dims = lax.ScatterDimensionNumbers((), (0, 1), (0, 1))
        return lax.scatter_add(x, jnp.stack([row, i], -1), u, dims)

    for rows, count in ((3, 13), (1, 13)):
        graph = whole(lowered(cut, drawn(rows, 5), places(count), drawn(count)))
        assert rewrite(graph, in_rows) is graph


def test_an_inserted_dim_gets_its_first_element_alone() -> None:
    """All others of that dim stay what they are."""

    def fun(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
        return lax.scatter_add(x, i[:, None], u, lax.ScatterDimensionNumbers((), (0, 1), (0,)))

    several = scatter_of(lowered(fun, drawn(9, 5), places(12), drawn(12)))
    assert comparable(several).reason == "It scatters windows of several elements."
    one = whole(lowered(fun, drawn(9, 1), places(12), drawn(12)))
    assert comparable(scatter_of(one))
    args = drawn(9, 1), places(12) % 9, drawn(12)
    ours, theirs = (evaluate(g, args, float64=True)[0] for g in (expand_scatters(one), one))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
