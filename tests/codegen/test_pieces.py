"""Outputs that are stored piece by piece: which, where their elements go, what they become.

What the kernels compute is checked with the other cases (tests/codegen/piece_cases.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.codegen.generate import draft, plan_kernel
from fusionstitch.codegen.index_maps.index import variable
from fusionstitch.codegen.loops.pieces import Piece, joined
from fusionstitch.codegen.loops.stages import find_stages
from fusionstitch.codegen.rewrite.joined import LEAST_ELEMENTS, MOST_PIECES, compute_pieces
from fusionstitch.codegen.rewrite.padded_sums import join_padded
from fusionstitch.codegen.rewrite.sunk import (
    LEAST_ITEMS,
    MOST_COMPONENTS,
    MOST_OPS,
    sink_concatenates,
)
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.search.stored import in_pieces, starts
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import TemplateSyntaxError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen import piece_cases
from tests.codegen.cases import CASES
from tests.codegen.regions import Case, build, whole
from tests.codegen.test_index import CInt
from tests.codegen.test_maps import at
from tests.graphs import Builder

H200 = device("h200")
ROWS = LEAST_ELEMENTS // 8
NO_BATCH = {"lhs_batch": (), "rhs_batch": (), "precision": "default", "algorithm": "unset"}
NAMES = [n for n, p in CASES.items() if p.fun.__module__ == piece_cases.__name__]


def opcodes(graph: Graph) -> list[str]:
    return [op.opcode for op in graph if op.opcode not in ("parameter", "tuple")]


def same(graph: Graph, other: Graph) -> None:
    """Both give equal values for equal inputs, but for the order in which sums are rounded."""
    draw = np.random.default_rng(len(graph.ops))
    args = [draw.standard_normal(p.dims).astype(np.float32) for p in graph.parameters]
    for expected, found in zip(evaluate(graph, args), evaluate(other, args), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


# ---- which outputs -------------------------------------------------------------------------------


def test_an_output_of_several_pieces_has_no_loop_but_they_have() -> None:
    b = Builder()
    x = b.parameter((ROWS, 4))
    graph = whole(b.graph(b.concatenate([b.exp(x), b.tanh(x)], 1)))
    stages = find_stages(graph, joined=joined(graph))
    assert [s.op.opcode for s in stages] == ["exponential", "tanh"]
    assert [[cut.output.opcode for cut in s.cuts] for s in stages] == [["concatenate"]] * 2
    assert [s.op.opcode for s in find_stages(graph)] == ["concatenate"]


def few(b: Builder) -> Op:
    x = b.parameter((ROWS - 1, 4))
    return b.concatenate([b.exp(x), b.tanh(x)], 1)


def read(b: Builder) -> list[Op]:
    x = b.parameter((ROWS, 4))
    y = b.concatenate([b.exp(x), b.tanh(x)], 1)
    return [y, b.reduce(y, (1,))]


def many(b: Builder) -> Op:
    x = b.exp(b.parameter((ROWS, 4)))
    return b.concatenate([x] * (MOST_PIECES + 1), 1)


def inputs(b: Builder) -> Op:
    x = b.parameter((ROWS, 4))
    return b.concatenate([x, b.tanh(x)], 1)


@pytest.mark.parametrize("made", [few, read, many, inputs])
def test_others_are_stored_as_a_whole(made: Callable[[Builder], Op | list[Op]]) -> None:
    b = Builder()
    roots = made(b)
    graph = whole(b.graph(*roots) if isinstance(roots, list) else b.graph(roots))
    assert not joined(graph)


def test_an_input_that_is_a_piece_is_copied() -> None:
    b = Builder()
    graph = whole(b.graph(inputs(b)))
    copied = compute_pieces(graph)
    assert opcodes(copied) == ["tanh", "copy", "concatenate"]
    assert joined(copied)
    same(graph, copied)
    assert compute_pieces(copied) is copied


@given(st.data())
def test_elements_of_a_piece_go_where_the_concatenate_has_them(data: st.DataObject) -> None:
    b = Builder()
    dims = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(dims) - 1))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    parts = [b.parameter((*dims[:axis], n, *dims[axis + 1 :])) for n in sizes]
    output = b.concatenate(parts, axis)
    numbers = np.arange(output.shape.size).reshape(output.dims)
    for n, (part, start) in enumerate(zip(parts, np.cumsum([0, *sizes]), strict=False)):
        expected = np.take(numbers, range(start, start + sizes[n]), axis)
        flat = b.parameter((part.shape.size,))
        for value, cut in ((part, expected), (flat, expected.reshape(-1))):
            index = tuple(variable(f"d{d}", extent) for d, extent in enumerate(value.dims))
            address, guards = Piece(output, part, axis, int(start)).address(index, value)
            assert not guards
            for position in itertools.product(*map(range, value.dims)):
                point = {f"d{d}": CInt(p) for d, p in enumerate(position)}
                assert at(address, point) == cut[position]


# ---- sums of padded values -----------------------------------------------------------------------


def padded(b: Builder, x: Op, axis: int, low: int, size: int) -> Op:
    """`x` between zeros along a dim of so many."""
    high = size - low - x.dims[axis]
    around = [tuple(n if d == axis else 0 for d in range(x.shape.rank)) for n in (low, high, 0)]
    dims = tuple(size if d == axis else n for d, n in enumerate(x.dims))
    keys = dict(zip(("low", "high", "interior"), around, strict=True))
    return b.op("pad", dims, x, b.constant(0.0), **keys)


@given(st.data())
def test_a_sum_of_padded_values_is_a_concatenate(data: st.DataObject) -> None:
    b = Builder()
    axis, size = data.draw(st.integers(0, 1)), data.draw(st.integers(2, 9))
    other = -(-LEAST_ELEMENTS // size)
    terms: list[Op] = []
    for whole_size in data.draw(st.lists(st.booleans(), min_size=2, max_size=4)):
        low = 0 if whole_size else data.draw(st.integers(0, size - 1))
        extent = size if whole_size else data.draw(st.integers(1, size - low))
        x = b.parameter((extent, other) if axis == 0 else (other, extent))
        terms.append(x if whole_size else padded(b, b.tanh(x), axis, low, size))
    total = terms[0]
    for term in terms[1:]:
        total = data.draw(st.sampled_from((b.add, b.sub)))(total, term)
    graph = whole(b.graph(total))
    made = join_padded(graph)
    same(graph, made)
    pads = [op for op in graph if op.opcode == "pad" and op.dims[axis] > op.operands[0].dims[axis]]
    if len(pads) > 1:
        assert "pad" not in opcodes(made)
        assert made.root.operands[0].opcode == "concatenate"


def of_two_dims(b: Builder) -> Op:
    x = b.exp(b.parameter((64, 64)))
    return b.add(padded(b, x, 0, 3, 70), padded(b, b.exp(b.parameter((70, 60))), 1, 2, 64))


def of_one_pad(b: Builder) -> Op:
    return b.add(padded(b, b.exp(b.parameter((64, 64))), 0, 3, 70), b.parameter((70, 64)))


def of_other_numbers(b: Builder) -> Op:
    x, around = b.exp(b.parameter((64, 64))), {"low": (3, 0), "high": (3, 0), "interior": (0, 0)}
    first = b.op("pad", (70, 64), x, b.constant(1.0), **around)
    return b.add(first, padded(b, x, 0, 6, 70))


def of_pads_in_between(b: Builder) -> Op:
    x, around = b.exp(b.parameter((32, 64))), {"low": (0, 0), "high": (1, 0), "interior": (1, 0)}
    first = b.op("pad", (64, 64), x, b.constant(0.0), **around)
    return b.add(first, padded(b, x, 0, 6, 64))


def of_what_is_read(b: Builder) -> Op:
    x = b.exp(b.parameter((64, 64)))
    return b.exp(b.add(padded(b, x, 0, 3, 70), padded(b, x, 0, 6, 70)))


@pytest.mark.parametrize(
    "made", [of_two_dims, of_one_pad, of_other_numbers, of_pads_in_between, of_what_is_read]
)
def test_other_sums_stay(made: Callable[[Builder], Op]) -> None:
    b = Builder()
    graph = whole(b.graph(made(b)))
    assert join_padded(graph) is graph


# ---- concatenates that sink ----------------------------------------------------------------------


def grown(data: st.DataObject) -> Graph:
    """A region around concatenates: what moves, joins and sums their values."""
    b = Builder()
    n = data.draw(st.integers(2, 4))
    values = [b.concatenate([b.parameter((1, 5)) for _ in range(n)])]
    values.append(b.concatenate([b.parameter((n, 2)), b.parameter((n, 3))], 1))
    values.append(b.parameter((n, 5)))
    values.append(b.broadcast(b.parameter((5,)), (n, 5), (1,)))
    matrices = [b.parameter((n, n))]
    orders = [b.constant(np.arange(n)[::-1].copy(), "s32"), b.constant(np.arange(n) // 2, "s32")]
    for _ in range(data.draw(st.integers(1, 6))):
        x, y = (data.draw(st.sampled_from(values)) for _ in range(2))
        match data.draw(
            st.sampled_from(["join", "move", "sum", "cut", "split", "product", "order"])
        ):
            case "join":
                values.append(data.draw(st.sampled_from((b.add, b.mul, b.sub)))(x, y))
            case "move":
                turned = b.tanh(b.transpose(x, (1, 0)))
                values.append(b.transpose(turned, (1, 0)))
            case "sum":
                dims = data.draw(st.sampled_from(((0,), (1,))))
                reducer = data.draw(st.sampled_from(("add", "maximum")))
                values.append(b.like(b.reduce(x, dims, reducer), x, dims))
            case "cut":
                at = data.draw(st.integers(1, n - 1))
                low = b.slice(x, (0, 0), (at, 5))
                values.append(b.concatenate([low, b.slice(y, (at, 0), (n, 5))]))
            case "product":
                sides = [(x, matrices[0]), (matrices[0], x)][data.draw(st.integers(0, 1)) :][0]
                contract = {"lhs_contract": (0,), "rhs_contract": (0,)}
                made = b.op(
                    "dot", (5, n) if sides[0] is x else (n, 5), *sides, **NO_BATCH, **contract
                )
                values.append(made if made.dims == (n, 5) else b.transpose(made, (1, 0)))
            case "order":
                values.append(b.rows(x, orders[data.draw(st.integers(0, 1))]))
            case "split":
                tall = b.reshape(x, (n, 5, 1))
                values.append(b.reshape(b.exp(tall), (n, 5)))
    return whole(b.graph(values[-1], data.draw(st.sampled_from(values[4:] or values))))


@given(st.data())
def test_what_sinks_computes_the_same(data: st.DataObject) -> None:
    graph = grown(data)
    same(graph, sink_concatenates(graph))


def test_it_sinks_through_what_is_computed_of_it() -> None:
    b = Builder()
    x, y = b.parameter((4, 3)), b.parameter((4, 3))
    scale = b.broadcast(b.parameter((4,)), (4, 6), (0,))
    graph = whole(b.graph(b.exp(b.mul(b.concatenate([x, y], 1), scale))))
    made = sink_concatenates(graph)
    assert opcodes(made)[-1] == "concatenate"
    assert opcodes(made).count("exponential") == 2
    same(graph, made)


def test_components_are_multiplied_ordered_and_summed_one_by_one() -> None:
    b = Builder()
    x = b.concatenate([b.parameter((1, 5)) for _ in range(3)])
    contract = {"lhs_contract": (0,), "rhs_contract": (0,)}
    turned = b.op("dot", (3, 5), b.parameter((3, 3)), x, **NO_BATCH, **contract)
    ordered = b.rows(turned, b.constant([2, 0, 1], "s32"))
    total = b.like(b.reduce(ordered, (0,)), ordered, (0,))
    graph = whole(b.graph(b.mul(b.reshape(b.reshape(ordered, (3, 5, 1)), (3, 5)), total)))
    made = sink_concatenates(graph)
    assert not {"dot", "gather", "reduce"} & set(opcodes(made))
    same(graph, made)


def test_components_of_many_items_are_taken_apart_where_they_are_summed() -> None:
    b = Builder()
    x = b.parameter((LEAST_ITEMS, 4))
    norm = b.reduce(b.tanh(x), (1,))
    graph = whole(b.graph(b.mul(x, b.like(b.exp(norm), x, (1,)))))
    made = sink_concatenates(graph)
    assert opcodes(made).count("slice") == 4
    assert "reduce" not in opcodes(made)
    same(graph, made)


@pytest.mark.parametrize("dims", [(LEAST_ITEMS - 1, 4), (LEAST_ITEMS, MOST_COMPONENTS + 1)])
def test_few_items_and_long_ones_are_left_as_they_are(dims: tuple[int, int]) -> None:
    b = Builder()
    x = b.parameter(dims)
    graph = whole(b.graph(b.mul(x, b.like(b.reduce(x, (1,)), x, (1,)))))
    assert sink_concatenates(graph) is graph


def test_components_that_nothing_sums_up_are_left_as_they_are() -> None:
    b = Builder()
    x = b.parameter((LEAST_ITEMS, 4))
    graph = whole(b.graph(b.mul(x, b.exp(x))))
    assert sink_concatenates(graph) is graph


def test_a_region_that_would_become_too_long_stays() -> None:
    b = Builder()
    x = b.concatenate([b.parameter((1, 5)) for _ in range(30)])
    for _ in range(MOST_OPS // 30):
        x = b.tanh(x)
    graph = whole(b.graph(x))
    assert sink_concatenates(graph) is graph


def test_a_border_stays_beside_what_it_surrounds() -> None:
    b = Builder()
    graph = whole(b.graph(b.exp(b.concatenate([b.parameter((1, 5)), b.parameter((8, 5))]))))
    assert sink_concatenates(graph) is graph


def test_a_region_without_any_stays() -> None:
    b = Builder()
    x = b.parameter((4, 5))
    graph = whole(b.graph(b.concatenate([b.exp(x), x])))
    assert sink_concatenates(graph) is graph


# ---- what is chosen ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_is_taken_is_the_fastest_by_the_estimate(name: str) -> None:
    """Stored piece by piece or as a whole, concatenates sunk or not: templates say which."""
    case = CASES[name].case()
    taken = draft(case.graph, case.device, case.options)
    first = plan_kernel(case.graph, case.device, case.options)
    fixed = draft(case.graph, case.device, replace(case.options, template=first.template))
    assert cost_us(taken.cost, case.device) <= cost_us(fixed.cost, case.device)


def ways(name: str) -> list[Case]:
    """A case under each schedule that it may start from, by templates."""
    case = CASES[name].case()
    own = plan_kernel(case.graph, case.device)
    found = [own, *starts(own, Settings.of(case.device, CodegenOptions()))]
    return [replace(case, options=CodegenOptions(template=one.template)) for one in found]


@pytest.mark.parametrize("name", ["sunk_rotation", "sunk_lattice", "pieces_of_a_stack"])
def test_all_ways_agree(name: str) -> None:
    cases = ways(name)
    built = build(cases)
    assert len({kernel.source for kernel in built.kernels.values()}) == len(cases) > 1
    for case in cases:
        built.check(case)


def test_templates_say_that_concatenates_sink() -> None:
    text = "cta_size=256;\nsink concatenates;\nsplit a into 2;\na[CTA];"
    found = parse_template(text)
    assert found.sunk
    assert str(found) == text
    assert not parse_template("a[CTA];").sunk
    with pytest.raises(TemplateSyntaxError, match="expected 'concatenates'"):
        parse_template("sink stacks; a[CTA];")


def test_a_schedule_knows_what_it_stores_in_pieces() -> None:
    case = CASES["pieces_of_a_stack"].case()
    own = plan_kernel(case.graph, case.device)
    assert [own.graph.ops[i].opcode for i in in_pieces(own)] == ["concatenate"]
