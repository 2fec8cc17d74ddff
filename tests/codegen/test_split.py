"""Reductions split in two so that they fill the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.generate import plan_kernel
from fusionstitch.codegen.schedule.split import (
    FAR_STEPS,
    find_splits,
    parts,
    split_reductions,
)
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.verify import verify
from tests.codegen.regions import Case, build, whole
from tests.graphs import Builder

H200 = device("h200")


def halved(graph: Graph) -> Graph:
    """A region with its large, narrow sums split for an H200."""
    return split_reductions(graph, find_splits(graph, H200))


def reduction(dims: tuple[int, ...], over: tuple[int, ...], reducer: str = "add") -> Op:
    b = Builder()
    return b.reduce(b.parameter(dims), over, reducer)


def reduces(graph: Graph) -> list[Op]:
    return [op for op in graph if op.opcode == "reduce"]


@pytest.mark.parametrize(
    ("dims", "over", "expected"),
    [
        ((8192, 4096), (1,), 1),  # rows fill the device
        ((1 << 24,), (0,), 132),  # a scalar: as many parts as blocks of 1024 threads
        ((65_536, 64), (0,), 256),
        ((1000, 4000), (0,), 4),
        ((100, 100), (0,), 1),  # too small for a grid barrier
        ((1 << 20, 16), (1,), 1),
        ((1, 1 << 11, 64), (0,), 1),  # nothing to split
        ((1 << 11, 1, 64), (1,), 1),
        ((8, 40_009, 91), (0, 1, 2), 132),  # whole rows of a prime number: 8 parts, too few
        ((3, 16, 100_003), (0, 1, 2), 132),
    ],
)
def test_number_of_parts(dims: tuple[int, ...], over: tuple[int, ...], expected: int) -> None:
    found = parts(reduction(dims, over), H200)
    assert found <= expected
    assert found * 2 > expected or found == expected
    assert found == 1 or found & (found - 1) == 0


def test_a_device_with_fewer_multiprocessors_splits_less() -> None:
    op = reduction((65_536, 64), (0,))
    counts = [parts(op, replace(H200, sm_count=n)) for n in (1, 8, 132)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_parts_never_outnumber_the_split_dim() -> None:
    assert parts(reduction((3, 1 << 20), (0,)), H200) <= 3


def test_neighbouring_summed_dims_are_split_as_one() -> None:
    b = Builder()
    x = b.parameter((3, 40, 1000, 4))
    op = b.reduce(x, (0, 1, 2))
    assert parts(op, H200) > 3
    graph = whole(b.graph(op))
    split = halved(graph)
    verify(split)
    first, second = reduces(split)
    # parts hold whole indices of the later dims
    count = second.operands[0].dims[0]
    assert count % (3 * 40) == 0
    assert 1000 % (count // (3 * 40)) == 0
    value = np.arange(480_000, dtype=np.float32).reshape(3, 40, 1000, 4) % 7
    (reference,), (found,) = evaluate(graph, [value]), evaluate(split, [value])
    np.testing.assert_allclose(found, reference, rtol=1e-6)
    assert first.dims[0] == second.operands[0].dims[0]


def test_other_bodies_are_left_alone() -> None:
    op = reduction((1 << 20,), (0,))
    op.attrs = {**op.attrs, "reducer": None}
    assert parts(op, H200) == 1
    assert parts(Builder().parameter((4,)), H200) == 1


@pytest.mark.parametrize("rows", [70_001, 65_536, 100_003])
@pytest.mark.parametrize("reducer", ["add", "multiply", "maximum", "minimum", "xor"])
def test_partial_reductions_give_the_same(rows: int, reducer: str) -> None:
    b = Builder()
    x = b.parameter((rows, 3), "s32")
    op = b.op("reduce", (3,), x, b.constant(5, "s32"), dimensions=(0,), reducer=reducer)
    graph = whole(b.graph(op))
    split = halved(graph)
    verify(split)
    assert len(reduces(split)) == 2
    values = np.random.default_rng(0).integers(-9, 9, (rows, 3), np.int32)
    for one, other in zip(evaluate(graph, [values]), evaluate(split, [values]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_uneven_parts_are_padded_with_what_changes_nothing() -> None:
    b = Builder()
    graph = whole(b.graph(b.reduce(b.parameter((100_003, 2)), (0,), "maximum")))
    split = halved(graph)
    [pad] = [op for op in split if op.opcode == "pad"]
    assert pad.operands[1].attrs["value"] == -np.inf
    first, last = reduces(split)
    count, each = first.operands[0].dims[:2]
    assert (count - 1) * each < 100_003 <= count * each, "no part is all padding"
    assert last.operands[0] is first


def test_even_parts_need_no_padding() -> None:
    b = Builder()
    split = halved(whole(b.graph(b.reduce(b.parameter((1 << 20,)), (0,)))))
    assert "pad" not in {op.opcode for op in split}


def test_the_second_reduction_stands_for_the_op() -> None:
    b = Builder()
    op = b.reduce(b.parameter((1 << 20,)), (0,))
    split = halved(whole(b.graph(op)))
    first, last = reduces(split)
    assert (last.name, last.origin) == (op.name, op.origin)
    assert first.origin is None
    assert split.root.operands == (last,)


def test_other_ops_are_kept_as_they_are() -> None:
    b = Builder()
    x = b.parameter((20, 30))
    graph = whole(b.graph(b.exp(x), b.reduce(x, (0,))))
    assert str(halved(graph)) == str(graph)


# ---- dots ----------------------------------------------------------------------------------------


def long_dot(dtype: str, rows: int = 20_011) -> Graph:
    """Batch 2, two contracted dims of which the second is long, a free dim on each side."""
    b = Builder()
    x, y = b.parameter((3, rows, 2, 5), dtype), b.parameter((4, 3, 2, rows), dtype)
    dot = b.op(
        "dot",
        (2, 5, 4),
        x,
        y,
        lhs_batch=(2,),
        rhs_batch=(2,),
        lhs_contract=(0, 1),
        rhs_contract=(1, 3),
        precision="default",
    )
    return whole(b.graph(dot))


@pytest.mark.parametrize("rows", [20_011, 1 << 14])
@pytest.mark.parametrize("dtype", ["s32", "f32", "bf16"])
def test_partial_dots_give_the_same(dtype: str, rows: int) -> None:
    graph = long_dot(dtype, rows)
    split = halved(graph)
    verify(split)
    assert [op.opcode for op in split if op.opcode in ("dot", "reduce", "convert")] == [
        *("dot", "reduce"),
        *(["convert"] if dtype == "bf16" else []),
    ]
    rng = np.random.default_rng(0)
    kind = NUMPY_DTYPES[dtype]
    values = [rng.integers(-3, 4, p.dims).astype(kind) for p in graph.parameters]
    for one, other in zip(evaluate(graph, values), evaluate(split, values), strict=True):
        np.testing.assert_array_equal(one, other)


def test_partial_dots_of_narrow_floats_stay_wide() -> None:
    split = halved(long_dot("bf16"))
    assert [op.dtype for op in split if op.opcode in ("dot", "reduce")] == ["f32", "f32"]


def test_ordinary_dots_are_left_alone() -> None:
    b = Builder()
    assert parts(b.dot(b.parameter((64, 512)), b.parameter((512, 64))), H200) == 1
    assert parts(b.dot(b.parameter((1024, 4096)), b.parameter((4096, 1024))), H200) == 1


def test_dots_whose_steps_lie_apart_have_more_parts() -> None:
    """Rows of eight numbers, summed down: neighbouring steps share no line of memory."""
    rows = 1 << 18

    def of(dims: tuple[int, int], contracted: int) -> Op:
        b = Builder()
        sides = b.parameter(dims), b.parameter(dims)
        summed = {"lhs_contract": (contracted,), "rhs_contract": (contracted,)}
        batch: dict[str, tuple[int, ...]] = {"lhs_batch": (), "rhs_batch": ()}
        return b.op("dot", (8, 8), *sides, precision="default", **summed, **batch)

    down, along = parts(of((rows, 8), 0), H200), parts(of((8, rows), 1), H200)
    assert down == rows // FAR_STEPS > 4 * along


def test_a_long_dot_is_as_exact_as_a_long_sum(host_compiler: str) -> None:
    """A quarter of a million products of positive numbers, which one thread would sum to 1e-5."""
    b = Builder()
    x = b.parameter((262_144,))
    graph = whole(
        b.graph(
            b.op(
                "dot",
                (),
                x,
                x,
                lhs_batch=(),
                rhs_batch=(),
                lhs_contract=(0,),
                rhs_contract=(0,),
                precision="default",
            )
        )
    )
    values = np.random.default_rng(0).random(262_144, np.float32)
    case = Case(graph, [values], limit=2e-7)
    build([case]).check(case)


def test_sums_of_different_arrays_share_the_device() -> None:
    b = Builder()
    x, y, z = b.parameter((4096, 768)), b.parameter((4096, 768)), b.parameter((4096, 1536))
    sums = [b.reduce(x, (0,)), b.reduce(b.mul(x, y), (0,)), b.reduce(z, (0,))]
    alone = parts(sums[0], H200)
    graph = whole(b.graph(*sums))
    counts = [op.operands[0].dims[0] for op in reduces(halved(graph))[::2]]
    # x and y are read together: as many bytes as z has
    assert counts == [alone // 2] * 3
    assert parts(sums[2], H200) == alone


def test_what_share_partial_sums_have_is_said_by_the_decision() -> None:
    b = Builder()
    x, y = b.parameter((4096, 768)), b.parameter((4096, 768 * 3))
    scheduled = plan_kernel(whole(b.graph(b.reduce(x, (0,)), b.reduce(y, (0,)))), H200)
    stages = [stage for group in scheduled.plan.groups for stage in group.group.stages]
    by_sum = {annotations_of(s.op).part_of: s.share for s in stages if s.share is not None}
    assert by_sum == {number: split.share for number, split in scheduled.splits.items()}
    assert sorted(by_sum.values()) == [0.25, 0.75]


def test_sums_of_one_array_have_the_device_to_themselves() -> None:
    b = Builder()
    x = b.parameter((4096, 768))
    graph = whole(b.graph(b.reduce(x, (0,)), b.reduce(b.mul(x, x), (0,))))
    partial = reduces(halved(graph))[::2]
    assert [op.operands[0].dims[0] for op in partial] == [
        parts(op, H200) for op in graph.ops[:-1] if op.opcode == "reduce"
    ]
    assert all(annotations_of(op).part_of is None for op in partial)


def test_a_sum_over_a_single_row_is_left_alone() -> None:
    b = Builder()
    x, y = b.parameter((1, 1 << 16)), b.parameter((4096, 768))
    graph = whole(b.graph(b.reduce(x, (0,)), b.reduce(y, (0,))))
    assert len(reduces(halved(graph))) == 3


def pairs(n: int, m: int, over: tuple[int, ...]) -> Graph:
    b = Builder()
    x, y = (b.broadcast(b.parameter((k,)), (n, m), (d,)) for d, k in enumerate((n, m)))
    return whole(b.graph(b.reduce(b.exp(b.sub(x, y)), over)))


def test_a_sum_over_all_pairs_has_a_part_for_each_of_one_side() -> None:
    [split] = find_splits(pairs(2048, 3000, (0, 1)), H200).values()
    assert split.parts == 2048


def test_sums_over_the_pairs_of_each_are_left_whole() -> None:
    assert not find_splits(pairs(2048, 3000, (1,)), H200)
    assert not find_splits(pairs(2048, 3000, (0,)), H200)
