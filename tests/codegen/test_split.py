"""Reductions split in two so that they fill the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen.split import parts, split_reductions
from costmodel.devices import device
from hlo.evaluate import evaluate
from hlo.graph import Graph, Op
from hlo.verify import verify
from tests.codegen.regions import whole
from tests.graphs import Builder

H200 = device("h200")


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
    assert parts(reduction((3, 1 << 20), (0, 1)), H200) <= 3


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
    split = split_reductions(graph, H200)
    verify(split)
    assert len(reduces(split)) == 2
    values = np.random.default_rng(0).integers(-9, 9, (rows, 3), np.int32)
    for one, other in zip(evaluate(graph, [values]), evaluate(split, [values]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_uneven_parts_are_padded_with_what_changes_nothing() -> None:
    b = Builder()
    graph = whole(b.graph(b.reduce(b.parameter((100_003, 2)), (0,), "maximum")))
    split = split_reductions(graph, H200)
    [pad] = [op for op in split if op.opcode == "pad"]
    assert pad.operands[1].attrs["value"] == -np.inf
    first, last = reduces(split)
    count, each = first.operands[0].dims[:2]
    assert (count - 1) * each < 100_003 <= count * each, "no part is all padding"
    assert last.operands[0] is first


def test_even_parts_need_no_padding() -> None:
    b = Builder()
    split = split_reductions(whole(b.graph(b.reduce(b.parameter((1 << 20,)), (0,)))), H200)
    assert "pad" not in {op.opcode for op in split}


def test_the_second_reduction_stands_for_the_op() -> None:
    b = Builder()
    op = b.reduce(b.parameter((1 << 20,)), (0,))
    split = split_reductions(whole(b.graph(op)), H200)
    first, last = reduces(split)
    assert (last.name, last.origin) == (op.name, op.origin)
    assert first.origin is None
    assert split.root.operands == (last,)


def test_other_ops_are_kept_as_they_are() -> None:
    b = Builder()
    x = b.parameter((20, 30))
    graph = whole(b.graph(b.exp(x), b.reduce(x, (0,))))
    assert repr(split_reductions(graph, H200)) == repr(graph)
