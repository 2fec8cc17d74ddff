"""Sorts of rows and their largest elements in kernels, against jax.jit.

What the kernels of longer rows compute is also checked with the other cases (sort_cases.py)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.generate import generate, plan_kernel
from fusionstitch.codegen.invariants import check_region
from fusionstitch.codegen.rewrite.expansions import expand
from fusionstitch.codegen.rewrite.long_rows import MOST_OF_BLOCK, SELECTED_PART, divide_rows
from fusionstitch.codegen.rewrite.selected_rows import select_rows
from fusionstitch.codegen.rewrite.sorts import (
    BITS,
    LONGEST,
    MOST_ELEMENTS,
    MOST_SELECTED,
    comparators,
)
from fusionstitch.codegen.rewrite.strength import reduce_strength
from fusionstitch.codegen.rewrite.strength_rules import RULES
from fusionstitch.codegen.schedule.sorts import Shape, block_of, shape_of, team_of
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.orders import order_of
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.patterns.fusible import fusible
from tests.codegen.cases import CASES
from tests.codegen.regions import ORDERS, Built, Case, build, lowered, whole, whole_of

H200 = device("h200")
CHECKED = CodegenOptions(check=True)
STRICT = CodegenOptions(check=True, numerics="strict")
FLOATS = ("float32", "float16", ml_dtypes.bfloat16)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def special(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    """Numbers with ties, zeros of both signs, infinities and NaN of both signs."""
    draw = np.random.default_rng(dims)
    known = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-30, -3.5])
    x = np.round(2 * draw.standard_normal(dims)) / 2
    return np.where(draw.random(dims) < 0.5, draw.choice(known, dims), x).astype(dtype)


def integers(*dims: int, dtype: Any = np.int32) -> np.ndarray:
    """The least, the largest, and ties."""
    draw, ends = np.random.default_rng(dims), np.iinfo(dtype)
    return draw.choice(np.array([ends.min, ends.max, 0, 1, 2, 100], dtype), dims)


def name_of(dtype: Any) -> str:
    return np.dtype(dtype).name


def by_key(*arrays: Any) -> Any:
    return lax.sort(arrays, dimension=1, num_keys=1)


def median(x: Any) -> Any:
    return jnp.median(x, 1)


def gates(x: Any) -> Any:
    """The best experts of each token, their shares, and how often each is taken."""
    p = jax.nn.softmax(x)
    best, which = lax.top_k(p, 2)
    return best / best.sum(-1, keepdims=True), which, jax.nn.one_hot(which, x.shape[-1]).mean(0)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    **{
        f"sort {name_of(t)} {n}": (lambda x: jnp.sort(x, 1), (special(9, n, dtype=t),))
        for t, n in itertools.product(FLOATS, (1, 2, 5, 12))
    },
    **{
        f"argsort {name_of(t)} {n}": (lambda x: jnp.argsort(x, 1), (special(9, n, dtype=t),))
        for t, n in itertools.product(FLOATS, (2, 7))
    },
    **{
        f"descending {name_of(t)}": (
            lambda x: (jnp.argsort(x, 1, descending=True), jnp.sort(x, 1, descending=True)),
            (special(8, 6, dtype=t),),
        )
        for t in FLOATS
    },
    **{
        f"top {name_of(t)}": (lambda x: lax.top_k(x, 3), (special(8, 10, dtype=t),)) for t in FLOATS
    },
    **{
        f"{name_of(t)}": (
            lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), lax.top_k(x, 2)),
            (integers(5, 6, 4, dtype=t),),
        )
        for t in INTEGERS
    },
    "booleans": (
        lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)),
        (integers(8, 5, dtype=np.int32) > 0,),
    ),
    "with others": (by_key, (special(9, 7), integers(9, 7), special(9, 7, dtype=np.float16))),
    "with a sum of others": (lambda x, y: by_key(x, y * 2 + x), (special(9, 5), special(9, 5))),
    "by what is computed": (
        lambda x, y: by_key(jnp.abs(x), y),
        (integers(9, 6), special(9, 6)),
    ),
    "the longest": (lambda x: jnp.argsort(x, 1), (special(6, MOST_ELEMENTS),)),
    **{
        f"all of {name_of(t)}": (
            lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), lax.top_k(x, 3)),
            ((special if t in FLOATS else integers)(40, 70, dtype=t),),
        )
        for t in (*FLOATS, *INTEGERS)
    },
    **{
        f"rows of {n}": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)), (special(rows, n),))
        for rows, n in ((35, 33), (19, 64), (18, 65), (9, 256), (3, 1024), (2, 2049), (1, 5000))
    },
    "the longest of a thread with others": (
        by_key,
        (special(9, 77), integers(9, 77), special(9, 77, dtype=np.float16)),
    ),
    "by what is computed of longer rows": (
        lambda x, y: by_key(jnp.abs(x), y * 2 + x),
        (integers(9, 66), special(9, 66)),
    ),
    "along a dim in the middle": (
        lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)),
        (special(3, 45, 5),),
    ),
    "ranks": (lambda x: jnp.argsort(jnp.argsort(x, 1), 1) * 2.0, (special(5, 90),)),
    "median": (median, (np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32),)),
}


@pytest.fixture(scope="module")
def built(host_compiler: str) -> tuple[dict[str, Case], Built]:
    cases = {
        name: Case(whole_of(fun, *args), args, options=CHECKED)
        for name, (fun, args) in PROGRAMS.items()
    }
    return cases, build(cases.values())


def alike(got: np.ndarray, expected: Any) -> bool:
    expected = np.asarray(expected)
    if got.dtype == ml_dtypes.bfloat16:
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    return np.array_equal(got, expected, equal_nan=got.dtype.kind == "f")


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_have_the_values_of_jax(name: str, built: tuple[dict[str, Case], Built]) -> None:
    cases, kernels = built
    fun, args = PROGRAMS[name]
    assert any(op.opcode in ("sort", "topk") for op in cases[name].graph)
    expected = jax.tree.leaves(jax.jit(fun)(*args))
    for order, seed in ORDERS:
        got = kernels.run(cases[name], order, seed)
        assert all(map(alike, got, expected)), order


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("strict", [False, True])
def test_zeros_keep_their_signs_and_under_strict_numerics_their_order(
    dtype: Any, strict: bool, host_compiler: str
) -> None:
    x = np.array([[0.0, -0.0, -1.0, 0.0], [-0.0, -0.0, 0.0, 2.0]], dtype)
    case = Case(whole_of(lambda x: jnp.sort(x, 1), x), [x], options=STRICT if strict else CHECKED)
    [got] = build([case]).run(case)
    signs = np.signbit(got.astype(np.float32)).tolist()
    in_order = [[True, False, True, False], [True, True, False, False]]
    assert signs == (in_order if strict else [[True, True, False, False]] * 2)


def test_a_row_is_one_threads() -> None:
    shape = jax.ShapeDtypeStruct((4096, 12), jnp.float32)
    for fun in (lambda x: jnp.argsort(x, 1), lambda x: lax.top_k(x, 2), median):
        source = generate(whole_of(fun, shape), H200).source
        waits = [line for line in source.splitlines() if "__syncthreads" in line]
        assert all("_out_staged" in line for line in waits)  # on the way to memory
        assert "_scratch" not in source


def test_of_the_largest_nothing_else_is_sorted() -> None:
    """What no result needs is not computed."""
    shape = jax.ShapeDtypeStruct((4096, 16), jnp.float32)

    def compared(k: int) -> int:
        source = generate(whole_of(lambda x: lax.top_k(x, k), shape), H200).source
        return source.count("fs_min(") + source.count("fs_max(")

    assert compared(1) == 15
    assert compared(1) < compared(2) < compared(8) < compared(16) == 2 * 63


def test_keys_alone_take_half_as_many_bits() -> None:
    shape = jax.ShapeDtypeStruct((4096, 8), jnp.float32)
    source = generate(whole_of(lambda x: jnp.sort(x, 1), shape), H200).source
    assert "uint64_t" not in source
    source = generate(whole_of(lambda x: jnp.sort(x, 1), shape), H200, STRICT).source
    assert "uint64_t" in source


# ---- rows that threads share ---------------------------------------------------------------------


def rows_of(rows: int, n: int) -> Op:
    """The op of a region that sorts such rows."""
    shape = jax.ShapeDtypeStruct((rows, n), jnp.float32)
    region = expand(whole_of(lambda x: jnp.argsort(x, 1), shape), "default")
    return next(op for op in region if op.opcode == "sort-rows")


@pytest.mark.parametrize(
    ("n", "block", "shape"),
    [
        (17, 256, Shape(4, 8, 32)),
        (33, 256, Shape(8, 8, 64)),
        (64, 256, Shape(8, 8, 64)),
        (65, 256, Shape(16, 8, 128)),
        (512, 256, Shape(32, 16, 512)),
        (513, 256, Shape(32, 32, 1024)),
        (1025, 128, Shape(128, 16, 2048)),
        (4096, 256, Shape(256, 16, 4096)),
        (MOST_OF_BLOCK, 1024, Shape(1024, 16, MOST_OF_BLOCK)),
    ],
)
def test_threads_share_what_is_a_power_of_two(n: int, block: int, shape: Shape) -> None:
    op = rows_of(2, n)
    assert block_of(op) == block
    assert shape_of(op, team_of(op, block), block) == shape


@pytest.mark.parametrize(("threads", "block"), [(64, 256), (24, 256), (8, 256), (1024, 1024)])
def test_teams_that_cannot_sort_are_told_which_can(threads: int, block: int) -> None:
    op = rows_of(2, 1000)
    with pytest.raises(CodegenError, match="Give 32 of 256 a row"):
        shape_of(op, threads, block)


def test_equal_sorts_are_one() -> None:
    """Results of several operands come from one sort of their keys."""
    args = special(9, 77), integers(9, 77)
    region = expand(whole_of(by_key, *args), "default")
    region = reduce_strength(region, RULES)
    assert sum(op.opcode == "sort-rows" for op in region) == 1


def test_what_reads_sorted_rows_is_in_their_kernel() -> None:
    """Without memory between them that other blocks see."""
    shape = jax.ShapeDtypeStruct((4096, 200), jnp.float32)
    for fun in (lambda x: jnp.argsort(x, 1), lambda x: jnp.sort(x, 1).cumsum(1), median):
        kernel = generate(whole_of(fun, shape), H200)
        assert "fs_sort_lanes<" in kernel.source
        assert kernel.scratch == ()


@pytest.mark.parametrize("name", ["rows_in_order", "sorted_columns", "largest_of_rows"])
@pytest.mark.parametrize(("team", "tile"), [(4, 1), (8, 3), (32, 5)])
def test_any_team_sorts(name: str, team: int, tile: int, host_compiler: str) -> None:
    case = CASES[name].case()
    first = plan_kernel(case.graph, case.device, case.options).template
    text = re.sub(r"cta_num=\d+;|cta_per_sm=\w+;", "", first)
    text = re.sub(r"tile=\d+;", f"tile={tile};", text)
    text = re.sub(r"team=\d+;(?=[^;]*sort-rows)", f"team={team};", text)
    assert text != first
    other = replace(case, options=replace(case.options, template=text))
    built = build([other])
    assert f"fs_sort_lanes<{team}, " in built.kernels[other].source
    for order, seed in ORDERS:
        built.check(other, order, seed)


@pytest.mark.parametrize("n", [20, 200])
def test_keys_that_are_read_alone_have_no_numbers(n: int, host_compiler: str) -> None:
    """A stable sort of one array, as XLA's GPU compiler writes it, and the largest elements."""

    def numbered(x: Any) -> Any:
        return lax.sort((x, lax.broadcasted_iota(jnp.int32, x.shape, 1)), dimension=1, num_keys=1)

    x = special(9, n)
    for fun in (lambda x: numbered(x)[0], lambda x: lax.top_k(x, 3)[0]):
        for options, wide in ((CHECKED, False), (STRICT, True)):
            case = Case(whole_of(fun, x), [x], options=options)
            built = build([case])
            assert ("uint64_t" in built.kernels[case].source) == wide
            assert alike(built.run(case)[0], jax.jit(fun)(x))
    for fun in (lambda x: numbered(x)[1], lambda x: numbered(x), lambda x: lax.top_k(x, 3)[1]):
        assert "uint64_t" in generate(whole_of(fun, x), H200).source


# ---- the first or the last of them ---------------------------------------------------------------


def selected(fun: Callable[..., Any], *dims: int) -> list[tuple[int, ...]]:
    """The dims of what is sorted in the region of a function of an array."""
    region = expand(whole_of(fun, jax.ShapeDtypeStruct(dims, jnp.float32)), "default")
    found = select_rows(region)
    check_region(found, region)
    return [op.dims for op in found if op.opcode == "sort-rows"]


@pytest.mark.parametrize(
    ("fun", "dims"),
    [
        (lambda x: lax.top_k(x, 8), (6, 8)),
        (lambda x: lax.top_k(x, 8)[0][:, :3], (6, 3)),
        (lambda x: jnp.sort(x, 1)[:, 2:9], (6, 9)),
        (lambda x: jnp.sort(x, 1)[:, ::-1][:, :7], (6, 7)),
        (lambda x: jnp.argsort(x, 1)[:, -4:] + 1, (6, 4)),
        (lambda x: jnp.sort(x.T, 0)[:5].T * 2, (6, 5)),
        (lambda x: jnp.sort(x.reshape(2, 3, 300), 2)[..., :5], (6, 5)),
        (lambda x: jnp.sort(x, 1)[:, :75], (6, 75)),
        # too many, in the middle, summed, or needed as a whole besides
        (lambda x: jnp.sort(x, 1)[:, :76], (6, 300)),
        (lambda x: jnp.sort(x, 1)[:, 100:110], (6, 300)),
        (lambda x: jnp.sort(x, 1).sum(1), (6, 300)),
        (lambda x: (jnp.sort(x, 1)[:, :5], jnp.sort(x, 1)), (6, 300)),
        (lambda x: jnp.sort(x, 1).reshape(6, 3, 100)[:, 0, :5], (6, 300)),
        (lambda x: x[:, jnp.argsort(x, 1)[0]][:, :3], (6, 300)),
    ],
)
def test_what_is_read_alone_is_selected(fun: Any, dims: tuple[int, ...]) -> None:
    assert set(selected(fun, 6, 300)) == {dims}


def test_no_more_are_selected_than_a_warp_can_compare() -> None:
    assert selected(lambda x: lax.top_k(x, MOST_SELECTED), 6, 2000) == [(6, MOST_SELECTED)] * 2
    assert selected(lambda x: lax.top_k(x, MOST_SELECTED + 1), 6, 2000) == [(6, 2000)] * 2


def test_few_of_few_are_sorted_as_a_whole() -> None:
    assert selected(lambda x: lax.top_k(x, 10), 6, 40) == [(6, 10)] * 2
    assert selected(lambda x: lax.top_k(x, 11), 6, 40) == [(6, 40)] * 2


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_number_of_the_first_is_found(data: st.DataObject) -> None:
    n = data.draw(st.integers(4 * 2, 1200), "elements")
    k = data.draw(st.integers(1, min(n // 4, MOST_SELECTED)), "first")
    rows = data.draw(st.integers(1, 20 if n < 300 else 3), "rows")
    last = data.draw(st.booleans(), "last")
    seed = data.draw(st.integers(0, 99), "seed")
    x = np.random.default_rng(seed).integers(-n // 3, n // 3, (rows, n)).astype(np.int32)
    part = slice(-k, None) if last else slice(k)

    def fun(x: Any) -> Any:
        return jnp.sort(x, 1)[:, part], jnp.argsort(x, 1)[:, part]

    case = Case(whole_of(fun, x), [x], options=CHECKED)
    in_order, places = build([case]).checked().run(case, "random", seed)
    np.testing.assert_array_equal(in_order, np.sort(x, 1)[:, part])
    np.testing.assert_array_equal(places, np.argsort(x, 1, kind="stable")[:, part])


# ---- rows that no block has ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
@pytest.mark.parametrize("n", [MOST_OF_BLOCK + 1, 5 * 8192])
def test_long_rows_are_sorted_in_parts(n: int, dtype: Any, host_compiler: str) -> None:
    """Of which there is a power of two, the last ones empty."""
    x = np.random.default_rng(n).integers(0, 250, (2, n)).astype(dtype)
    case = Case(whole_of(lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)), x), [x], options=CHECKED)
    built = build([case])
    assert "fs_merge_block<" in built.kernels[case].source
    in_order, places = built.run(case)
    np.testing.assert_array_equal(in_order, np.sort(x, 1))
    np.testing.assert_array_equal(places, np.argsort(x, 1, kind="stable"))


@pytest.mark.parametrize("k", [1, 40, 150])
def test_the_first_of_parts_compete(k: int, host_compiler: str) -> None:
    x = special(3, MOST_OF_BLOCK + 5)

    def fun(x: Any) -> Any:
        return lax.top_k(x, k), jnp.argsort(x, 1)[:, -k:]

    case = Case(whole_of(fun, x), [x], options=CHECKED)
    built = build([case])
    assert "fs_merge_block<" not in built.kernels[case].source
    expected = jax.tree.leaves(jax.jit(fun)(x))
    for order, seed in ORDERS:
        assert all(map(alike, built.run(case, order, seed), expected))


def test_those_that_compete_may_be_too_many_at_once() -> None:
    shape = jax.ShapeDtypeStruct((2, 1 << 20), jnp.float32)
    region = expand(whole_of(lambda x: lax.top_k(x, 50)[0], shape), "default")
    divided = divide_rows(select_rows(region))
    check_region(divided, region)
    rows = [op.operands[0].dims for op in divided if op.opcode == "sort-rows"]
    parts = [(2 * count, SELECTED_PART) for count in (2048, 200, 20)]
    assert rows == [*parts, (2, 1000)]


def test_parts_are_longer_where_more_are_selected() -> None:
    shape = jax.ShapeDtypeStruct((2, 1 << 15), jnp.float32)
    region = expand(whole_of(lambda x: lax.top_k(x, 200)[0], shape), "default")
    divided = divide_rows(select_rows(region))
    rows = [op.operands[0].dims for op in divided if op.opcode == "sort-rows"]
    assert rows == [(64, 1024), (14, 1024), (2, 1400)]


# ---- rows of any length --------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_rows_of_any_length_are_sorted(data: st.DataObject) -> None:
    n = data.draw(st.integers(MOST_ELEMENTS + 1, 600), "elements")
    rows = data.draw(st.integers(1, 40), "rows")
    seed = data.draw(st.integers(0, 99), "seed")
    x = np.random.default_rng(seed).integers(-n // 4, n // 4, (rows, n)).astype(np.int32)
    case = Case(whole_of(lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)), x), [x], options=CHECKED)
    in_order, places = build([case]).checked().run(case, "random", seed)
    np.testing.assert_array_equal(in_order, np.sort(x, 1))
    np.testing.assert_array_equal(places, np.argsort(x, 1, kind="stable"))


def test_a_loop_sorts_its_rows(host_compiler: str) -> None:
    def fun(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: jnp.sort(c, 1)[:, ::-1] * 2 + i, x)

    x = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    stitched = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))
    np.testing.assert_array_equal(stitched(x), jax.jit(fun)(x))
    [kernel] = stitched.lower(x).compile().kernels
    assert "fs_sort_" in kernel.source


# ---- the network ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 13))
def test_the_network_sorts(n: int) -> None:
    """A network sorts everything if it sorts all sequences of zeros and ones."""
    for bits in itertools.product((0, 1), repeat=n):
        found = list(bits)
        for i, j in comparators(n):
            assert i < j
            found[i], found[j] = min(found[i], found[j]), max(found[i], found[j])
        assert found == sorted(bits)


@given(st.lists(st.integers(), min_size=13, max_size=MOST_ELEMENTS))
@settings(max_examples=200, deadline=None)
def test_longer_networks_sort(values: list[int]) -> None:
    found = list(values)
    for i, j in comparators(len(values)):
        found[i], found[j] = min(found[i], found[j]), max(found[i], found[j])
    assert found == sorted(values)


def test_networks_have_as_many_comparators_as_batchers() -> None:
    assert [sum(1 for _ in comparators(1 << n)) for n in range(6)] == [0, 1, 5, 19, 63, 191]


# ---- what is left to XLA -------------------------------------------------------------------------


def sort_of(graph: Graph) -> Op:
    return next(op for op in graph if op.opcode in ("sort", "topk"))


def refusal(fun: Callable[..., Any], *args: Any) -> str:
    verdict = fusible(sort_of(lowered(fun, *args)), H200)
    assert not verdict
    return verdict.reason


def test_long_rows_are_left_to_xla() -> None:
    for fun in (lambda x: jnp.sort(x, 1), lambda x: lax.top_k(x, 2)):
        assert fusible(sort_of(lowered(fun, jax.ShapeDtypeStruct((2, LONGEST), "f"))), H200)
        assert "long rows" in refusal(fun, jax.ShapeDtypeStruct((2, LONGEST + 1), "f"))
    # along the other dim, rows are short
    assert fusible(sort_of(lowered(lambda x: jnp.sort(x, 0), special(4, LONGEST + 1))), H200)


def test_keys_of_other_types_are_left_to_xla() -> None:
    assert "float64" not in BITS
    with jax.enable_x64(True):
        for dtype in (np.float64, np.int64):
            wide = np.ones((4, 5), dtype)
            assert "of this type" in refusal(lambda x: jnp.sort(x, 1), wide)


def test_sorts_by_several_keys_are_left_to_xla() -> None:
    x = special(4, 5)
    assert "one key" in refusal(lambda x: lax.sort((x, -x), num_keys=2, dimension=1), x)
    assert "one key" in refusal(lambda x: jnp.lexsort((x, -x), axis=1), x)


COMPARATOR = """HloModule m

less {{
  a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  c = {type}[] parameter(2)
  d = {type}[] parameter(3)
  ROOT r = pred[] {root}
}}

ENTRY e {{
  x = {type}[7,5] parameter(0)
  y = {type}[7,5] parameter(1)
  ROOT s = ({type}[7,5], {type}[7,5]) sort(x, y), dimensions={{1}}, to_apply=less
}}
"""


def of_comparator(root: str, dtype: str = "s32") -> Graph:
    return from_proto(text_to_proto(COMPARATOR.format(type=dtype, root=root))).entry


@pytest.mark.parametrize(
    ("root", "dtype"),
    [
        ("compare(a, c), direction=LT", "s32"),  # of two operands
        ("compare(a, a), direction=LT", "s32"),
        ("compare(a, b), direction=LE", "s32"),  # no order
        ("compare(a, b), direction=LT", "f32"),  # where is NaN?
        ("or(a, b)", "pred"),
    ],
)
def test_what_orders_nothing_is_left_to_xla(root: str, dtype: str) -> None:
    verdict = fusible(sort_of(of_comparator(root, dtype)), H200)
    assert not verdict
    assert "one key" in verdict.reason


def test_of_what_a_comparator_computes_each_op_is_looked_at_once() -> None:
    """Keys that double what was before would take two to the power of their length otherwise."""
    doubled = "".join(
        f"  {side}{n + 1} = s32[] add({side}{n}, {side}{n})\n" for side in "xy" for n in range(30)
    )
    ends = "  x0 = s32[] add(a, a)\n  y0 = s32[] add(b, b)\n"
    text = COMPARATOR.format(type="s32", root="compare(x30, y30), direction=LT")
    text = text.replace("  ROOT r =", f"{ends}{doubled}  ROOT r =")
    found = order_of(sort_of(from_proto(text_to_proto(text)).entry))
    assert found is None  # longer than comparators are
    short = text.replace("x30, y30", "x28, y28")
    short = re.sub(r"  [xy](29|30) = .*\n", "", short)
    found = order_of(sort_of(from_proto(text_to_proto(short)).entry))
    assert found is not None
    assert (found.operand, found.descending) == (0, False)


def with_parts(root: str, dtype: str) -> str:
    """The program with both results of its sort."""
    text = COMPARATOR.format(type=dtype, root=root).replace("ROOT s =", "s =").rstrip("}\n")
    parts = "".join(
        f"  {name} = {dtype}[7,5] get-tuple-element(s), index={number}\n"
        for number, name in enumerate("gh")
    )
    return f"{text}\n{parts}  ROOT t = ({dtype}[7,5], {dtype}[7,5]) tuple(g, h)\n}}\n"


@pytest.mark.parametrize(
    ("root", "dtype"),
    [
        ("compare(a, b), direction=GT", "s32"),
        ("compare(b, a), direction=LT", "s32"),
        ("compare(d, c), direction=GT", "s32"),  # the second operand has the keys
        ("compare(a, b), direction=LT, type=TOTALORDER", "f32"),
    ],
)
def test_other_comparators_sort_as_well(root: str, dtype: str, host_compiler: str) -> None:
    args = [special(7, 5), special(7, 5)[::-1].copy()]
    if dtype == "s32":
        args = [integers(7, 5), integers(7, 5)[::-1].copy()]
    graph = from_proto(text_to_proto(with_parts(root, dtype))).entry
    case = Case(whole(graph), args, options=CHECKED)
    for got, expected in zip(build([case]).run(case), evaluate(graph, args), strict=True):
        assert alike(got, expected)


# as XLA's GPU compiler has sorted by JAX's comparators when it shows a program to passes
EXPANDED = """HloModule m
less {{
  a = {float}[] parameter(0)
  b = {float}[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  p = {bits}[] bitcast-convert(a)
  q = {bits}[] bitcast-convert(b)
  zero = {bits}[] constant(0)
  most = {bits}[] constant({most})
  below = pred[] compare(p, zero), direction=LT
  under = pred[] compare(q, zero), direction=LT
  flipped = {bits}[] xor(most, p)
  turned = {bits}[] xor(most, q)
  left = {bits}[] select(below, flipped, p)
  right = {bits}[] select(under, turned, q)
  before = pred[] compare(left, right), direction={direction}
  after = pred[] compare(right, left), direction={direction}
  equal = pred[] compare(before, after), direction=EQ
  first = pred[] compare({tie}), direction=LT
  ROOT r = pred[] select(equal, first, before)
}}
ENTRY e {{
  x = {float}[7,5] parameter(0)
  n = s32[7,5] iota(), iota_dimension=1
  s = ({float}[7,5], s32[7,5]) sort(x, n), dimensions={{1}}, to_apply=less
  g = {float}[7,5] get-tuple-element(s), index=0
  h = s32[7,5] get-tuple-element(s), index=1
  ROOT t = ({float}[7,5], s32[7,5]) tuple(g, h)
}}
"""
WORDS = {"f32": ("s32", 2**31 - 1, np.float32), "f16": ("s16", 2**15 - 1, np.float16)}


def expanded(float_: str, direction: str, tie: str = "i, j") -> Graph:
    bits, most, _ = WORDS[float_]
    text = EXPANDED.format(float=float_, bits=bits, most=most, direction=direction, tie=tie)
    return from_proto(text_to_proto(text)).entry


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("float_", WORDS)
def test_sorts_as_the_gpu_compiler_writes_them(
    float_: str, direction: str, host_compiler: str
) -> None:
    """Floats are compared as integers, and elements by their numbers where they are equal."""
    graph = expanded(float_, direction)
    case = Case(whole(graph), [special(7, 5, dtype=WORDS[float_][2])], options=CHECKED)
    for got, expected in zip(build([case]).run(case), evaluate(graph, case.args), strict=True):
        assert alike(got, expected)
    found = order_of(sort_of(graph))
    assert found is not None
    assert (found.key.dtype, found.descending) == (float_, direction == "GT")


@pytest.mark.parametrize("tie", ["j, i", "i, i", "left, right"])
def test_other_ties_are_another_order(tie: str) -> None:
    assert order_of(sort_of(expanded("f32", "LT", tie))) is None


# ---- for users -----------------------------------------------------------------------------------


def test_users_get_one_kernel(host_compiler: str) -> None:
    x = np.random.default_rng(1).standard_normal((640, 8)).astype(np.float32)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(gates, options=options).lower(x).compile()
    assert len(compiled.kernels) == 1
    for got, expected in zip(compiled(x), jax.jit(gates)(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_loops_may_sort(host_compiler: str) -> None:
    """Rows that a loop sorts are rows of the loop."""

    def sorted_steps(x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            return jnp.sort(x * 1.5 - x[:, ::-1], 1)

        return lax.fori_loop(0, 5, step, x)

    x = np.random.default_rng(2).standard_normal((300, 6)).astype(np.float32)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(sorted_steps, options=options).lower(x).compile()
    assert len(compiled.kernels) == 1
    np.testing.assert_allclose(compiled(x), jax.jit(sorted_steps)(x), rtol=1e-5, atol=1e-4)
