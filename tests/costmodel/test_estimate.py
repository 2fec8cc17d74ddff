"""Times: the curve, occupancy, and that more work never takes less time."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.costmodel.bandwidth import latency_us, memory_us
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.estimate import (
    barrier_us,
    best_case_us,
    boundary_us,
    facts_us,
    kernel_us,
)
from fusionstitch.costmodel.facts import KernelFacts, Walk
from fusionstitch.costmodel.occupancy import blocks_per_sm
from fusionstitch.costmodel.work import Work

H200 = device("h200")
MIB = 2**20


def test_the_curve_goes_through_its_points() -> None:
    for moved, us in H200.bandwidth_curve:
        assert memory_us(H200, moved) == us


def test_beyond_the_curve() -> None:
    assert memory_us(H200, 0) == memory_us(H200, 1) == 1.27
    last, us = H200.bandwidth_curve[-1]
    assert memory_us(H200, last + 4_250_000) == pytest.approx(us + 1)
    assert memory_us(H200, 5 * MIB) == pytest.approx((1.54 + 2.45) / 2)
    assert latency_us(H200) == pytest.approx(0.27)


@given(st.integers(0, 2**34), st.integers(0, 2**34))
def test_the_curve_is_monotone(a: int, b: int) -> None:
    low, high = sorted((a, b))
    for name in ("h200", "a100", "v100", "l4"):
        assert memory_us(device(name), low) <= memory_us(device(name), high)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "expected"),
    [
        (1024, 32, 0, 2),  # threads
        (256, 32, 0, 8),  # threads
        (256, 255, 0, 1),  # registers
        (256, 64, 0, 4),  # registers
        (32, 16, 0, 32),  # blocks
        (128, 32, 48 * 1024, 4),  # shared memory
        (128, 32, 232_448, 1),
        (128, 32, 232_449, 0),
        (2048, 32, 0, 0),
        (128, 256, 0, 0),
    ],
)
def test_blocks_per_multiprocessor(
    threads: int, registers: int, shared: int, expected: int
) -> None:
    assert blocks_per_sm(H200, threads, registers, shared) == expected


def test_figure_1_sharing_doubles_its_blocks() -> None:
    shared, unshared = 36_096, 71_440
    assert blocks_per_sm(H200, 128, 32, shared) == 6
    assert blocks_per_sm(H200, 128, 32, unshared) == 3
    assert blocks_per_sm(device("v100"), 128, 32, shared) == 2
    assert blocks_per_sm(device("v100"), 128, 32, unshared) == 1


def test_a_full_copy_runs_at_the_rate_of_dram() -> None:
    work = Work(bytes_read=256 * MIB, bytes_written=256 * MIB)
    assert kernel_us(work, H200) == pytest.approx(1.27 + 512 * MIB / 4.25e6)


@pytest.mark.parametrize(
    ("blocks", "threads", "measured"),
    [(16, 1024, 521.0), (66, 512, 285.0), (132, 256, 283.5), (132, 512, 178.5), (528, 256, 143.1)],
)
def test_copies_by_few_blocks(blocks: int, threads: int, measured: float) -> None:
    """The times of a 512 MB copy with one 16-byte load per thread in flight, on an H200."""
    work = Work(bytes_read=2**28, bytes_written=2**28, blocks=blocks)
    assert kernel_us(work, H200, threads) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("blocks", "measured"), [(16, 1.27), (66, 1.36), (132, 1.54), (264, 1.70), (528, 2.33)]
)
def test_phases(blocks: int, measured: float) -> None:
    """A grid barrier and one dependent load and store, on an H200."""
    assert boundary_us(H200, blocks) == pytest.approx(measured, abs=0.11)


def test_one_block_needs_no_grid_barrier() -> None:
    assert barrier_us(H200, 1) == boundary_us(H200, 1) == 0.0
    assert barrier_us(H200, 132) == 1.0


def test_l2_traffic_is_cheaper() -> None:
    assert kernel_us(Work(l2_bytes=MIB), H200) < kernel_us(Work(bytes_read=MIB), H200)


def test_phase_by_phase() -> None:
    phase = Work(bytes_read=64 * MIB, blocks=528)
    one = facts_us(KernelFacts(phase), H200)
    two = facts_us(KernelFacts(phase + phase, phases=(phase, phase)), H200)
    launch = H200.launch_us + latency_us(H200)
    assert two == pytest.approx(launch + 2 * (one - launch) + 1.9)


BLOCKS = 8192
ROWS = Work(bytes_read=128 * MIB, bytes_written=128 * MIB, blocks=BLOCKS)


def rows_us(threads: int = 256, registers: int = 32, **walk: object) -> float:
    """A kernel of 8192 rows of 4096 floats, one per block, with two reductions."""
    walks = ((Walk(BLOCKS, **{"joins": 2, "warps": threads // 32, **walk}),),)  # type: ignore[arg-type]
    facts = KernelFacts(ROWS, threads=threads, registers=registers, phases=(ROWS,), walks=walks)
    return facts_us(facts, H200)


@pytest.mark.parametrize(
    ("measured", "threads", "walk"),
    [
        (67.2, 256, {}),
        (93.7, 1024, {}),
        # 64 elements a thread: registers keep no row, and two sweeps more read it from DRAM
        (132.5, 64, {"again": 256 * MIB, "rows_bytes": 4096 * 4}),
        (416.3, 256, {"again": 256 * MIB, "busy": 4 / 256, "rounds": 192, "flight": 4, "warps": 1}),
    ],
)
def test_softmax_by_different_blocks(measured: float, threads: int, walk: dict) -> None:
    """Measured on an H200: benchmarks/results/h200-2026-11-21-schedules.json."""
    assert rows_us(threads, **walk) == pytest.approx(measured, rel=0.25)


def test_what_a_walk_adds() -> None:
    assert rows_us() > facts_us(KernelFacts(ROWS, registers=32, phases=(ROWS,)), H200)
    # few threads at work, rows one after the other, sweeps that wait, registers that spill
    assert rows_us() < rows_us(busy=0.1)
    assert rows_us() < rows_us(turns=20)
    assert rows_us() < rows_us(rounds=40)
    assert rows_us() < rows_us(spilled=256 * MIB)
    # rows that an SM's own cache holds are read again for nothing, others from DRAM
    assert rows_us(again=256 * MIB, rows_bytes=1024) == rows_us()
    assert rows_us(again=256 * MIB, rows_bytes=64 * 1024) > 1.5 * rows_us()


def test_one_turn_of_one_wave_is_what_the_caller_counts() -> None:
    few = dataclasses.replace(ROWS, blocks=132)
    without = KernelFacts(few, phases=(few,))
    walked = dataclasses.replace(without, walks=((Walk(132, joins=2, warps=8),),))
    assert facts_us(walked, H200) == pytest.approx(facts_us(without, H200))


def test_warm_inputs_and_outputs_move_to_l2() -> None:
    phases = (Work(bytes_read=10, blocks=1), Work(bytes_read=10, bytes_written=8, blocks=1))
    facts = KernelFacts(phases[0] + phases[1], phases=phases)
    assert facts.warmed(14, 5).phases == (
        Work(l2_bytes=10, blocks=1),
        Work(bytes_read=6, bytes_written=3, l2_bytes=9, blocks=1),
    )
    single = KernelFacts(Work(bytes_read=10)).warmed(4, 4)
    assert single.work == Work(bytes_read=6, l2_bytes=4)


def test_what_slices_leave_out_is_not_moved() -> None:
    phase = Work(bytes_read=100, blocks=1)
    alone = (Work(bytes_read=10), Work(bytes_read=90))
    found = KernelFacts(phase, phases=(phase,), alone=(alone,)).warmed(4, 0, 80)
    assert found.phases == (Work(bytes_read=16, l2_bytes=4, blocks=1),)
    assert found.alone == ((Work(bytes_read=10), Work(bytes_read=10)),)


_amount = st.integers(0, 10**10)
_works = st.builds(
    Work,
    bytes_read=_amount,
    bytes_written=_amount,
    l2_bytes=_amount,
    flops=_amount,
    flops64=_amount,
    special=_amount,
    int_ops=_amount,
    dot_flops=_amount,
    tensor_flops=_amount,
    phases=st.integers(1, 5),
    blocks=st.integers(1, 10_000),
)
_fields = st.sampled_from([f.name for f in dataclasses.fields(Work) if f.name != "blocks"])


@given(_works, _fields, st.integers(1, 10**9))
def test_more_work_never_takes_less_time(work: Work, field: str, more: int) -> None:
    grown = dataclasses.replace(work, **{field: getattr(work, field) + more})
    assert kernel_us(grown, H200) >= kernel_us(work, H200)


@given(_works, st.integers(1, 1000))
def test_more_blocks_never_take_more_time_in_one_phase(work: Work, more: int) -> None:
    work = dataclasses.replace(work, phases=1)
    wider = dataclasses.replace(work, blocks=work.blocks + more)
    assert kernel_us(wider, H200) <= kernel_us(work, H200)


@given(_works)
def test_the_best_case_is_a_lower_bound(work: Work) -> None:
    assert best_case_us(work, H200) <= kernel_us(work, H200)


def test_loops_behind_each_other_wait_for_each_other() -> None:
    def us(*walks: Walk) -> float:
        few = Work(bytes_read=1 << 20, blocks=132)
        return facts_us(KernelFacts(few, threads=256, phases=(few,), walks=(walks,)), H200)

    loop = Walk(132, turns=64, carries=True, warps=8)
    assert us(loop, loop) > us(loop) > us(dataclasses.replace(loop, turns=1))
    # side by side in the same blocks they take no longer than one of them
    half = dataclasses.replace(loop, tiles=66)
    assert us(half, half) == pytest.approx(us(loop))
    # unless the same blocks do both, one behind the other, however many others there are
    few = dataclasses.replace(loop, tiles=1)
    behind = dataclasses.replace(few, follows=True)
    assert us(few, few) == pytest.approx(us(few))
    assert us(few, behind) > 1.5 * us(few, few)
    # what a tile sums is joined behind its last row
    several = dataclasses.replace(loop, tiles=1320, turns=1)
    assert us(several) > us(dataclasses.replace(several, carries=False)) + 5
