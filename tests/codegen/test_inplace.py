"""Which outputs may overwrite an input."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.memory.inplace import one_to_one
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.hlo.graph import Op
from tests.codegen.cases import CASES
from tests.codegen.kernel_cases import GRID
from tests.codegen.regions import whole
from tests.graphs import Builder, adam, softmax

H200 = device("h200")


def pairs(b: Builder, *roots: Op, on: Device = H200) -> tuple[tuple[int, int], ...]:
    return generate(whole(b.graph(*roots)), on).in_place


def test_an_elementwise_output_may_take_every_input_of_its_kind() -> None:
    b = Builder()
    x, y = b.parameter((30, 40)), b.parameter((30, 40))
    assert pairs(b, b.add(x, y)) == ((0, 0), (0, 1))


def test_one_to_one_takes_each_input_and_each_output_once() -> None:
    b = Builder()
    x, y = b.parameter((30, 40)), b.parameter((30, 40))
    assert one_to_one(pairs(b, b.add(x, y), b.mul(x, y), b.sub(x, y))) == ((0, 0), (1, 1))


def test_a_training_step_may_overwrite_its_state_in_any_order() -> None:
    b = Builder()
    found = pairs(b, *adam(b, *(b.parameter((64, 64)) for _ in range(4))))
    assert found == tuple((output, operand) for output in range(3) for operand in range(4))


def test_another_shape_does_not_qualify() -> None:
    b = Builder()
    x, row = b.parameter((30, 40)), b.parameter((40,))
    assert pairs(b, b.like(b.exp(row), x, (0,))) == ()
    b = Builder()
    assert pairs(b, b.reshape(b.exp(b.parameter((30, 40))), (1200,))) == ()


@pytest.mark.parametrize("dtype", ["s32", "bf16"])
def test_another_type_does_not_qualify(dtype: str) -> None:
    b = Builder()
    assert pairs(b, b.op("convert", (64,), b.parameter((64,), dtype), dtype="f32")) == ()


def test_an_output_may_not_take_the_indices_it_is_picked_by() -> None:
    b = Builder()
    picked = b.rows(b.parameter((100,)), b.parameter((64,), "s32"))
    start = b.parameter((64,))
    assert pairs(b, b.add(picked, start)) == ((0, 2),)


def test_elements_read_at_another_place_do_not_qualify() -> None:
    b = Builder()
    x = b.parameter((40, 40))
    assert pairs(b, b.add(x, b.transpose(x, (1, 0)))) == ()
    b = Builder()
    x = b.parameter((40,))
    assert pairs(b, b.op("reverse", (40,), x, dimensions=(0,))) == ()


def test_an_input_that_another_loop_reads_does_not_qualify() -> None:
    b = Builder()
    x, y = b.parameter((300, 400)), b.parameter((300, 400))
    assert pairs(b, b.add(x, y), b.reduce(x, (0,))) == ((0, 1),)


def test_an_input_read_before_a_grid_barrier_qualifies_and_after_it_does_not() -> None:
    b = Builder()
    x, start = b.parameter((300, 400)), b.parameter((300,))
    rows, total = b.reduce(x, (1,)), b.reduce(b.exp(x), (0, 1))
    both = b.add(total, b.reduce(rows, (0,)))
    scaled = b.div(x, b.broadcast(both, x.dims))
    assert pairs(b, rows, b.sub(scaled, b.broadcast(start, x.dims, (0,)))) == ((1, 0),)


@pytest.mark.parametrize("name", ["descent", "descent_bf16", "descent_watched"])
def test_an_update_comes_after_other_readers_where_a_later_phase_is(name: str) -> None:
    kernel = CASES[name].case().kernel()
    # the gradient of the input reads the other weights in the last phase
    assert (1, 2) in kernel.in_place
    assert (0, 1) not in kernel.in_place
    assert kernel.source.count(GRID) == 3


def test_what_reads_an_input_does_not_move_behind_its_update() -> None:
    case = CASES["descent_watched"].case()
    plain = generate(case.graph, case.device)
    assert (1, 2) not in plain.in_place
    assert plain.source.count(GRID) == case.kernel().source.count(GRID)


def test_an_update_that_others_read_does_not_wait() -> None:
    case = CASES["descent_twice"].case()
    plain = generate(case.graph, case.device)
    assert (0, 1) not in case.kernel().in_place
    assert case.kernel().source.count(GRID) == plain.source.count(GRID)


def test_a_value_per_row_takes_its_own_input() -> None:
    b = Builder()
    x, start = b.parameter((300, 64)), b.parameter((300,))
    assert pairs(b, b.sub(start, b.reduce(x, (1,)))) == ((0, 1),)


def test_values_per_row_are_all_computed_before_one_is_stored() -> None:
    b = Builder()
    x, start = b.parameter((300, 64)), b.parameter((300,))
    first = b.exp(b.reduce(x, (1,)))
    region = whole(b.graph(first, b.add(first, start)))
    kernel = generate(region, H200)
    assert (0, 1) in kernel.in_place
    lines = kernel.source.splitlines()
    [store] = [n for n, line in enumerate(lines) if line.strip().startswith("exponential_4_out[")]
    [load] = [n for n, line in enumerate(lines) if " = parameter_1[" in line]
    assert load < store


def test_a_value_per_row_that_the_whole_team_uses_overwrites_nothing() -> None:
    b = Builder()
    x, start = b.parameter((300, 64)), b.parameter((300,))
    row = b.sub(start, b.reduce(x, (1,)))
    assert pairs(b, row, b.mul(x, b.broadcast(row, x.dims, (0,)))) == ()


def test_an_input_that_is_summed_along_the_row_does_not_qualify() -> None:
    b = Builder()
    assert pairs(b, softmax(b, b.parameter((300, 64)))) == ()


def test_a_sum_overwrites_nothing() -> None:
    b = Builder()
    x, start = b.parameter((300, 64)), b.parameter((300,))
    assert pairs(b, b.reduce(x, (1,)), b.exp(start)) == ((1, 1),)


def test_a_named_input_is_not_promised_to_be_unaliased() -> None:
    b = Builder()
    x, y = b.parameter((30, 40)), b.parameter((40,))
    kernel = generate(whole(b.graph(b.add(x, b.like(y, x, (0,))))), H200)
    assert kernel.in_place == ((0, 0),)
    assert "const float* parameter_0," in kernel.source
    assert "const float* __restrict__ parameter_1," in kernel.source
