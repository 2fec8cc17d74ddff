"""Bytes and operations of ops, alone and fused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fusionstitch.costmodel import work as rules
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.work import RULES, Work, computed_elements, dot_flops, touched_bytes
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.semantics import Kind
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.pattern import Pattern
from tests.graphs import Builder, layernorm

COSTS = device("h200").instructions
arithmetic = partial(rules.arithmetic, costs=COSTS)
op_work = partial(rules.op_work, costs=COSTS)
fused_work = partial(rules.fused_work, costs=COSTS)


def test_side_by_side() -> None:
    one = Work(bytes_read=1, bytes_written=2, flops=3, blocks=4)
    two = Work(bytes_read=10, l2_bytes=20, special=30, blocks=40)
    assert one + two == Work(
        bytes_read=11, bytes_written=2, l2_bytes=20, flops=3, special=30, blocks=44
    )
    assert (one + two).bytes == 13


def test_every_kind_has_a_rule() -> None:
    assert set(RULES) == set(Kind)


def test_an_elementwise_op() -> None:
    b = Builder()
    x, y = b.parameter((100,)), b.parameter((100,))
    assert op_work(b.add(x, y)) == Work(bytes_read=800, bytes_written=400, flops=100)
    assert op_work(b.add(x, x)) == Work(bytes_read=400, bytes_written=400, flops=100)
    assert op_work(b.tanh(x)) == Work(bytes_read=400, bytes_written=400, flops=2800, special=200)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f64", Work(bytes_read=800, bytes_written=800, flops64=100)),
        ("bf16", Work(bytes_read=200, bytes_written=200, flops=100)),
        ("s32", Work(bytes_read=400, bytes_written=400, int_ops=50)),
        ("u64", Work(bytes_read=800, bytes_written=800, int_ops=100)),
    ],
)
def test_the_unit_follows_the_type(dtype: str, expected: Work) -> None:
    b = Builder()
    x = b.parameter((100,), dtype)
    assert op_work(b.add(x, x)) == expected


def test_a_function_costs_its_instructions() -> None:
    b = Builder()
    x = b.parameter((100,))
    assert arithmetic(b.div(x, x)) == Work(flops=1600, special=100)
    assert arithmetic(b.exp(x)).flops < arithmetic(b.tanh(x)).flops
    wide = b.parameter((100,), "f64")
    assert arithmetic(b.exp(wide)) == Work(flops64=800)


def test_a_rotation_costs_little_more_than_one_operation() -> None:
    b = Builder()
    x, n = b.parameter((100,), "u32"), b.parameter((100,), "u32")
    left, right = b.binary("shift-left", x, n), b.binary("shift-right-logical", x, n)
    parts = (left, right, b.binary("or", left, right))
    assert sum(arithmetic(op).int_ops for op in parts) == 125
    assert arithmetic(b.binary("remainder", x, n)).int_ops == 800


def test_movement_reads_what_it_touches() -> None:
    b = Builder()
    x = b.parameter((100, 10))
    part = b.slice(x, (10, 0), (20, 10))
    assert op_work(part) == Work(bytes_read=416, bytes_written=400, int_ops=100)
    assert touched_bytes(part, x) == 416
    assert op_work(b.broadcast(b.parameter((10,)), (100, 10), (1,))).bytes_read == 40
    assert op_work(b.transpose(x, (1, 0))).bytes_read == 4000


@pytest.mark.parametrize(
    ("limit", "stride", "sectors"),
    [
        ((64, 30, 1), (1, 1, 1), 64 * 30),  # one element of each row
        ((64, 30, 9), (1, 1, 1), 64 * 30 * 2),
        ((64, 30, 32), (1, 2, 1), 64 * 15 * 4),  # every other row, of whole sectors
        ((64, 30, 32), (1, 1, 2), 64 * 30 * 4),  # what lies between is read, too
        ((64, 30, 32), (1, 1, 16), 64 * 30 * 2),
        ((4, 30, 32), (1, 1, 1), 4 * 30 * 4),
    ],
)
def test_slices_read_whole_sectors(limit: Any, stride: Any, sectors: int) -> None:
    b = Builder()
    x = b.parameter((64, 30, 32))
    assert touched_bytes(b.slice(x, (0, 0, 0), limit, stride), x) == 32 * sectors


def test_slices_of_one_array_together_read_it_once_at_most() -> None:
    b = Builder()
    x = b.parameter((100,))
    halves = [b.slice(x, (0,), (50,)), b.slice(x, (50,), (100,)), b.slice(x, (10,), (60,))]
    assert fused_work(halves[:2], halves[:2]).bytes_read == 400
    assert fused_work(halves, halves).bytes_read == 400


def test_picked_elements_are_read_in_sectors_of_32_bytes() -> None:
    b = Builder()
    i = b.parameter((100,), "s32")
    wide, narrow = b.parameter((10_000, 8)), b.parameter((10_000, 2), "bf16")
    assert touched_bytes(b.rows(wide, i), wide) == 100 * 32
    assert touched_bytes(b.rows(narrow, i), narrow) == 100 * 32
    assert touched_bytes(b.rows(b.parameter((50, 2)), i), b.ops[-2]) == 50 * 2 * 4
    x, start = b.parameter((100, 100)), b.parameter((), "s32")
    part = b.op("dynamic-slice", (10, 100), x, start, start, sizes=(10, 100))
    assert touched_bytes(part, x) == 4000
    assert op_work(part).bytes_read == 4000 + 4


def test_what_is_picked_is_computed_there_alone() -> None:
    b = Builder()
    x, i = b.parameter((1000, 64)), b.parameter((10,), "s32")
    total = b.reduce(x, (1,))
    e = b.exp(b.sub(x, b.like(total, x, (1,))))
    picked = b.rows(e, i)
    graph = b.graph(picked)
    ops = [op for op in graph if op.opcode not in ("parameter", "constant")]
    counts = computed_elements(ops, [picked])
    assert counts[e] == 640
    assert counts[total] == 640, "no more than are read, each at most once"
    work = fused_work(ops, [picked])
    assert work.special == 640
    rows, elements, init = x.shape.bytes * 640 // 1000, 640 * 32, 4 * 640 // 1000
    assert work.bytes_read == rows + elements + init + i.shape.bytes
    assert computed_elements(ops, [picked, e])[e] == e.shape.size
    works = GraphWork(graph, free_bits(graph), device("h200"))
    bits = fusible_ops(graph, device("h200")).bits
    assert works.fused(bits, 1 << picked.id).special == 640


def test_of_what_is_sliced_the_slices_are_computed_alone() -> None:
    b = Builder()
    x = b.parameter((256, 1000))
    e = b.exp(x)
    column = b.slice(e, (0, 0), (256, 1))
    halves = [b.slice(e, (0, at), (256, at + 500)) for at in (0, 500)]
    graph = b.graph(column, *halves)
    assert computed_elements([e, column], [column])[e] == 256
    assert computed_elements([e, *halves], halves)[e] == e.shape.size
    assert computed_elements([e, column, halves[0]], [column, halves[0]])[e] == 256 * 501
    assert computed_elements([e, column], [e, column])[e] == e.shape.size
    assert fused_work([e, column], [column]).bytes_read == 256 * 32
    works = GraphWork(graph, free_bits(graph), device("h200"))
    assert works.fused(1 << e.id | 1 << column.id, 1 << column.id).special == 256


def test_reductions_and_dots() -> None:
    b = Builder()
    x = b.parameter((8, 16))
    total = op_work(b.reduce(x, (1,)))
    assert total.flops == 128
    assert total.bytes_written == 32
    dot = b.dot(b.parameter((3, 8, 16)), b.parameter((3, 16, 4)), batch=1)
    assert dot_flops(dot) == 2 * 3 * 8 * 16 * 4
    assert op_work(dot) == Work(
        bytes_read=4 * 3 * (8 * 16 + 16 * 4),
        bytes_written=4 * 3 * 8 * 4,
        dot_flops=3072,
    )


def test_fused_ops_keep_intermediates_on_chip() -> None:
    b = Builder()
    x, s = b.parameter((64, 128)), b.parameter((128,))
    graph = b.graph(layernorm(b, x, s, s))
    pattern = Pattern(graph, fusible_ops(graph, device("h200")).bits, "")
    work = fused_work(pattern.ops, pattern.outputs)
    assert work.bytes_read == 64 * 128 * 4 + 128 * 4
    assert work.bytes_written == 64 * 128 * 4
    alone = sum((op_work(op) for op in pattern.ops), Work())
    assert alone.flops == work.flops
    assert alone.bytes > 10 * work.bytes


def test_the_fast_path_agrees() -> None:
    b = Builder()
    x, s = b.parameter((64, 128)), b.parameter((128,))
    graph = b.graph(layernorm(b, x, s, s))
    works = GraphWork(graph, free_bits(graph), device("h200"))
    pattern = Pattern(graph, fusible_ops(graph, device("h200")).bits, "")
    assert works.fused(pattern.bits, 1 << graph.root.id) == fused_work(pattern.ops, pattern.outputs)
    assert works.outputs(pattern.bits) == 1 << graph.root.id


def test_small_values_between_kernels_stay_in_l2() -> None:
    b = Builder()
    x = b.parameter((64, 128))
    middle = b.exp(x)
    last = b.tanh(b.kept(middle))
    graph = b.graph(last)
    works = GraphWork(graph, free_bits(graph), device("h200"))
    size = 64 * 128 * 4
    first = works.fused(1 << middle.id, 1 << middle.id)
    assert (first.bytes_read, first.bytes_written, first.l2_bytes) == (size, 0, size)
    second = works.fused(1 << last.id, 1 << last.id)
    assert (second.bytes_read, second.bytes_written, second.l2_bytes) == (0, size, size)
    assert works.warm([middle], [x], [middle]) == (0, size, 0)
    assert works.warm([last], [last.operands[0]], [last]) == (size, 0, 0)
    large = b.exp(b.parameter((4096, 4096)))
    last = b.tanh(large)
    graph = b.graph(last)
    assert GraphWork(graph, 0, device("h200")).warm([last], [large], []) == (0, 0, 0)


def test_slices_leave_the_rest_of_their_array_unread() -> None:
    b = Builder()
    x = b.exp(b.parameter((64, 128)))
    parts = [b.slice(x, (row, 0), (row + 8, 128)) for row in (0, 8)]
    both = b.add(*parts)
    whole = b.add(b.reduce(x, (0,)), b.parameter((128,)))
    graph = b.graph(both, whole)
    works = GraphWork(graph, free_bits(graph), device("h200"))
    part, size = 8 * 128 * 4, 64 * 128 * 4
    assert works.warm([*parts, both], [x], []) == (2 * part, 0, size - 2 * part)
    assert works.warm([*parts, both, whole.operands[0]], [x], []) == (size, 0, 0)
