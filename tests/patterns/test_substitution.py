"""Algorithm 1: what lies between partition ops, step by step; windows over its intervals."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given

from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.patterns.convex import components, is_convex
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.substitution import (
    ORDERS,
    Class,
    intervals,
    partition_class,
    partition_steps,
    substitution,
)
from fusionstitch.patterns.windows import windows
from tests.graphs import Builder, random_graphs

H200 = device("h200")


def _fusible(graph: Graph) -> int:
    return fusible_ops(graph, H200).bits


def _bits(*ops: Op) -> int:
    return sum(1 << op.id for op in ops)


def test_ops_before_the_first_partition_op_are_a_pattern() -> None:
    b = Builder()
    x = b.parameter((64,))
    before = [b.exp(x)]
    before.append(b.tanh(before[0]))
    sort = b.kept(before[1])
    after = [b.exp(sort)]
    after.append(b.add(after[0], sort))
    graph = b.graph(after[1])
    step, parts = next(partition_steps(graph, _fusible(graph)))
    assert step == "left to XLA"
    assert parts == _bits(sort)
    assert intervals(graph, _fusible(graph), parts, "input") == [_bits(*before), _bits(*after)]


@pytest.mark.parametrize(
    ("dims", "reduced", "expected"),
    [
        ((8, 16), (1,), Class.ROW),
        ((8, 16), (0,), Class.COLUMN),
        ((8, 16), (0, 1), Class.SCALAR),
        ((8, 16, 4), (1,), Class.COLUMN),
        ((8, 16, 4), (1, 2), Class.ROW),
        ((8, 16, 1), (1,), Class.ROW),
        ((1, 16), (1,), Class.SCALAR),
        ((8, 16, 4), (0, 2), Class.COLUMN),
    ],
)
def test_classes_of_reductions(
    dims: tuple[int, ...], reduced: tuple[int, ...], expected: Class
) -> None:
    b = Builder()
    assert partition_class(b.reduce(b.parameter(dims), reduced)) is expected


def test_steps_add_one_class_after_the_other() -> None:
    b = Builder()
    x = b.parameter((8, 16, 16))
    batched = b.dot(x, x, batch=1)
    flat = b.reshape(batched, (128, 16))
    dot = b.dot(flat, b.reshape(b.reduce(x, (2,)), (16, 8)))
    column = b.reduce(dot, (0,))
    graph = b.graph(b.reduce(column, (0,)))
    steps = list(partition_steps(graph, _fusible(graph)))
    assert [name for name, _ in steps] == [
        "left to XLA",
        "batched dot",
        "dot",
        "column reduction",
        "scalar reduction",
        "row reduction",
    ]
    sizes = [parts.bit_count() for _, parts in steps]
    assert sizes == [0, 1, 2, 3, 4, 5]
    assert all(a & ~b == 0 for (_, a), (_, b) in itertools.pairwise(steps))


def test_orders_gather_what_the_graphs_own_order_scatters() -> None:
    b = Builder()
    x, y = b.parameter((8,)), b.parameter((8,))
    first = b.exp(b.kept(x))
    second = b.exp(b.kept(y))
    graph = b.graph(first, second)
    fusible = _fusible(graph)
    _, parts = next(partition_steps(graph, fusible))
    assert intervals(graph, fusible, parts, "input") == [_bits(first), _bits(second)]
    assert intervals(graph, fusible, parts, "earliest") == [_bits(first, second)]
    assert intervals(graph, fusible, parts, "latest") == [_bits(first, second)]


def test_an_interval_comes_with_its_connected_parts() -> None:
    b = Builder()
    x, y = b.parameter((8,)), b.parameter((8,))
    left, right = b.exp(x), b.tanh(y)
    graph = b.graph(left, right)
    found = {bits for bits, _ in substitution(graph, _fusible(graph))}
    assert found == {_bits(left, right), _bits(left), _bits(right)}


def test_shared_inputs_connect_parts_but_scalars_do_not() -> None:
    b = Builder()
    x, s = b.parameter((8,)), b.parameter(())
    ops = [b.exp(x), b.tanh(x), b.add(s, s), b.mul(s, s)]
    graph = b.graph(*ops)
    parts = list(components(graph, _bits(*ops), shared_inputs=True))
    assert parts == [_bits(*ops[:2]), _bits(ops[2]), _bits(ops[3])]


@given(random_graphs())
def test_patterns_are_convex_fusible_and_cover_every_fusible_op(graph: Graph) -> None:
    fusible = _fusible(graph)
    covered = 0
    for bits, _ in substitution(graph, fusible):
        assert is_convex(graph, bits)
        assert not bits & ~fusible
        covered |= bits
    assert covered == fusible


@given(random_graphs())
def test_the_intervals_of_one_order_are_disjoint_and_acyclic(graph: Graph) -> None:
    fusible = _fusible(graph)
    for _, parts in partition_steps(graph, fusible):
        for order in ORDERS:
            found = intervals(graph, fusible, parts, order)
            seen = 0
            for bits in found:
                assert not bits & seen
                # everything an interval reads comes from itself or an earlier one
                later = fusible & ~parts & ~seen & ~bits
                assert not any(graph.reach[i] & later for i in ids(bits))
                seen |= bits
            assert seen == fusible & ~parts


@given(random_graphs())
def test_windows_are_convex(graph: Graph) -> None:
    fusible = _fusible(graph)
    for bits, _ in windows(graph, fusible):
        assert is_convex(graph, bits)
        assert not bits & ~fusible


def test_windows_span_several_small_dots() -> None:
    b = Builder()
    x = b.parameter((8, 8))
    w = b.parameter((8, 8))
    dots = []
    for _ in range(4):
        dots.append(b.dot(x, w))
        x = b.tanh(dots[-1])
    graph = b.graph(x)
    found = {bits for bits, _ in windows(graph, _fusible(graph))}
    counts = {sum(bits >> dot.id & 1 for dot in dots) for bits in found}
    assert counts == {1, 2}
