"""Indices that the data decides: the maps of gathers and dynamic slices, integers known without any
data, and the names under which the others are printed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.index_maps.index import (
    Fetched,
    Index,
    constant,
    fetched,
    render,
    replaced,
    variable,
)
from fusionstitch.codegen.index_maps.maps import arguments, known, position, reads
from fusionstitch.codegen.index_maps.vectors import aligned_base
from fusionstitch.codegen.ir.expressions import Name
from fusionstitch.codegen.ir.spelling import spell
from fusionstitch.codegen.loops.stages import find_stages
from fusionstitch.codegen.lower.values import clamped
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen.regions import H200, whole
from tests.codegen.test_index import CInt
from tests.graphs import Builder

Point = dict[str, CInt]
Data = dict[Op, np.ndarray]


def value(index: Index, point: Point, data: Data) -> int:
    """What an index is at a point of its loop variables."""
    here = dict(point)

    def name(place: Fetched) -> Fetched:
        at = tuple(value(i, point, data) for i in place.at)
        number = min(max(int(data[place.op][at]), 0), place.extent - 1)
        here[f"p{len(here)}"] = CInt(number)
        return Fetched(place.op, place.at, place.extent, f"p{len(here) - 1}")

    return int(eval(render(replaced(index, name)), {}, here))


def check(op: Op, data: Data) -> None:
    """Every element of `op` is what its map picks from its operands."""
    values = [data[o] for o in op.operands]
    expected = evaluate_op(op, values)
    index = tuple(variable(f"d{d}", extent) for d, extent in enumerate(op.dims))
    alternatives = reads(op, index)
    for place in itertools.product(*map(range, op.dims)):
        point = {f"d{d}": CInt(p) for d, p in enumerate(place)}
        read = next(
            r
            for r in alternatives
            if all(g.lower <= value(g.index, point, data) < g.upper for g in r.guards)
        )
        at = tuple(value(i, point, data) for i in read.index)
        inside = all(0 <= p < n for p, n in zip(at, values[read.operand].shape, strict=True))
        assert inside, (op, place, at)
        assert values[read.operand][at] == expected[place], (op, place)


def numbers(op: Op, low: int = 0, high: int | None = None) -> np.ndarray:
    """Distinct numbers, or with `high` drawn ones."""
    if high is None:
        return np.arange(op.shape.size, dtype=np.int32).reshape(op.dims)
    return np.random.default_rng(0).integers(low, high, op.dims).astype(np.int32)


@given(st.data())
def test_gather(data: st.DataObject) -> None:
    """Any mapped dims in any order, batching dims, window sizes, and dim of the index vector."""
    rank = data.draw(st.integers(1, 3))
    dims = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    order = data.draw(st.permutations(range(rank)))
    mapped = tuple(order[: data.draw(st.integers(1, rank))])
    batch = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(0, 2)))]
    batching = tuple(order[len(mapped) :][: data.draw(st.integers(0, 1))])
    along = tuple(data.draw(st.integers(0, len(batch))) for _ in batching)
    for d, e in zip(batching, along, strict=True):
        batch.insert(e, dims[d])
    sizes = [1 if d in batching else data.draw(st.integers(1, n)) for d, n in enumerate(dims)]
    collapsed = tuple(
        d for d in range(rank) if sizes[d] == 1 and d not in batching and data.draw(st.booleans())
    )
    vector_dim = data.draw(st.integers(0, len(batch)))
    b = Builder()
    x = b.parameter(dims, "s32")
    indices = b.parameter((*batch[:vector_dim], len(mapped), *batch[vector_dim:]), "s32")
    retained = [n for d, n in enumerate(sizes) if d not in (*collapsed, *batching)]
    total = len(retained) + len(batch)
    offset = tuple(sorted(data.draw(st.permutations(range(total)))[: len(retained)]))
    left, window = iter(batch), iter(retained)
    result = [next(window) if d in offset else next(left) for d in range(total)]
    along = tuple(e + (e >= vector_dim) for e in along)
    op = b.op(
        "gather",
        result,
        x,
        indices,
        offset_dims=offset,
        collapsed_slice_dims=collapsed,
        start_index_map=mapped,
        index_vector_dim=vector_dim,
        operand_batching_dims=batching,
        start_indices_batching_dims=along,
        slice_sizes=tuple(sizes),
    )
    check(op, {x: numbers(x), indices: numbers(indices, -3, 7)})


@given(st.lists(st.tuples(*(st.integers(1, 4), st.integers(0, 3))), min_size=1, max_size=3))
def test_slices_at_run_time_places(spec: list[tuple[int, int]]) -> None:
    sizes = tuple(n for n, _ in spec)
    dims = tuple(n + more for n, more in spec)
    for start in (-2, 0, 1, 9):
        b = Builder()
        x, update = b.parameter(dims, "s32"), b.parameter(sizes, "s32")
        starts = [b.parameter((), "s32") for _ in dims]
        positions: Data = {s: np.array(start, np.int32) for s in starts}
        data = {x: numbers(x), update: numbers(update) + 1000, **positions}
        check(b.op("dynamic-slice", sizes, x, *starts, sizes=sizes), data)
        check(b.op("dynamic-update-slice", dims, x, update, *starts), data)


def test_what_a_place_is_made_of_is_an_argument() -> None:
    b = Builder()
    x, i = b.parameter((9, 4)), b.parameter((), "s32")
    zero = b.constant(0, "s32")
    op = b.op("dynamic-slice", (2, 4), x, i, zero, sizes=(2, 4))
    [start, read] = arguments(op, (variable("r", 2), variable("c", 4)))
    assert start == (i, ())
    assert read[0] is x
    assert read[1][1] == variable("c", 4), "a slice over all of a dim starts at 0"


# ---- integers that no array decides --------------------------------------------------------------


def limited(b: Builder, most: int) -> Op:
    return b.op("clamp", (9, 1), b.constant(0, "s32"), rows(b), b.constant(most, "s32"))


def rows(b: Builder, dtype: str = "s32", n: int = 9) -> Op:
    return b.op("iota", (n, 1), dtype=dtype, dimension=0)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda b: rows(b), "r"),
        (lambda b: b.reshape(rows(b), (1, 9, 1)), "c"),
        (lambda b: b.op("convert", (9, 1), rows(b), dtype="s64"), "r"),
        (lambda b: b.add(rows(b), b.splat(3, (9, 1), "s32")), "r + 3"),
        (lambda b: b.sub(rows(b), b.splat(3, (9, 1), "s32")), "r - 3"),
        (lambda b: b.op("reverse", (9, 1), rows(b), dimensions=(0,)), "-r + 8"),
        (lambda b: rows(b, "s8", 200), None),
        (lambda b: b.sub(rows(b, "u32"), rows(b, "u32")), "0"),
        (lambda b: b.parameter((9, 1), "s32"), None),
        (lambda b: b.mul(rows(b), rows(b)), None),
        (lambda b: limited(b, 8), "r"),
        (lambda b: limited(b, 7), None),
    ],
)
def test_known(make: Any, found: str | None) -> None:
    op = make(Builder())
    index = tuple(variable(name, n) for name, n in zip("rcx", op.dims, strict=False))
    result = known(op, index)
    assert (None if result is None else render(result)) == found


@pytest.mark.parametrize("bound", [0, 9])
def test_the_wrap_of_negative_places_is_decided_where_it_can_be(bound: int) -> None:
    b = Builder()
    i = b.sub(rows(b), b.splat(9 - bound, (9, 1), "s32"))
    zero, nine = b.splat(0, (9, 1), "s32"), b.splat(9, (9, 1), "s32")
    negative = b.op("compare", (9, 1), i, zero, dtype="pred", direction="LT", total_order=False)
    wrapped = b.op("select", (9, 1), negative, b.add(i, nine), i, dtype="s32")
    result = known(wrapped, (variable("r", 9), constant(0)))
    assert result is not None
    assert render(result) == "r"


def test_known_places_are_clamped_at_once() -> None:
    b = Builder()
    assert position(b.constant(-4, "s32"), (), 7) == constant(0)
    assert position(b.constant(9, "s32"), (), 7) == constant(6)
    r = variable("r", 9)
    assert position(rows(b), (r, constant(0)), 9) == r
    late = position(rows(b), (r, constant(0)), 8)
    assert [f.extent for f in late.fetched] == [8]
    assert position(b.parameter((), "s32"), (), 1) == Index(), "there is one place only"


def test_a_place_is_known_by_the_integer_it_is_copied_from() -> None:
    b = Builder()
    i = b.parameter((9,), "s32")
    column = b.reshape(i, (9, 1))
    pair = b.concatenate([rows(b), column], 1)
    r = variable("r", 9)
    for op, at in ((i, (r,)), (column, (r, Index())), (pair, (r, constant(1)))):
        assert position(op, at, 5) == fetched(i, (r,), 5)


# ---- indices that hold them ----------------------------------------------------------------------


def test_an_index_depends_on_what_its_places_depend_on() -> None:
    b = Builder()
    i = b.parameter((9, 4), "s32")
    r, c = variable("r", 9), variable("c", 4)
    place = fetched(i, (r, c), 7)
    index = place * 4 + c
    assert (index.lo, index.hi) == (0, 27)
    assert {v.name for v in index.variables} == {"r", "c"}
    assert index // 4 == place
    assert index % 4 == c
    [term] = index.fetched
    named = replaced(index, lambda p: Fetched(p.op, p.at, p.extent, "at"))
    assert render(named) == "at * 4 + c"
    assert {v.name for v in named.variables} == {"r", "c", "at"}
    assert ((index + 3) % 8).fetched == (term,)


def test_a_place_that_moves_with_the_lane_is_no_vector() -> None:
    b = Builder()
    i = b.parameter((9, 4), "s32")
    r, c = variable("r", 9), variable("c", 4)
    [(lane, _)] = c.terms
    rows = fetched(i, (r, Index()), 7) * 8 + c
    assert aligned_base(rows, lane, 4) == fetched(i, (r, Index()), 7) * 8  # type: ignore[arg-type]
    assert aligned_base(fetched(i, (r, c), 7) * 8 + c, lane, 4) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "last", "text"),
    [
        ("s32", 9, "fs_clamp(0, x, 9)"),
        ("u32", 9, "fs_min(x, 9u)"),
        ("s8", 9, "fs_clamp(int8_t(0), x, int8_t(9))"),
        ("s8", 127, "fs_max(x, int8_t(0))"),
        ("s8", 500, "fs_max(x, int8_t(0))"),
        ("u8", 300, "x"),
        ("u64", 300, "fs_min(x, uint64_t(300u))"),
    ],
)
def test_clamping(dtype: str, last: int, text: str) -> None:
    assert spell(clamped(Name("x"), dtype, last)) == text


# ---- stages --------------------------------------------------------------------------------------


def picked_rows(b: Builder) -> Graph:
    """table[i] + 1 of table f32[40, 64] and i s32[8]."""
    table, i = b.parameter((40, 64)), b.parameter((8,), "s32")
    return b.graph(b.add(b.rows(table, i), b.splat(1.0, (8, 64))))


def test_a_stage_passes_over_places_and_picks_by_them() -> None:
    [stage] = find_stages(whole(picked_rows(Builder())))
    assert [op.dims for op, _ in stage.loads] == [(8,), (40, 64)]
    assert [op.dims for op in stage.swept] == [(8,)]


def test_a_place_is_computed_once_for_what_it_is_used_for() -> None:
    source = generate(whole(picked_rows(Builder())), H200).source
    assert source.count("fs_clamp(0, ") == 1
