"""Outputs that are cut from a value: where its elements go, which outputs they are, what it costs.

What the kernels compute is checked with the other cases (tests/codegen/slice_cases.py).
"""

from __future__ import annotations

import itertools

import figure1
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.codegen.generate import draft, generate, plan_kernel
from fusionstitch.codegen.index_maps.index import variable
from fusionstitch.codegen.index_maps.maps import within
from fusionstitch.codegen.loops.cuts import MOST_CUTS, Cut
from fusionstitch.codegen.loops.stages import find_stages
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Graph, Op
from tests.codegen import slice_cases
from tests.codegen.cases import CASES
from tests.codegen.regions import SMALL, whole, whole_of
from tests.codegen.test_index import CInt
from tests.codegen.test_maps import at, holds
from tests.conftest import Golden
from tests.graphs import Builder

H200 = device("h200")
NAMES = [n for n, p in CASES.items() if p.fun.__module__ == slice_cases.__name__]


def cuts_of(graph: Graph) -> dict[str, list[str]]:
    """The names of outputs that are cut, by the opcode of what they are cut from."""
    stages = [s for s in find_stages(graph) if s.cuts]
    return {s.op.opcode: [cut.output.opcode for cut in s.cuts] for s in stages}


# ---- where elements go ---------------------------------------------------------------------------


def check(value: Op, *ops: Op) -> None:
    """Every element of a value that leads through `ops` to an output."""
    numbers = np.arange(value.shape.size, dtype=np.int32).reshape(value.dims)
    expected = numbers
    for op in ops:
        expected = np.asarray(evaluate_op(op, [expected]))
    index = tuple(variable(f"d{d}", extent) for d, extent in enumerate(value.dims))
    address, guards = Cut(ops[-1], ops).address(index, value)
    found: dict[int, int] = {}
    for position in itertools.product(*map(range, value.dims)):
        point = {f"d{d}": CInt(p) for d, p in enumerate(position)}
        if all(holds(guard, point) for guard in guards):
            assert found.setdefault(at(address, point), numbers[position]) == numbers[position]
    assert found == dict(enumerate(expected.flat))


@given(st.data())
def test_elements_of_a_slice_go_where_the_slice_has_them(data: st.DataObject) -> None:
    b = Builder()
    value = b.parameter(tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))))
    start = tuple(data.draw(st.integers(0, n - 1)) for n in value.dims)
    limit = tuple(data.draw(st.integers(s + 1, n)) for s, n in zip(start, value.dims, strict=True))
    stride = tuple(data.draw(st.integers(1, 3)) for _ in value.dims)
    dims = tuple(-(-(e - s) // k) for s, e, k in zip(start, limit, stride, strict=True))
    piece = b.op("slice", dims, value, start=start, limit=limit, stride=stride)
    order = tuple(data.draw(st.permutations(range(len(dims)))))
    turned = b.op("transpose", tuple(dims[d] for d in order), piece, dimensions=order)
    check(value, piece)
    check(value, piece, turned)
    check(value, piece, b.reshape(piece, (piece.shape.size,)))


def test_a_value_may_be_regrouped_before_it_is_sliced() -> None:
    b = Builder()
    value = b.parameter((4, 6))
    lines = b.reshape(value, (8, 3))
    piece = b.op("slice", (3, 2), lines, start=(3, 1), limit=(8, 3), stride=(2, 1))
    check(value, lines, piece, b.reshape(piece, (2, 3)))


@given(st.integers(0, 40), st.integers(1, 40), st.sampled_from((1, 4, 5)))
def test_a_range_asks_for_nothing_that_cannot_decide_it(low: int, size: int, unit: int) -> None:
    i, j = variable("i", 10), variable("j", unit)
    guard = within(i * unit + j, low, low + size)
    for x, y in itertools.product(range(10), range(unit)):
        inside = low <= x * unit + y < low + size
        assert holds(guard, {"i": CInt(x), "j": CInt(y)}) == inside
    if low % unit == 0 and size % unit == 0:
        assert not (j.variables & guard.index.variables)


# ---- which outputs are cut -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_no_slice_of_a_case_has_a_loop_of_its_own(name: str) -> None:
    case = CASES[name].case()
    stages = [
        stage
        for group in plan_kernel(case.graph, case.device).plan.groups
        for stage in group.group.stages
    ]
    outputs = {op.id for op in case.graph.root.operands}
    assert sum(len(stage.cuts) for stage in stages) >= 1
    assert not any(stage.op.opcode in ("slice", "reshape", "transpose") for stage in stages)
    assert len(outputs) > 1


def test_a_slice_of_what_is_cheap_to_compute_keeps_its_loop() -> None:
    x = jax.ShapeDtypeStruct((64, 512), jnp.float32)
    softmax = whole_of(lambda x: (jax.nn.softmax(x), jax.nn.softmax(x)[:, :8]), x)
    assert cuts_of(softmax) == {}
    assert cuts_of(whole_of(lambda x: (jnp.exp(x), jnp.exp(x)[:4]), x)) == {}
    assert cuts_of(whole_of(lambda x: (x.sum(1), x[:4] * 2), x)) == {}


def test_what_no_loop_computes_whole_is_not_computed_for_its_slice() -> None:
    a, b = jax.ShapeDtypeStruct((64, 32), jnp.float32), jax.ShapeDtypeStruct((32, 64), jnp.float32)
    assert cuts_of(whole_of(lambda a, b: (a @ b, jnp.exp(a @ b)[:, :1]), a, b)) == {}
    both = whole_of(lambda a, b: (jnp.exp(a @ b).sum(1), jnp.exp(a @ b)[:, :1]), a, b)
    assert cuts_of(both) == {"exponential": ["slice"]}


def test_a_few_instructions_are_computed_for_all_elements() -> None:
    """Else all of the dot would lie in memory for the slice's sake."""
    a, b = jax.ShapeDtypeStruct((64, 32), jnp.float32), jax.ShapeDtypeStruct((32, 64), jnp.float32)
    both = whole_of(lambda a, b: ((a @ b).max(1), ((a @ b) * 2 + 1).T[:1]), a, b)
    assert cuts_of(both) == {"add": ["slice"]}
    c = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    loads = whole_of(lambda a, b, c: ((a @ b).max(1), (a @ b + c)[:1]), a, b, c)
    assert cuts_of(loads) == {}, "it would load all of c"


def test_a_value_in_many_pieces_is_taken_apart_by_their_own_loops() -> None:
    x = jax.ShapeDtypeStruct((64, 512, 8), jnp.float32)

    def pieces(count: int) -> dict[str, list[str]]:
        return cuts_of(whole_of(lambda x: [x.sum(1)[:, i : i + 1] for i in range(count)], x))

    assert pieces(MOST_CUTS) == {"reduce": ["slice"] * MOST_CUTS}
    assert pieces(MOST_CUTS + 1) == {}


def test_what_is_converted_after_the_slice_or_before_is_cut_from_one_value() -> None:
    x = jax.ShapeDtypeStruct((64, 512), jnp.float32)

    def converted(dtype: str, *others: str) -> dict[str, list[str]]:
        def fun(x: jax.Array) -> list[jax.Array]:
            piece = x.sum(1)[:4].astype(dtype)
            for other in others:
                piece = piece.astype(other)
            return [x.sum(1).astype(dtype)[2:9], piece]

        return cuts_of(whole_of(fun, x))

    assert converted("bfloat16") == {"reduce": ["slice", "convert"]}
    assert converted("int32") == {"convert": ["slice"]}
    assert converted("bfloat16", "float16") == {"reduce": ["slice"]}


def test_an_output_that_only_regroups_a_value_has_a_loop() -> None:
    x = jax.ShapeDtypeStruct((64, 512), jnp.float32)
    assert cuts_of(whole_of(lambda x: x.sum(1).reshape(8, 8), x)) == {}


# ---- what it costs -------------------------------------------------------------------------------


def four_outputs() -> Graph:
    q = jax.ShapeDtypeStruct((16_384, figure1.ROWS, 8), jnp.float32)
    bias = jax.ShapeDtypeStruct((figure1.ROWS, figure1.ROWS), jnp.float32)
    return whole_of(figure1.four_outputs, q, q, q, bias, name="four_outputs")


def test_weights_stay_in_registers_where_a_row_of_them_is_a_result() -> None:
    graph = four_outputs()
    kernel, cost = generate(graph, H200), draft(graph, H200).cost
    assert kernel.shared_bytes < figure1.ROWS * figure1.ROWS
    assert "__launch_bounds__(192, 4)" in kernel.source
    assert kernel.source.count("expf(") == 1
    moved = sum(op.shape.bytes for op in (*graph.parameters, *graph.root.operands))
    assert cost.outside == moved
    assert cost.work.flops >= 16_384 * figure1.ROWS**2, "each element asks"


def test_an_input_is_not_overwritten_by_what_is_cut() -> None:
    b = Builder()
    x, old = b.parameter((64, 512)), b.parameter((8,))
    total = b.reduce(b.mul(x, x), (1,))
    piece = b.slice(total, (0,), (8,))
    graph = whole(b.graph(b.add(piece, old), piece))
    assert cuts_of(graph) == {"reduce": ["slice"]}
    assert generate(graph, H200).in_place == ((0, 1),)


def test_behind_a_grid_barrier_it_may_be() -> None:
    b = Builder()
    x, w = b.parameter((4,)), b.parameter((2, 4, 1 << 17))
    total = b.reduce(b.exp(b.add(b.like(x, w, (0, 2)), w)), (2,))
    piece = b.reshape(b.slice(total, (1, 0), (2, 4)), (4,))
    graph = whole(b.graph(piece))
    assert cuts_of(graph) == {"reduce": ["reshape"]}
    assert generate(graph, H200).in_place == ((0, 0),)


def test_source_of_slices_of_vectors(golden: Golden) -> None:
    """One slice in whole vectors, after the loop over their elements; one element by element."""
    b = Builder()
    x = y = b.parameter((64, 128))
    for _ in range(6):
        y = b.add(b.tanh(y), x)
    pieces = b.slice(y, (0, 4), (64, 68)), b.slice(y, (5, 3), (9, 50))
    graph = whole(b.graph(b.reduce(y, (1,)), b.reduce(y, (1,), "maximum"), *pieces))
    golden(generate(graph, SMALL).source)
