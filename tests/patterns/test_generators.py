"""Exploratory fusion, packing, and the union of all generators."""

from __future__ import annotations

import dataclasses

from hypothesis import given

from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.xla_fusions import xla_fusions
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.options import Options
from fusionstitch.patterns.candidates import Candidates, candidates
from fusionstitch.patterns.contract import contract, owned
from fusionstitch.patterns.convex import components, is_convex
from fusionstitch.patterns.exploratory import MAX_PER_SEED, exploratory
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.packing import packing
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.patterns.windows import unit_windows
from tests.graphs import Builder, random_graphs

H200 = device("h200")


def _bits(*ops: Op) -> int:
    return sum(1 << op.id for op in ops)


def _candidates(graph: Graph, **options: object) -> Candidates:
    fusible = fusible_ops(graph, H200).bits
    xla = xla_fusions(GraphWork(graph, free_bits(graph), H200), fusible)
    units = [kernel.bits for kernel in xla.kernels]
    return candidates(graph, fusible, units, H200, Options(**options))  # type: ignore[arg-type]


def test_exploration_grows_along_large_tensors_only() -> None:
    b = Builder()
    large, small = b.parameter((1024, 2048)), b.parameter((2048,))
    tiny = b.exp(small)
    total = b.add(b.exp(large), b.broadcast(tiny, (1024, 2048), (1,)))
    graph = b.graph(total, b.tanh(small))
    fusible = fusible_ops(graph, H200).bits
    found = {bits for bits, _ in exploratory(graph, fusible, H200, 100)}
    exp, broadcast = total.operands
    assert found == {_bits(exp, total), _bits(broadcast, total), _bits(exp, broadcast, total)}
    assert not any(bits >> tiny.id & 1 for bits in found)


def test_exploration_leaves_out_ops_with_many_operands() -> None:
    b = Builder()
    parts = [b.exp(b.parameter((1024, 1024))) for _ in range(11)]
    graph = b.graph(b.tanh(b.concatenate(parts)))
    fusible = fusible_ops(graph, H200).bits
    assert list(exploratory(graph, fusible, H200, 100)) == []


def test_exploration_is_bounded_by_counts() -> None:
    b = Builder()
    x = b.parameter((1024, 2048))
    for _ in range(100):
        x = b.add(b.exp(x), b.tanh(x))
    graph = b.graph(x)
    fusible = fusible_ops(graph, H200).bits
    found = [bits for bits, _ in exploratory(graph, fusible, H200, 500)]
    assert len(found) == len(set(found)) <= 500
    assert len(found) > MAX_PER_SEED


@given(random_graphs())
def test_explored_patterns_are_convex_and_connected(graph: Graph) -> None:
    fusible = fusible_ops(graph, H200).bits
    everything_is_large = dataclasses.replace(H200, large_tensor_bytes=1)
    for bits, _ in exploratory(graph, fusible, everything_is_large, 60):
        assert is_convex(graph, bits)
        assert len(list(components(graph, bits))) == 1


def test_packing_joins_independent_units_of_one_depth() -> None:
    b = Builder()
    x, y = b.parameter((8,)), b.parameter((8,))
    first = [b.exp(x), b.tanh(y)]
    second = [b.add(first[0], first[1]), b.mul(first[0], first[1])]
    graph = b.graph(*second)
    found = {bits for bits, _ in packing(graph, [_bits(op) for op in first + second], 99, 99)}
    assert found == {_bits(*first), _bits(*second)}


def test_packing_splits_by_pointers_and_ops() -> None:
    b = Builder()
    ops = [b.exp(b.parameter((8,))) for _ in range(10)]
    graph = b.graph(*ops)
    units = [_bits(op) for op in ops]
    by_pointers = [bits.bit_count() for bits, _ in packing(graph, units, 8, 99)]
    by_ops = [bits.bit_count() for bits, _ in packing(graph, units, 99, 3)]
    assert by_pointers == [4, 4, 2]
    assert by_ops == [3, 3, 3]


def test_candidates_are_distinct_and_convex() -> None:
    b = Builder()
    x = b.parameter((64, 64))
    y = b.exp(x)
    graph = b.graph(b.add(y, b.kept(y)), b.tanh(y))
    found = _candidates(graph)
    sets = [pattern.bits for pattern in found.patterns]
    assert len(sets) == len(set(sets))
    assert all(is_convex(graph, bits) for bits in sets)


def test_a_kernel_has_so_many_parameters() -> None:
    b = Builder()
    graph = b.graph(*[b.exp(b.parameter((8,))) for _ in range(3000)])
    found = _candidates(graph, max_pattern_ops=5000)
    limit = H200.parameter_bytes // 8
    assert max(pattern.bits.bit_count() for pattern in found.patterns) == limit // 2
    [(bits, _, verdict), *_] = found.refused
    assert bits.bit_count() == 3000
    assert str(verdict) == (
        "It reads and writes more arrays than a kernel has parameters for. "
        "(arrays 6000, limit 4095)"
    )


def test_ops_of_the_simplifier_stay_inside() -> None:
    b = Builder()
    x = b.parameter((64,))
    made = b.exp(x)
    made.origin = None
    user = b.add(made, x)
    after = b.kept(b.tanh(user))
    graph = b.graph(after)
    for pattern in _candidates(graph).patterns:
        assert pattern.bits >> made.id & 1 or not pattern.bits >> user.id & 1
        assert all(op.origin is not None for op in (*pattern.inputs, *pattern.outputs))


def test_max_patterns_bounds_the_search() -> None:
    b = Builder()
    x = b.parameter((64, 64))
    for _ in range(20):
        x = b.like(b.reduce(b.exp(x), (1,)), x, (1,))
    graph = b.graph(x)
    assert len(_candidates(graph, max_patterns=7).patterns) == 7


def test_chunks_of_a_pack_do_not_share_ops() -> None:
    b = Builder()
    scale = b.exp(b.parameter(()))
    ops = [b.mul(b.parameter((8,)), b.broadcast(scale, (8,))) for _ in range(6)]
    graph = b.graph(*ops)
    shared = _bits(scale)
    units = [_bits(op, op.operands[1]) | shared for op in ops]
    assert [bits for bits, _ in packing(graph, units, 99, 99)] == [sum(units) - 5 * shared]
    chunks = [bits for bits, _ in packing(graph, units, 99, 7)]
    assert chunks == [sum(units[:3]) - 3 * shared, sum(units[3:]) - 3 * shared]


def test_what_is_spread_for_several_may_be_left_out_of_patterns() -> None:
    """Each reader spreads the bias for itself, so none waits for another because of it."""
    b = Builder()
    bias = b.broadcast(b.parameter((64,)), (64, 64), (1,))
    first = b.exp(b.add(b.parameter((64, 64)), bias))
    second = b.tanh(b.add(b.kept(first), bias))
    graph = b.graph(second)
    found = [p.bits for p in _candidates(graph).patterns]
    for last in (first, second):
        bits = _bits(last, last.operands[0])
        assert bits in found
        assert bias in Pattern(graph, bits, "").ops


def test_units_that_share_ops_have_depths_and_owners() -> None:
    b = Builder()
    x = b.parameter((64, 64))
    first, shared = b.exp(x), b.tanh(x)
    middle = b.add(first, shared)
    last = b.mul(b.kept(middle), b.exp(shared))
    graph = b.graph(last)
    units = [_bits(first, shared, middle), _bits(shared, last, last.operands[1])]
    assert contract(graph, units).depths() == {0: 0, 1: 1}
    assert owned(units) == [units[0], units[1] & ~_bits(shared)]
    assert owned(units)[1] in {bits for bits, _ in unit_windows(graph, units)}


def test_pieces_of_a_unit_lie_before_or_after_what_is_not_fusible() -> None:
    """A product's operand and its epilogue are no pattern together."""
    b = Builder()
    x, y = b.parameter((512, 512)), b.parameter((512, 512))
    before = b.transpose(x, (1, 0))
    after = b.exp(b.dot(before, y))
    graph = b.graph(after)
    fusible = fusible_ops(graph, H200).bits
    unit = _bits(before, after, after.operands[0])
    found = candidates(graph, fusible, [unit], H200, Options())
    units = {bits for bits, rule, _ in found.refused if rule == "unit"}
    units |= {p.bits for p in found.patterns if p.rule == "unit"}
    assert _bits(before, after) not in units


# ---- gathers and scatters ------------------------------------------------------------------------


def _reasons(graph: Graph) -> set[str]:
    return {verdict.reason for _, _, verdict in _candidates(graph).refused}


def test_an_array_is_left_to_xla_to_update_in_place() -> None:
    b = Builder()
    x, i, u = b.parameter((512, 512)), b.parameter((512,), "s32"), b.parameter((512,))
    put = b.put_in_rows(x, i, b.exp(u))
    graph = b.graph(put)
    found = _candidates(graph)
    assert not any(p.bits >> put.id & 1 for p in found.patterns)
    assert _reasons(graph) >= {"XLA updates the array in place."}


def test_what_one_scatter_alone_reads_is_computed_there() -> None:
    b = Builder()
    x, i, u = b.parameter((9000, 512)), b.parameter((512,), "s32"), b.parameter((512, 512))
    update = b.exp(u)
    place = b.add(i, i)
    graph = b.graph(b.add_to_rows(x, place, update))
    found = _candidates(graph)
    assert found.patterns == ()
    assert _reasons(graph) == {"XLA computes it inside the scatter that reads it."}
    b = Builder()
    x, i, u = b.parameter((9000, 512)), b.parameter((512,), "s32"), b.parameter((512, 512))
    graph = b.graph(b.add_to_rows(x, i, b.sub(u, b.like(b.reduce(u, (1,)), u, (1,)))))
    assert _candidates(graph).patterns, "XLA takes no reduction into a scatter"


def test_updates_of_what_a_pattern_computes_are_its_own() -> None:
    b = Builder()
    x, i, u = b.parameter((512, 512)), b.parameter((512,), "s32"), b.parameter((512,))
    put = b.put_in_rows(b.exp(x), i, u)
    onto_zeros = b.put_in_rows(b.splat(0.0, (512, 512)), i, u)
    graph = b.graph(put, onto_zeros)
    found = _candidates(graph)
    for op in (put, onto_zeros):
        assert any(p.bits >> op.id & 1 for p in found.patterns)


def test_an_update_read_inside_alone_is_no_update_in_place() -> None:
    b = Builder()
    x, i, u = b.parameter((512, 512)), b.parameter((512,), "s32"), b.parameter((512,))
    put = b.put_in_rows(x, i, u)
    graph = b.graph(b.reduce(b.exp(put), (1,)))
    assert any(p.bits >> put.id & 1 for p in _candidates(graph).patterns)


def test_index_vectors_are_computed_by_their_readers() -> None:
    b = Builder()
    x, i, u = b.parameter((512, 512)), b.parameter((512,), "s32"), b.parameter((512,))
    j = b.add(i, i)
    put = b.put_in_rows(b.splat(0.0, (512, 512)), j, u)
    graph = b.graph(b.exp(put), b.mul(x, x))
    column, vectors = put.operands[1].operands[1], put.operands[1]
    pattern = Pattern(graph, _bits(put, graph.root.operands[0]), "")
    assert vectors in pattern.ops
    assert column in pattern.inputs
    before = Pattern(graph, _bits(j, column, vectors), "")
    assert before.outputs == (column,)
    found = {p.bits for p in _candidates(graph).patterns}
    assert _bits(vectors) not in found
