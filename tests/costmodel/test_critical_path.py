"""Blocks that wait for each other by counters: the longest path, worked out by hand."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.costmodel.critical_path import Links, critical_us
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_cost import (
    Arrival,
    Await,
    KernelCost,
    Path,
    PhaseCost,
    Step,
)
from fusionstitch.costmodel.kernel_time import cost_us, links

H200 = device("h200")
ARRIVE, WAIT, SIGNAL = 0.5, 0.25, 1.0
LINKS = Links(ARRIVE, WAIT, lambda arrivals: SIGNAL)


def test_a_consumer_that_is_faster_ends_after_the_last_of_the_producer() -> None:
    producer = (0, Arrival(0), 0, Arrival(0), 0, Arrival(0))
    consumer = (Await(0, 1), 1, Await(0, 2), 1, Await(0, 3), 1)
    found = critical_us([producer, consumer], [10.0, 4.0], LINKS)
    assert found == 3 * (10 + ARRIVE) + SIGNAL + 4  # and not 3 * (10 + 4)


def test_a_consumer_that_is_slower_waits_for_the_first_alone() -> None:
    producer = (0, Arrival(0), 0, Arrival(0), 0, Arrival(0))
    consumer = (Await(0, 1), 1, Await(0, 2), 1, Await(0, 3), 1)
    found = critical_us([producer, consumer], [2.0, 10.0], LINKS)
    assert found == 2 + ARRIVE + SIGNAL + 10 + 2 * (WAIT + 10)


def test_a_ring_of_two_slots_keeps_the_producer_two_ahead() -> None:
    """Counter 0: what is there; counter 1: what is taken."""
    producer = (
        0,
        Arrival(0),
        0,
        Arrival(0),
        Await(1, 1),
        0,
        Arrival(0),
        Await(1, 2),
        0,
        Arrival(0),
    )
    consumer = tuple(s for n in range(1, 5) for s in (Await(0, n), 1, Arrival(1)))
    first = 2 + ARRIVE + SIGNAL + 10  # the consumer has the first
    second = first + ARRIVE + WAIT + 10
    third = second + ARRIVE + WAIT + 10
    fourth = third + ARRIVE + WAIT + 10
    found = critical_us([producer, consumer], [2.0, 10.0], LINKS)
    assert found == fourth + ARRIVE
    slow = critical_us([producer, consumer], [10.0, 2.0], LINKS)
    assert slow == 4 * (10 + ARRIVE) + 2 * WAIT + SIGNAL + 2 + ARRIVE


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (6, 1), (7, 4)])
def test_a_wavefront_takes_a_diagonal(rows: int, columns: int) -> None:
    """Each block has a column of tiles, and waits for the tile to the left of each."""
    tile = 3.0

    def steps(column: int) -> tuple[Step, ...]:
        each = [(Await(column - 1, row + 1), 0, Arrival(column)) for row in range(rows)]
        return tuple(s for one in each for s in (one if column else one[1:]))

    found = critical_us([steps(column) for column in range(columns)], [tile], LINKS)
    down = WAIT if columns > 1 else 0.0
    across = (columns - 1) * (tile + ARRIVE + SIGNAL)
    assert found == pytest.approx(across + rows * (tile + ARRIVE) + (rows - 1) * down)


def test_a_wait_is_for_the_last_of_those_that_are_needed() -> None:
    blocks = [(Await(0, 2),), (0, Arrival(0)), (1, Arrival(0)), (2, Arrival(0))]
    assert critical_us(blocks, [7.0, 1.0, 3.0], LINKS) == 7 + ARRIVE  # no block waits for block 1
    blocks[0] = (Await(0, 2), 2)
    assert critical_us(blocks, [1.0, 20.0, 3.0], LINKS) == 20 + ARRIVE
    assert critical_us(blocks[:2] + blocks[3:], [1.0, 20.0, 3.0], LINKS) == 3 + ARRIVE + SIGNAL + 3


def test_a_block_need_not_wait_for_a_signal_of_its_own() -> None:
    assert critical_us([(0, Arrival(0), Await(0, 1))], [2.0], LINKS) == 2 + ARRIVE + WAIT


@given(order=st.permutations(range(4)))
def test_the_numbers_of_blocks_do_not_matter(order: list[int]) -> None:
    blocks: list[tuple[Step, ...]] = [
        (0, Arrival(0), Await(1, 2), 1),
        (1, Arrival(1), Await(0, 1), 0, Arrival(2)),
        (Await(0, 1), 1, Arrival(1)),
        (Await(2, 1), 0),
    ]
    found = critical_us([blocks[n] for n in order], [3.0, 5.0], LINKS)
    assert found == critical_us(blocks, [3.0, 5.0], LINKS)


# ---- kernels -------------------------------------------------------------------------------------


def kernel(*phases: PhaseCost, steps: tuple[tuple[Step, ...], ...] = (), blocks: int) -> KernelCost:
    return KernelCost(phases, blocks, 256, 32, 0, footprint=0, steps=steps)


@pytest.mark.parametrize("blocks", [2, 33, 132, 264])
def test_all_that_wait_for_all_have_a_barrier_of_the_grid(blocks: int) -> None:
    own = PhaseCost(Path(rounds=3, ops=200), ops=1 << 20)
    barrier = kernel(replace(own, grid_barriers=1), own, blocks=blocks)
    steps = ((0, Arrival(0), Await(0, blocks), 1),) * blocks
    counters = kernel(own, own, steps=steps, blocks=blocks)
    assert cost_us(counters, H200) == pytest.approx(cost_us(barrier, H200))


def test_roles_side_by_side_take_as_long_as_the_longer_one() -> None:
    long, short = (PhaseCost(Path(chain=n), blocks=66) for n in (40_000, 10_000))
    steps = ((0,),) * 66 + ((1,),) * 66
    both, alone = kernel(long, short, steps=steps, blocks=132), kernel(long, blocks=66)
    extra = H200.prices.block_us * 66 / H200.sm_count
    assert cost_us(both, H200) == pytest.approx(cost_us(alone, H200) + extra)


def test_roles_share_the_memory() -> None:
    size = 1 << 28
    each = PhaseCost(Path(rounds=1), outside=size, moved=size, blocks=66)
    steps = ((0,),) * 66 + ((1,),) * 66
    one = replace(kernel(each, each, steps=steps, blocks=132), footprint=2 * size)
    assert cost_us(one, H200) > 2 * size / H200.dram_bytes_per_s * 1e6


def test_a_phase_of_some_blocks_has_their_multiprocessors_alone() -> None:
    few, all_ = (
        kernel(PhaseCost(Path(), ops=1 << 30, blocks=n), steps=((0,),) * n, blocks=132)
        for n in (33, 132)
    )
    ratio = (cost_us(few, H200) - 2) / (cost_us(all_, H200) - 2)
    assert ratio == pytest.approx(4, rel=0.1)


# ---- the model against measured kernels ----------------------------------------------------------

MEASURED = pathlib.Path(__file__).parents[2] / "benchmarks/results/h200-2026-11-28-counters.json"


def measured() -> dict[str, float]:
    """Microseconds of hand-written kernels without phases (`benchmarks/counters.py`)."""
    return {row["name"]: row["us"] for row in json.loads(MEASURED.read_text())["rows"]}


def modelled(blocks: Sequence[Sequence[Step]], grid: int = 132) -> float:
    return critical_us(blocks, [], links(H200, grid))


def rounds(count: int, *steps: Callable[[int], Step]) -> tuple[Step, ...]:
    return tuple(step(n) for n in range(1, count + 1) for step in steps)


def test_blocks_that_wait_by_turns_take_what_was_measured() -> None:
    first = rounds(100, lambda n: Arrival(0), lambda n: Await(1, n))
    second = rounds(100, lambda n: Await(0, n), lambda n: Arrival(1))
    us = modelled([first, second]) / 200
    assert us == pytest.approx(measured()["1 to 1, from block 0 to each other"], rel=0.02)


@pytest.mark.parametrize("grid", [8, 132])
def test_a_chain_and_a_wavefront_take_what_was_measured(grid: int) -> None:
    def block(number: int, again: bool) -> tuple[Step, ...]:
        before = number - 1 if number else grid - 1
        late = 0 if number else 1  # the first one waits for the last one of the round before
        waits: list[Callable[[int], Step]] = [lambda n: Await(before, n - late)]
        return rounds(20, *(waits if number or again else []), lambda n: Arrival(number))

    chain = modelled([block(n, again=True) for n in range(grid)], grid) / grid / 20
    assert chain == pytest.approx(measured()[f"chain of {grid} blocks, a block"], rel=0.15)
    step = modelled([block(n, again=False) for n in range(grid)], grid) / (grid + 19)
    assert step == pytest.approx(measured()[f"wavefront of {grid} blocks, a step"], rel=0.15)


def test_one_that_waits_for_many_takes_no_less_than_was_measured() -> None:
    """Barriers of the grid are priced by what lies around them in whole kernels, too."""
    centre = rounds(10, lambda n: Arrival(0), lambda n: Await(1, 131 * n))
    others = [rounds(10, lambda n: Await(0, n), lambda n: Arrival(1))] * 131
    us = modelled([centre, *others]) / 10
    assert 1 < us / measured()["1 to 131 and all back"] < 1.4
