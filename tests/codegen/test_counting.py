"""Counting kernels that are written by hand: what a statement adds, and how often it runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from fusionstitch.codegen.count import tallies
from fusionstitch.codegen.count.kernel_cost import cost
from fusionstitch.codegen.count.tally import Tally
from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Arithmetic,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    apply,
    element,
    infix,
    number,
)
from fusionstitch.codegen.ir.intrinsics import REDUCE_LANES
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Barrier,
    Branch,
    Fill,
    For,
    If,
    Let,
    Shared,
    Statement,
    Store,
    Swap,
    unrolled,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, Raw, Scalar
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Op, Shape
from tests.codegen.cases import CASES
from tests.codegen.regions import Statements

H200 = device("h200")
count = partial(tallies.count, device=H200)
SIZE = 1 << 20
THREADS, BLOCKS = variable(THREAD.name, 256), variable(BLOCK.name, 1 << 16)


def kernel(*body: Statement, grid: int = 1) -> Lowered:
    buffers = (
        Buffer("x", FLOAT, SIZE, Memory.INPUT),
        Buffer("at", Scalar("s32"), SIZE, Memory.INPUT),
        Buffer("y", FLOAT, SIZE, Memory.OUTPUT),
    )
    return Lowered("k", buffers, (), body, block=256, cluster=1, grid=grid, shared=0)


def load(at: Index | Expr, name: str = "value", buffer: str = "x") -> Let:
    position = Integer(at) if isinstance(at, Index) else at
    return Let(FLOAT if buffer == "x" else INT, name, Load(Name(buffer), position))


def loads(tally: Tally) -> int:
    return sum(one.accesses for one in tally.loads.values())


def sectors(*body: Statement, width: int = 4) -> int:
    return count(kernel(*body)).loads[Memory.INPUT, width].sectors


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (THREADS, 8 * 4),  # 32 floats of a warp are 128 bytes
        (THREADS + 1, 8 * 5),
        (THREADS * 2, 8 * 8),
        (THREADS * 8, 8 * 32),
        (THREADS // 4, 8),
        (variable("none", 1), 8),
    ],
)
def test_warps_touch_sectors(at: Index, expected: int) -> None:
    assert sectors(load(at)) == expected


def test_vectors_touch_half_a_sector_each() -> None:
    vector = LoadVector(FLOAT, 4, Name("x"), Integer(THREADS * 4))
    assert sectors(Let(Raw.LOADED, "value", vector), width=16) == 8 * 16


def test_where_the_data_decides_the_place_each_thread_has_a_sector_of_its_own() -> None:
    assert sectors(load(THREADS, "i", "at"), load(Name("i"))) == 8 * 4 + 256


@pytest.mark.parametrize(("size", "lines"), [(15, 1), (33, 2), (SIZE, 32)])
def test_a_warp_touches_no_more_lines_than_an_array_has(size: int, lines: int) -> None:
    body = load(THREADS, "i", "at"), load(Name("i"))
    table = Buffer("x", FLOAT, size, Memory.INPUT)
    some = kernel(*body)
    found = count(replace(some, buffers=(table, *some.buffers[1:])))
    assert found.loads[Memory.INPUT, 4].lines == 8 + 8 * lines


def looked_up(steps: int, *more: int, grid: int = 1, size: int = 256) -> Lowered:
    """Elements of `x` at positions in a table of `size`, each so many `steps` after the last; then
    those that lie some elements after them."""
    table = Buffer(
        "table", INT, size, Memory.CONSTANT, integers=tuple(range(0, size * steps, steps))
    )
    places = load((BLOCKS * 256 + THREADS) % size, "i", "table")
    sums = (infix("+", Name("i"), n) for n in more)
    found = kernel(places, *(load(at, "value") for at in (Name("i"), *sums)), grid=grid)
    return replace(found, buffers=(*found.buffers, table))


@pytest.mark.parametrize(("steps", "expected"), [(1, 8 * 4), (2, 8 * 8), (100, 256)])
def test_positions_in_a_table_of_the_kernel_are_known(steps: int, expected: int) -> None:
    assert count(looked_up(steps)).loads[Memory.INPUT, 4].sectors == expected


def test_an_integer_that_is_computed_of_known_ones_is_known() -> None:
    """Two steps from one table to the next."""
    scalar = Shape("s32", ())
    twice = Op("add", scalar, (Op("parameter", scalar), Op("parameter", scalar)))
    body = (
        load(THREADS, "i", "table"),
        Let(INT, "j", Arithmetic(twice, (Name("i"),) * 2, "default")),
    )
    known = looked_up(1)
    found = count(replace(known, body=(*body, load(Name("j")))))
    assert found.loads[Memory.INPUT, 4].sectors == 8 * 8


def test_neighbours_of_what_a_thread_has_visited_have_come() -> None:
    """Positions of more combinations than are looked at one by one."""
    one, three, far = (
        count(looked_up(2, *more, grid=999, size=1000)).phases[0].read["x"]
        for more in ((), (1, 2), (100_000,))
    )
    assert (three.moved, three.again) == (one.moved, ())
    assert far.moved > one.moved


def test_neighbours_that_share_a_place_share_its_sectors() -> None:
    """A row that the data decides, of 32 elements for 32 lanes."""
    row = load(THREADS // 32, "i", "at")
    position = infix("+", infix("*", Name("i"), 32), infix("%", THREAD, 32))
    assert sectors(row, load(position)) == 8 + 8 * 4


def test_blocks_that_are_alike_are_counted_once() -> None:
    """A million blocks, of which the last one has but a few threads at work."""
    elements = (1 << 20) * 256 - 7
    point = infix("+", infix("*", BLOCK, 256), THREAD)
    body = If(infix("<", point, elements), body=(Store("y", THREAD, number(0)),))
    tally = count(kernel(body, grid=1 << 20))
    assert tally.stores[Memory.OUTPUT, 4].accesses == elements
    assert not tally.upper
    assert not tally.sampled


def test_what_does_not_hold_is_left_to_the_others() -> None:
    few = infix("<", THREAD, 10)
    odd = infix("==", infix("%", THREAD, 2), 1)
    both = Infix("&&", (few, odd))
    body = If(both, body=(load(THREADS),), others=(Branch(few, (load(THREADS),) * 10),))
    assert loads(count(kernel(body))) == 5 + 5 * 10


def test_conditions_on_data_count_as_true() -> None:
    requested = If(infix("<", Name("i"), 10), body=(load(THREADS),))
    tally = count(kernel(load(THREADS, "i", "at"), requested))
    assert loads(tally) == 2 * 256
    assert tally.upper


@pytest.mark.parametrize("down", [False, True])
def test_loops_turn_as_often_as_their_threads_say(down: bool) -> None:
    """Thread t of 256 has the elements t, t + 256, ..., or those from t down to 100."""
    stop = number(100 if down else 1000)
    step = 1 if down else 256
    loop = For(INT, "i", THREAD, stop, step=step, down=down, body=(load(variable("i", 1000)),))
    iterations = [max(0, t - 99) if down else len(range(t, 1000, 256)) for t in range(256)]
    assert loads(count(kernel(loop))) == sum(iterations)


def test_barriers_are_counted_by_those_who_meet() -> None:
    tally = count(
        kernel(Barrier(Scope.TEAM, 64), Barrier(Scope.BLOCK), Barrier(Scope.GRID), grid=3)
    )
    assert tally.barriers == {Scope.TEAM: 12, Scope.BLOCK: 3, Scope.GRID: 1}
    assert len(tally.phases) == 2


def test_loads_are_under_way_together_up_to_a_barrier() -> None:
    four = unrolled("i", 4)
    loop = For(four.type, "i", four.start, four.stop, unroll=four.unroll, body=(load(THREADS),))
    assert count(kernel(loop, load(THREADS))).in_flight == 5
    assert count(kernel(loop, Barrier(Scope.BLOCK), load(THREADS))).in_flight == 4


def test_loads_at_places_that_were_loaded_wait_for_them() -> None:
    tally = count(kernel(load(THREADS, "i", "at"), load(Name("i")), load(THREADS)))
    assert tally.in_flight == 2


def filled(name: str) -> Fill:
    return Fill(name, 64, Integer(Index(const=0)))


def each(*body: Statement) -> For:
    """Of the elements of an array."""
    loop = unrolled("i", 64)
    return For(loop.type, "i", loop.start, loop.stop, unroll=loop.unroll, body=body)


def at_i(name: str) -> Element:
    return element(name, variable("i", 64))


def test_arrays_take_registers_from_their_first_use_to_their_last() -> None:
    one, other = Array(FLOAT, "a", 64), Array(FLOAT, "b", 64)
    alone = count(kernel(one, filled("a"))).registers
    assert count(kernel(one)).registers < alone - 60
    assert count(kernel(one, other, filled("a"), filled("b"))).registers == alone
    together = count(kernel(one, other, filled("a"), filled("b"), filled("a"))).registers
    assert together == alone + 64


def test_an_array_takes_over_the_registers_of_one_that_it_follows_from() -> None:
    one, other = Array(FLOAT, "a", 64), Array(FLOAT, "b", 64)
    alone = count(kernel(one, filled("a"))).registers
    copied = each(Assign(at_i("b"), at_i("a")))
    added = each(Assign(at_i("b"), at_i("a"), "+"))
    begun = kernel(one, other, filled("a"), copied, filled("b"))
    assert count(begun).registers == alone
    assert count(kernel(one, other, filled("a"), added, filled("b"))).registers == alone + 64
    read_later = kernel(one, other, filled("a"), copied, filled("b"), filled("a"))
    assert count(read_later).registers == alone + 64


def test_exchanges_are_counted_by_what_they_do_inside() -> None:
    """Warps join their lanes in five steps."""
    value = Array(FLOAT, "v")
    joined = apply(REDUCE_LANES, Name("v"), template=(32, "FsAdd"))
    tally = count(kernel(value, Let(FLOAT, "sum", joined)))
    assert tally.shuffles == 256 * 5
    assert tally.phases[0].instructions.flops == 256 * 5


@pytest.mark.parametrize("name", ["layer_norm_100", "softmax_1000", "adam", "three_phases"])
def test_inputs_come_from_memory_once_and_results_go_there_once(name: str) -> None:
    case, watch = CASES[name].case(), Statements()
    made = case.kernel(watch)
    found = cost(count(watch.last), watch.last)
    given = sum(shape.bytes for shape in (*made.inputs, *made.outputs))
    assert sum(phase.outside for phase in found.phases) == given


def test_a_slice_is_read_and_nothing_beside_it() -> None:
    tally = count(kernel(load(THREADS + 1000)))
    assert tally.phases[0].read["x"].bytes == 256 * 4
    [phase] = cost(tally, kernel()).phases
    assert phase.outside == 256 * 4


def test_a_branch_counts_by_its_longer_side() -> None:
    short, long = load(THREADS, "a"), replace(unrolled("i", 8), body=(load(THREADS, "b"),))
    condition = infix("<", BLOCK, 10)
    tally = count(kernel(If(condition, body=(short,), others=(Branch(None, (long,)),)), grid=20))
    assert tally.phases[0].path.accesses == 8


def test_loads_of_a_loop_without_branches_are_under_way_together() -> None:
    iteration = load(variable("i", 64), "a")
    straight = For(INT, "i", number(0), number(64), body=(iteration,))
    assert count(kernel(straight)).phases[0].path.rounds == 4
    few = infix("<", THREAD, 10)
    predicated = For(INT, "i", number(0), number(64), body=(If(few, body=(iteration,)),))
    assert count(kernel(predicated)).phases[0].path.rounds == 4
    stored = Store("y", Integer(variable("i", 64)), Name("a"))
    branching = For(INT, "i", number(0), number(64), body=(If(few, body=(iteration, stored)),))
    assert count(kernel(branching)).phases[0].path.rounds == 64
    # written out, too
    unrolled_ = replace(branching, unroll=16)
    assert count(kernel(unrolled_)).phases[0].path.rounds == 64
    assert count(kernel(replace(straight, unroll=32))).phases[0].path.rounds == 2


def chain_of(*body: Statement) -> float:
    return count(kernel(*body)).phases[0].path.chain


def added(variable_: str, *body: Statement, iterations: int = 10) -> For:
    grown = Assign(Name(variable_), Name("step"), "+")
    return For(INT, "i", number(0), number(iterations), body=(*body, grown))


def test_what_waits_for_the_turn_before_makes_a_chain() -> None:
    """A sum waits for itself; values of an iteration's own are computed side by side."""
    start = Let(FLOAT, "sum", number(0), changes=True), Let(FLOAT, "step", number(1))
    alone = chain_of(*start, added("sum"))
    assert chain_of(*start, added("sum", iterations=20)) == 2 * alone
    own = Let(FLOAT, "own", infix("*", Name("i"), Name("i"), Name("i")))
    iteration = chain_of(For(INT, "i", number(0), number(1), body=(own,)))
    assert 0 < iteration == chain_of(For(INT, "i", number(0), number(10), body=(own,)))
    assert chain_of(*start, added("sum", own)) < alone + 2 * iteration


def test_a_value_in_shared_memory_waits_for_the_turn_that_stored_it() -> None:
    """In two buffers that change names."""
    limits = (
        Shared(FLOAT, "now", 0, 256, changes=True),
        Shared(FLOAT, "next", 1024, 256, changes=True),
    )
    moved = Let(FLOAT, "value", Load(Name("now"), THREAD)), Store("next", THREAD, Name("value"))

    def iterations(number_: int, *last: Statement) -> float:
        loop = For(INT, "i", number(0), number(number_), body=(*moved, *last))
        return chain_of(*limits, loop)

    assert 0 < iterations(10) == iterations(1)
    assert iterations(10, Swap("now", "next")) == 10 * iterations(1)


def test_elements_of_a_loop_do_not_wait_for_each_other() -> None:
    """Ten sums of an array grow at once, in each of so many iterations."""

    def sums(iterations: int) -> float:
        grown = Assign(element("sums", variable("v", 10)), Name("step"), "+")
        iteration = replace(unrolled("v", 10), body=(grown,))
        loop = For(INT, "i", number(0), number(iterations), body=(iteration,))
        return chain_of(Array(FLOAT, "sums", 10), Let(FLOAT, "step", number(1)), loop)

    assert 0 < sums(20) == 2 * sums(10) == 20 * sums(1)


def test_a_branch_that_the_turn_decides_counts_by_its_turns() -> None:
    """Of ten iterations two go one way, eight the other; threads that differ go the longer one."""
    short, long = load(THREADS, "a"), replace(unrolled("j", 8), body=(load(THREADS, "b"),))
    for requested, reference in ((Name("i"), 2 * 1 + 8 * 8), (THREAD, 10 * 8)):
        branch = If(infix("<", requested, 2), body=(short,), others=(Branch(None, (long,)),))
        loop = For(INT, "i", number(0), number(10), body=(branch,))
        assert count(kernel(loop)).phases[0].path.accesses == pytest.approx(reference)


def test_a_small_table_comes_to_a_multiprocessor_once() -> None:
    """Where the data decides, too: of `at` as much as a block reads, of `x` no more than it has."""
    row = load(THREADS, "i", "at")
    small = replace(kernel(row, load(Name("i"))), buffers=(Buffer("x", FLOAT, 8, Memory.INPUT),))
    read = count(small).phases[0].read["x"]
    assert read.moved == 8 * 4


def test_a_product_and_its_sum_are_one_instruction() -> None:
    def ops(opcode: str) -> float:
        scalar = Shape("f32", ())
        given = Op("parameter", scalar), Op("parameter", scalar)
        product, sum_ = (
            Arithmetic(Op(name, scalar, given), (Name("a"), Name("b")), "default")
            for name in (opcode, "add")
        )
        return count(kernel(Let(FLOAT, "a", product), Let(FLOAT, "c", sum_))).phases[0].path.ops

    assert ops("multiply") == 1
    assert ops("maximum") == 2


def rows_again(visits: int, grid: int = 4) -> Tally:
    """Each block goes so many times through 2048 elements of its own."""
    at = BLOCKS * 2048 + variable("i", 8) * 256 + THREADS
    sweep = For(INT, "i", number(0), number(8), body=(load(at),))
    return count(kernel(*[sweep] * visits, grid=grid))


def test_what_a_block_visits_again_comes_again_unless_it_is_kept() -> None:
    once, twice = (rows_again(visits).phases[0].read["x"] for visits in (1, 2))
    assert (once.bytes, once.moved, once.again) == (4 * 8192, 4 * 8192, ())
    [again] = twice.again
    assert (twice.bytes, twice.moved) == (once.bytes, once.moved)
    assert (again.block, again.bytes, again.common) == (8192, 4 * 8192, False)


def test_what_all_blocks_visit_is_common() -> None:
    sweep = For(INT, "i", number(0), number(8), body=(load(THREADS),))
    [again] = count(kernel(sweep, sweep, grid=4)).phases[0].read["x"].again
    assert again.common
    assert again.block == 4 * 256


def test_neighbours_in_a_sector_come_together_wherever_a_remainder_leads() -> None:
    """The three coordinates of points that an index goes round."""
    point = (BLOCKS * 256 + THREADS) % 100
    once = count(kernel(load(point * 3), grid=4)).phases[0].read["x"]
    every = [load(point * 3 + n, f"coordinate_{n}") for n in range(3)]
    assert count(kernel(*every, grid=4)).phases[0].read["x"].moved <= once.moved + 3 * 32


def held(per_sm: int, *body: Statement) -> Tally:
    """A block of 256 threads with 100 floats each in an array."""
    used = Fill("a", 100, Integer(Index(const=0)))
    statements = (Array(FLOAT, "a", 100), used, *body)
    return count(replace(kernel(*statements), per_sm=per_sm))


def test_bounds_leave_arrays_without_registers() -> None:
    free, bound = held(0), held(8)
    assert (free.spilled, free.spilled_bytes) == (0, 0)
    assert bound.registers == 32
    assert 0.5 < bound.spilled < 1
    assert bound.spilled_bytes == pytest.approx(400 * bound.spilled, abs=4)


def test_an_element_that_gets_another_name_is_not_computed_with() -> None:
    def kept(*body: Statement) -> float:
        used, unused = (held(0, *more).phases[0].path.kept for more in (body, ()))
        return used - unused

    named = Let(FLOAT, "b", element("a", Index(const=3)))
    back = Assign(element("a", Index(const=4)), Name("b"))
    assert kept(named) == kept(named, back) == 0
    used = Let(FLOAT, "c", infix("+", Name("b"), 1))
    assert kept(named, used) == 1
    assert kept(named, used, Assign(element("a", Index(const=4)), Name("c"))) == 2


def test_few_registers_take_more_rounds_of_loads() -> None:
    body = [load(THREADS + 256 * n, f"v{n}") for n in range(40)]
    free, bound = (
        count(replace(kernel(*body), per_sm=per_sm)).phases[0].path.rounds for per_sm in (0, 8)
    )
    assert free == 1
    assert bound > 2
