"""What lies between the ops that libraries keep."""

from __future__ import annotations

from hypothesis import given

from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.components import components
from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.pattern import free_bits
from tests.graphs import Builder, random_graphs

H200 = device("h200")


def of(graph: Graph) -> tuple[int, ...]:
    return components(graph, fusible_ops(graph, H200).bits, free_bits(graph))


def names(graph: Graph) -> list[set[str]]:
    return [{graph.ops[i].name for i in ids(bits)} for bits in of(graph)]


def test_kept_ops_part_them() -> None:
    b = Builder()
    x = b.exp(b.parameter((64,)))
    y = b.tanh(b.kept(x))
    graph = b.graph(b.add(y, x), name="main")
    assert names(graph) == [{x.name}, {y.name, graph.root.name}]


def test_who_reads_the_same_array_belongs_together() -> None:
    b = Builder()
    x, y, n = b.parameter((64,)), b.parameter((64,)), b.parameter(())
    one, two, other = b.exp(x), b.tanh(x), b.exp(y)
    spread = b.mul(other, b.broadcast(n, (64,)))
    again = b.mul(two, b.broadcast(n, (64,)))
    found = names(b.graph(one, again, spread))
    assert len(found) == 2
    assert {one.name, two.name, again.name} <= found[0]
    assert {other.name, spread.name} <= found[1]


def test_large_products_are_kept_and_constants_are_free() -> None:
    b = Builder()
    x, w = b.parameter((2048, 2048)), b.parameter((2048, 2048))
    before = b.mul(x, b.splat(2.0, x.dims))
    after = b.mul(b.dot(before, w), b.splat(2.0, x.dims))
    assert names(b.graph(after)) == [{before.name}, {after.name}]


@given(random_graphs())
def test_components_can_run_one_after_the_other(graph: Graph) -> None:
    """Each op is in one, and each is convex, with whatever lies between its ops."""
    fusible = fusible_ops(graph, H200).bits
    found = of(graph)
    assert sum(found) == fusible
    for bits in found:
        above = below = 0
        for i in ids(bits):
            above |= graph.reach[i]
            below |= graph.dependents[i]
        assert above & below & ~bits & ~free_bits(graph) == 0
