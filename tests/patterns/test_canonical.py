"""Equal structures get equal keys, wherever they are in a graph; unequal ones do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.patterns.substitution import substitution
from tests.graphs import Builder, layernorm, random_graphs, softmax


def _pattern(graph: Graph, *ops: Op) -> Pattern:
    return Pattern(graph, sum(1 << op.id for op in ops), "test")


def _whole(make: Callable[[Builder], Op]) -> Pattern:
    b = Builder()
    graph = b.graph(make(b))
    return Pattern(graph, fusible_ops(graph, device("h200")).bits, "test")


def test_copies_in_one_graph_correspond_position_by_position() -> None:
    b = Builder()
    x, y = b.parameter((4, 8)), b.parameter((4, 8))
    first = b.mul(b.exp(x), y)
    # the second copy reads its inputs in the other order of the graph, and later values
    second = b.mul(b.exp(first), x)
    graph = b.graph(second)
    one = _pattern(graph, first, first.operands[0])
    two = _pattern(graph, second, second.operands[0])
    assert one.key == two.key
    assert one.inputs == (x, y)
    assert two.inputs == (first, x)
    assert [op.opcode for op in one.ops] == [op.opcode for op in two.ops]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda b: b.mul(x := b.parameter((8,)), x), lambda b: b.mul(*_two(b, (8,)))),
        (lambda b: b.exp(b.parameter((8,))), lambda b: b.exp(b.parameter((9,)))),
        (lambda b: b.exp(b.parameter((8,))), lambda b: b.exp(b.parameter((8,), "f16"))),
        (lambda b: b.exp(b.parameter((8,))), lambda b: b.tanh(b.parameter((8,)))),
        (
            lambda b: b.add(b.parameter((8,)), b.splat(1.0, (8,))),
            lambda b: b.add(b.parameter((8,)), b.splat(2.0, (8,))),
        ),
        (
            lambda b: b.reduce(b.parameter((8, 8)), (0,)),
            lambda b: b.reduce(b.parameter((8, 8)), (1,)),
        ),
        (lambda b: b.sub(*_two(b, (8,))), lambda b: b.sub(*reversed(_two(b, (8,))))),
    ],
    ids=["wiring", "shape", "type", "opcode", "constant", "attribute", "mirror"],
)
def test_different_structures(
    left: Callable[[Builder], Op], right: Callable[[Builder], Op], request: pytest.FixtureRequest
) -> None:
    same = _whole(left).key == _whole(right).key
    # x - y and y - x are one structure with its inputs renamed
    assert same == ("mirror" in request.node.callspec.id)


def _two(b: Builder, dims: tuple[int, ...]) -> list[Op]:
    return [b.parameter(dims), b.parameter(dims)]


def test_outputs_count() -> None:
    b = Builder()
    inner = b.exp(b.parameter((8,)))
    outer = b.tanh(inner)
    kept, lost = b.graph(inner, outer), None
    b = Builder()
    only = b.tanh(b.exp(b.parameter((8,))))
    lost = b.graph(only)
    assert _pattern(kept, inner, outer).key != _pattern(lost, only.operands[0], only).key


def test_names_do_not_count() -> None:
    def make(b: Builder) -> Op:
        return softmax(b, b.parameter((4, 8)))

    one, two = _whole(make), _whole(make)
    for op in two.graph:
        op.name += "_renamed"
    assert one.key == two.key


def test_free_ops_are_computed_inside() -> None:
    def make(b: Builder) -> Op:
        x, s = b.parameter((4, 8)), b.parameter((8,))
        return layernorm(b, x, s, s)

    pattern = _whole(make)
    assert [op.opcode for op in pattern.inputs] == ["parameter", "parameter"]
    assert sum(op.opcode == "constant" for op in pattern.ops) == 4
    assert not pattern.bits & free_bits(pattern.graph)


@given(random_graphs())
def test_ops_are_topological_and_inputs_are_what_they_read(graph: Graph) -> None:
    fusible = fusible_ops(graph, device("h200")).bits
    for bits, rule in substitution(graph, fusible):
        pattern = Pattern(graph, bits, rule)
        known = set(pattern.inputs)
        for op in pattern.ops:
            assert known.issuperset(op.operands)
            known.add(op)
        assert set(pattern.outputs) <= set(pattern.ops)
        assert set(pattern.inputs).isdisjoint(pattern.ops)
