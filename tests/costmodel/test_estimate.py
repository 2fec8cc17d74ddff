"""Times: the curve, occupancy, and that more work never takes less time."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.costmodel.bandwidth import latency_us, memory_us
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.estimate import barrier_us, boundary_us, kernel_us
from fusionstitch.costmodel.occupancy import blocks_per_sm
from fusionstitch.costmodel.work import Work
from tests.costmodel.works import AMOUNTS, works

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


@pytest.mark.parametrize(("barriers", "blocks"), [(0, 32), (2, 32), (3, 21), (8, 8), (16, 4)])
def test_blocks_share_the_barriers_of_a_multiprocessor(barriers: int, blocks: int) -> None:
    """As cudaOccupancyMaxActiveBlocksPerMultiprocessor said on an H200."""
    assert blocks_per_sm(H200, 64, 10, 0, barriers) == blocks


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


@given(works(), st.sampled_from(AMOUNTS), st.integers(1, 10**9))
def test_more_work_never_takes_less_time(work: Work, field: str, more: int) -> None:
    grown = dataclasses.replace(work, **{field: getattr(work, field) + more})
    assert kernel_us(grown, H200) >= kernel_us(work, H200)


@given(works(), st.integers(1, 1000))
def test_more_blocks_never_take_more_time(work: Work, more: int) -> None:
    wider = dataclasses.replace(work, blocks=work.blocks + more)
    assert kernel_us(wider, H200) <= kernel_us(work, H200)
