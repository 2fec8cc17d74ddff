"""What programs cannot go below: by hand, and never above what the model says of a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax

from fusionstitch.codegen.generate import draft
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.costmodel.floor import NONE, Floor, floor_of, program_floor
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.costmodel.least_work import live
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.semantics import Kind, kind_of
from tests.codegen.cases import CASES
from tests.codegen.regions import lowered, whole_of
from tests.codegen.whole_loop_programs import averages, lorenz
from tests.graphs import Builder, layernorm, random_graphs, softmax

H200 = device("h200")
COSTS = H200.instructions


def unit(floor: Floor, name: str) -> float:
    return dict(floor.units).get(name, 0.0)


def moved(graph: Graph, donated: Any = ()) -> int:
    """Bytes that cross DRAM."""
    us = unit(program_floor(graph, H200, donated), "DRAM")
    return round(us * H200.dram_bytes_per_s / 1e6)


def shaped(*dims: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


# ---- by hand ------------------------------------------------------------------------------------


def test_softmax_moves_its_rows_once_each_way() -> None:
    b = Builder()
    floor = program_floor(b.graph(softmax(b, b.parameter((8192, 4096)))), H200)
    size = 8192 * 4096
    assert unit(floor, "DRAM") == pytest.approx(2 * 4 * size / H200.dram_bytes_per_s * 1e6)
    # an exponential and a division for each element
    assert unit(floor, "special functions") == pytest.approx(2 * size / H200.special_per_s * 1e6)
    assert floor.us == H200.launch_us + unit(floor, "DRAM")
    assert floor.bound_by == "DRAM"


@pytest.mark.parametrize(
    ("dtype", "precision", "rate"),
    [
        ("bf16", "default", 1.0),
        ("f8e4m3fn", "default", 2.0),
        ("f32", "default", 1 / 2),
        ("f32", "highest", 1 / 6),
    ],
)
def test_tensor_cores_by_type(dtype: str, precision: str, rate: float) -> None:
    b = Builder()
    x, y = b.parameter((4096, 4096), dtype), b.parameter((4096, 4096), dtype)
    floor = program_floor(b.graph(b.dot(x, y, precision=precision)), H200)
    expected = 2 * 4096**3 / (rate * H200.tensor_bf16_flops) * 1e6
    assert unit(floor, "tensor cores") == pytest.approx(expected)
    assert floor.bound_by == "tensor cores"


def test_f64_is_a_unit_of_its_own() -> None:
    slow = device("l4")
    b = Builder()
    x = b.parameter((1 << 20,), "f64")
    floor = program_floor(b.graph(b.exp(b.mul(x, x))), slow)
    assert unit(floor, "f64") == pytest.approx(9 * 2**20 / slow.fp64_flops * 1e6)
    assert unit(floor, "f32") == 0


def test_one_launch_at_least() -> None:
    b = Builder()
    x = b.parameter((10,))
    floor = program_floor(b.graph(b.add(x, x)), H200)
    assert floor.bound_by == "a launch"
    assert H200.launch_us < floor.us < H200.launch_us + 0.01


def test_nothing_takes_no_time() -> None:
    b = Builder()
    assert program_floor(b.graph(b.parameter((10,))), H200) == NONE
    assert NONE.over(1.0) is None


def test_who_reads_nothing_of_an_input_has_it_for_nothing() -> None:
    b = Builder()
    x, dead = b.parameter((1000,)), b.parameter((10**6,))
    b.exp(dead)
    assert moved(b.graph(b.exp(x))) == 8000


def test_a_slice_is_all_that_is_read() -> None:
    b = Builder()
    x = b.parameter((1000, 64))
    assert moved(b.graph(b.exp(b.slice(x, (0, 0), (10, 64))))) == 2 * 10 * 64 * 4
    b = Builder()
    x, i = b.parameter((1000, 64)), b.parameter((10,), "s32")
    assert moved(b.graph(b.rows(b.exp(x), i))) == 2 * 10 * 64 * 4 + 40


def test_what_is_spread_is_computed_and_read_once() -> None:
    b = Builder()
    x, y = b.parameter((1000,)), b.parameter((1000, 64))
    rows = b.exp(b.broadcast(x, (1000, 64), (0,)))
    graph = b.graph(b.add(rows, y))
    assert moved(graph) == 4000 + 2 * 4 * 64_000
    special = unit(program_floor(graph, H200), "special functions")
    assert special == pytest.approx(1000 / H200.special_per_s * 1e6)


def test_in_place_as_much_as_changes() -> None:
    def update(cache: jax.Array, rows: jax.Array, at: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(cache, rows, (at, 0))

    graph = lowered(update, shaped(10_000, 64), shaped(2, 64), shaped(dtype=jnp.int32))
    assert moved(graph, donated={0}) == 2 * 2 * 64 * 4 + 4
    assert moved(graph) > 2 * (10_000 - 2) * 64 * 4


def test_values_of_the_program_may_stay_in_l2() -> None:
    b = Builder()
    x = b.parameter((1 << 20,))
    sorted_ = b.kept(x)
    y = b.exp(sorted_)
    graph = b.graph(b.kept(y))
    floor = floor_of(graph, 1 << y.id, H200)
    assert unit(floor, "DRAM") == 0
    assert floor.bound_by == "L2"
    assert unit(floor, "L2") == pytest.approx(2**23 / H200.l2_bytes_per_s * 1e6)
    small = replace(H200, l2_bytes=1 << 22)
    assert unit(floor_of(graph, 1 << y.id, small), "DRAM") > 0


# ---- loops --------------------------------------------------------------------------------------


def test_iterations_wait_for_each_other() -> None:
    def program(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 1000, lambda i, x: jnp.exp(x * 0.5 + 1), x)

    floor = program_floor(lowered(program, shaped(64)), H200)
    # a multiplication whose sum comes with it, and an exponential
    chain = 1000 * (COSTS.operation_cycles + COSTS.special_cycles) / H200.cycles_per_us
    assert unit(floor, "longest chain") == pytest.approx(chain, rel=0.01)
    assert floor.bound_by == "longest chain"
    assert not floor.at_least


def test_iterations_that_only_count_and_add_do_not_wait() -> None:
    def program(xs: jax.Array) -> Any:
        return lax.scan(lambda total, x: (total + jnp.exp(x), jnp.sin(x)), xs[0], xs)

    floor = program_floor(lowered(program, shaped(10_000, 64)), H200)
    assert unit(floor, "longest chain") < 0.1
    assert floor.bound_by == "DRAM"


def test_sums_of_all_values_wait_for_all() -> None:
    def program(x: jax.Array, scale: Any) -> jax.Array:
        return lax.fori_loop(0, 100, lambda i, x: x * scale(x), x)

    along_rows = lowered(lambda x: program(x, lambda x: x.sum(-1, keepdims=True)), shaped(64, 4096))
    of_all = lowered(lambda x: program(x, jnp.sum), shaped(64, 4096))
    apart, together = (program_floor(graph, H200) for graph in (along_rows, of_all))
    barrier = 100 * H200.prices.barriers / H200.cycles_per_us
    assert unit(apart, "longest chain") > barrier
    # a block alone computes for too long: several meet
    assert unit(together, "longest chain") > unit(apart, "longest chain") + barrier


def test_what_no_iteration_changes_is_computed_once() -> None:
    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 100, lambda i, x: x + jnp.tanh(w), x)

    floor = program_floor(lowered(program, shaped(1 << 16), shaped(1 << 16)), H200)
    assert unit(floor, "special functions") == pytest.approx(2**16 / H200.special_per_s * 1e6)


def test_a_stacked_input_is_read_once_and_a_stacked_output_written_once() -> None:
    graph = lowered(averages, shaped(50, 1024))
    assert moved(graph) == pytest.approx(2 * 50 * 1024 * 4, rel=0.03)


def test_the_data_ends_a_loop() -> None:
    def program(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, x)

    assert program_floor(lowered(program, shaped(64)), H200).at_least


def test_loops_in_and_after_each_other_add_up() -> None:
    def halves(n: int, x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, n, lambda i, x: jnp.sin(x), x)

    def nested(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 20, lambda i, x: halves(30, x), x)

    programs = (lambda x: halves(600, x), lambda x: halves(400, jnp.exp(halves(200, x))), nested)
    once, twice, inside = (
        unit(program_floor(lowered(program, shaped(64)), H200), "longest chain")
        for program in programs
    )
    assert once == pytest.approx(600 * COSTS.special_cycles / H200.cycles_per_us)
    assert twice == pytest.approx(601 * COSTS.special_cycles / H200.cycles_per_us)
    assert inside == pytest.approx(once, rel=0.01)


def test_more_iterations_take_longer() -> None:
    def program(n: int) -> Graph:
        return lowered(lambda x: lax.fori_loop(0, n, lambda i, x: jnp.sin(x), x), shaped(64))

    floors = [program_floor(program(n), H200).us for n in (1, 7, 8, 9, 50, 5000)]
    assert floors == sorted(set(floors))


# ---- against the model, and each other ----------------------------------------------------------

#: Cases whose masks leave out most of a row: a floor counts what they hide, kernels do not.
MASKED = {"streamed_window"}
#: Devices on which one kind of work decides, however small a program is.
SLOW_MEMORY = ("dram_bytes_per_s", "l2_bytes_per_s")
SLOW_UNITS = ("fp32_flops", "fp64_flops", "special_per_s", "int32_ops", "tensor_bf16_flops")


def slowed(given: Device, rates: tuple[str, ...]) -> Device:
    return replace(given, **{rate: getattr(given, rate) / 1e4 for rate in rates})


@pytest.mark.parametrize("part", range(4))
def test_no_kernel_is_modelled_to_be_faster(part: int) -> None:
    """Of the tests' cases, where nothing is left of the call before."""
    for name in list(CASES)[part::8]:
        if name in MASKED:
            continue
        case = CASES[name].case()
        cost = draft(case.graph, case.device, case.options).cost
        for rates in ((), SLOW_MEMORY, SLOW_UNITS):
            given = slowed(case.device, rates)
            floor = program_floor(case.graph, given)
            assert floor.us <= cost_us(cost, given, missed=1.0), (name, rates, floor)


@pytest.mark.parametrize(
    ("fun", "arg"),
    [(lorenz, np.ones((3, 1024), np.float32)), (averages, np.ones((50, 1024), np.float32))],
)
def test_no_loop_is_modelled_to_be_faster(fun: Any, arg: np.ndarray) -> None:
    graph = whole_of(fun, arg)
    floor = program_floor(graph, H200)
    assert floor.us <= cost_us(draft(graph, H200).cost, H200, missed=1.0)


@given(random_graphs())
def test_more_ops_have_no_less_to_compute(graph: Graph) -> None:
    """Whatever lies in a kernel, its operations are at least those of each part."""
    ops = [op.id for op in live(graph) if kind_of(op.opcode) is not Kind.STRUCTURE]
    compute = ("f32", "special functions", "tensor cores")
    every = floor_of(graph, sum(1 << i for i in ops), H200)
    for i in ops:
        alone = floor_of(graph, 1 << i, H200)
        for name in compute:
            assert unit(alone, name) <= unit(every, name) * (1 + 1e-9)


def test_independent_parts_together_take_no_less() -> None:
    b = Builder()
    x, y, scale = b.parameter((512, 1024)), b.parameter((256, 512)), b.parameter((1024,))
    first = softmax(b, y)
    middle = len(b.ops)
    graph = b.graph(first, layernorm(b, x, scale, scale))
    own = [sum(1 << i for i in range(middle)), sum(1 << i for i in range(middle, len(graph)))]
    parts = [floor_of(graph, bits, H200) for bits in own]
    together = program_floor(graph, H200)
    assert together.us >= max(part.us for part in parts)
    for name in ("DRAM", "L2", "special functions"):
        assert unit(together, name) == pytest.approx(sum(unit(part, name) for part in parts))


def test_a_floor_says_what_binds() -> None:
    floor = Floor(1.0, (("DRAM", 2.0), ("f32", 0.5)))
    assert repr(floor) == "<Floor: 3.00 us, bound by DRAM (DRAM 2.00, f32 0.50)>"
    assert floor.over(6.0) == 2.0
    assert floor.over(None) is None
    assert floor.times(3) == Floor(3.0, (("DRAM", 6.0), ("f32", 1.5)))
