"""Bins: which scatters they stand for, and that all their schedules give one result.

What the kernels compute is also checked with the other cases (tests/codegen/bins_cases.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from fusionstitch.codegen.generate import CodegenOptions, plan_kernel
from fusionstitch.codegen.invariants import check_region
from fusionstitch.codegen.rewrite.bins import (
    LEAST_OF_ROW,
    LEAST_UPDATES,
    MOST_BYTES,
    fits_bins,
    split_bins,
)
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scatters import expand_scatters
from fusionstitch.codegen.schedule.bins import bins_parts, block_of, warps_of
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen.cases import CASES
from tests.codegen.regions import H200, ORDERS, Case, build, whole_of

U = LEAST_UPDATES


def drawn(*dims: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(1).standard_normal(dims), np.float32)


def places(*dims: int, below: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(2).integers(0, below, dims), np.int32)


def onto(*dims: int) -> Callable[..., Any]:
    return lambda i, u: jnp.zeros(dims).at[i].add(u)


def scatter_of(fun: Callable[..., Any], *args: Any) -> Op:
    return next(op for op in whole_of(fun, *args) if op.opcode == "scatter")


def bins_of(graph: Graph) -> Op:
    return next(op for op in expand_scatters(graph) if op.opcode == "bins")


# ---- which scatters ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fun", "args", "reason"),
    [
        (
            onto(9),
            (places(U - 1, below=9), drawn(U - 1)),
            "Its updates are too few for warps that go through a part of them each.",
        ),
        (
            onto(MOST_BYTES // 4 + 1),
            (places(U, below=9), drawn(U)),
            "The result is too large for each warp to have a copy in shared memory.",
        ),
        (
            onto(MOST_BYTES // 32 + 1, 8),
            (places(U, below=9), drawn(U, 8)),
            "The result is too large for each warp to have a copy in shared memory.",
        ),
        (
            lambda i, u: jnp.zeros((500, 9)).at[jnp.arange(500)[:, None], i].add(u),
            (places(500, LEAST_OF_ROW - 1, below=9), drawn(500, LEAST_OF_ROW - 1)),
            "Its updates are too few for warps that go through a part of them each.",
        ),
        (
            lambda i, u: jnp.zeros(9).at[i].set(u),
            (places(U, below=9), drawn(U)),
            "Several updates may write the same element, and it has no reduction to combine them.",
        ),
        (
            lambda i, u: lax.scatter_add(
                jnp.zeros(12),
                i[:, None],
                u,
                lax.ScatterDimensionNumbers((1,), (), (0,)),
            ),
            (places(U, below=9), drawn(U, 2)),
            "It scatters windows of several elements.",
        ),
    ],
    ids=["few", "large", "wide", "short rows", "replaced", "windows"],
)
def test_some_scatters_have_none(fun: Any, args: Any, reason: str) -> None:
    if "arange" in str(fun.__code__.co_names):  # rows of their own: as batches
        import jax

        fun = jax.vmap(lambda i, u: jnp.zeros(9).at[i].add(u))
    scatter = scatter_of(fun, *args)
    verdict = fits_bins(scatter)
    assert not verdict
    assert verdict.reason == reason
    assert not any(op.opcode == "bins" for op in expand_scatters(whole_of(fun, *args)))


def test_what_is_just_small_enough_has_bins() -> None:
    graph = whole_of(onto(MOST_BYTES // 4), places(U, below=9), drawn(U))
    bins = bins_of(graph)
    assert bins.dims == (1, MOST_BYTES // 4, 1)
    assert warps_of(bins, 1024) == 2
    assert block_of(bins) == 64


def test_rows_are_shared_out_in_whole_sectors() -> None:
    wide = bins_of(whole_of(onto(1000, 64), places(U, below=9), drawn(U, 64)))
    assert wide.dims == (8, 1000, 8)
    odd = scatter_of(onto(1000, 3 * 67), places(U, below=9), drawn(U, 3 * 67))
    assert not fits_bins(odd)


def test_parts_fill_the_device_if_each_has_several_rounds() -> None:
    many = bins_of(whole_of(onto(64), places(1 << 23, below=64), drawn(1 << 23)))
    assert bins_parts(many, H200) == 4 * H200.sm_count
    few = bins_of(whole_of(onto(64), places(U, below=64), drawn(U)))
    assert bins_parts(few, H200) == U // (4 * 4 * 256)


def test_parts_are_whole_and_the_region_is_sound() -> None:
    graph = expand_scatters(whole_of(onto(64), places(U + 1, below=64), drawn(U + 1)))
    split = rewrite(graph, lambda op: split_bins(op, 7) if op.opcode == "bins" else None)
    check_region(split, graph)
    [bins] = [op for op in split if op.opcode == "bins"]
    assert bins.operands[0].dims == (7, -(-(U + 1) // 7))
    bins.attrs["size"] = 63
    with pytest.raises(VerifyError, match="bins"):
        check_region(split, graph)


# ---- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bins_of_floats", "bins_of_vectors", "bins_of_many_rows"])
def test_tiles_of_several_rows_give_the_same(name: str) -> None:
    """The last of them has fewer."""
    case = CASES[name].case()
    first = plan_kernel(case.graph, case.device, case.options).template
    before, barrier, after = first.partition("grid;")
    assert "group tile=1;" in before
    before = re.sub(r"cta_num=\d+;|cta_per_sm=\w+;", "", before)
    texts = [before.replace("tile=1;", f"tile={tile};") + barrier + after for tile in (2, 3)]
    cases = [case, *(replace(case, options=CodegenOptions(template=text)) for text in texts)]
    built = build(cases)
    for one in cases:
        built.check(one)
    assert all("int row" in built.kernels[one].source for one in cases[1:])


def test_warps_without_bins_of_their_own_wait() -> None:
    """Where other loops of the kernel need more threads."""
    case = CASES["bins_of_many_rows"].case()
    first = plan_kernel(case.graph, case.device, case.options).template
    text = re.sub(r"cta_num=\d+;|cta_per_sm=\w+;", "", first)
    text = re.sub(r"cta_size=\d+;", "cta_size=512;", text).replace("team=32;", "team=512;")
    wide = replace(case, options=CodegenOptions(template=text))
    built = build([wide])
    assert "if (warp < 1)" in built.kernels[wide].source
    built.check(wide)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("bins_of_f")])
def test_the_order_of_threads_changes_no_bit(name: str) -> None:
    case = CASES[name].case()
    built = build([case])
    first, *others = [built.run(case, order, seed) for order, seed in ORDERS]
    for other in others:
        for mine, expected in zip(other, first, strict=True):
            np.testing.assert_array_equal(mine, expected)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_sizes_give_what_numpy_gives(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([1, 1, 2, 5]), "rows")
    size = data.draw(st.integers(1, 60), "elements")
    width = data.draw(st.integers(1, 4), "width")
    least = max(-(-U // (rows * width)), LEAST_OF_ROW)
    count = data.draw(st.integers(least, least + 300), "updates")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    i = np.asarray(rng.integers(0, size + 1, (rows, count)), np.int32)
    u = np.asarray(rng.integers(-8, 9, (rows, count, width)), np.float32)

    def fun(i: Any, u: Any) -> Any:
        import jax

        return jax.vmap(lambda i, u: jnp.zeros((size, width)).at[i].add(u, mode="drop"))(i, u)

    case = Case(whole_of(fun, i, u), [i, u])
    built = build([case])
    assert "fs_bins_join<" in built.kernels[case].source
    wanted = np.zeros((rows, size + 1, width))
    for row in range(rows):
        np.add.at(wanted[row], i[row], u[row])
    order, seed = data.draw(st.sampled_from(ORDERS), "order")
    [found] = built.run(case, order, seed)
    np.testing.assert_array_equal(found, wanted[:, :size])


def test_dims_of_one_are_no_trouble() -> None:
    def fun(x: Any, i: Any, u: Any) -> Any:
        return lax.scatter_add(x, i[:, None], u, lax.ScatterDimensionNumbers((), (0, 1), (0,)))

    case = Case(whole_of(fun, *(args := (drawn(9, 1), places(U, below=9), drawn(U)))), list(args))
    built = build([case])
    assert "fs_bins_join<" in built.kernels[case].source
    built.check(case)


@pytest.mark.parametrize("count", [9, U], ids=["compared", "bins"])
def test_elements_without_updates_keep_their_sign(count: int) -> None:
    x, i = np.full(9, -0.0, np.float32), places(count, below=4)
    case = Case(whole_of(lambda x, i, u: x.at[i].add(u), x, i, drawn(count)), [x, i, drawn(count)])
    [found] = build([case]).run(case)
    assert np.signbit(found[4:]).all()
    assert not found[4:].any()


def test_strict_numerics_round_each_sum_of_halves() -> None:
    x, i = np.zeros(40, np.float16), places(1 << 15, below=40)
    graph = whole_of(lambda i, u: jnp.asarray(x).at[i].add(u), i, drawn(1 << 15).astype(np.float16))
    kinds = [{op.opcode for op in expand_scatters(graph, exact)} for exact in (False, True)]
    assert ["bins" in found for found in kinds] == [True, False]
    widest = whole_of(lambda i, u: jnp.zeros(40).at[i].add(u), i, drawn(1 << 15))
    assert any(op.opcode == "bins" for op in expand_scatters(widest, exact=True))
