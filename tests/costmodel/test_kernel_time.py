"""What the price of a kernel depends on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_cost import Again, KernelCost, Path, PhaseCost
from fusionstitch.costmodel.kernel_time import (
    cost_us,
    least_us,
    missed_again,
    path_cycles,
    proven,
)
from fusionstitch.costmodel.work import Work
from tests.costmodel.works import works
from tests.plan.costs import cost_of

H200 = device("h200")


def of(*phases: PhaseCost, blocks: int = 132, footprint: int = 0) -> KernelCost:
    return KernelCost(phases, blocks, 256, registers=32, shared_bytes=0, footprint=footprint)


def copy(size: int) -> PhaseCost:
    return PhaseCost(Path(rounds=1, far=1), outside=2 * size, moved=2 * size)


def test_what_stays_in_l2_does_not_cross_dram() -> None:
    assert missed_again(of(copy(1 << 20), footprint=1 << 21), H200) == 0
    assert missed_again(of(copy(1 << 28), footprint=1 << 29), H200) == 1


def test_a_large_copy_takes_what_dram_takes() -> None:
    size = 1 << 28
    us = cost_us(of(copy(size), blocks=4096, footprint=2 * size), H200)
    assert us == pytest.approx(2 * size / H200.dram_bytes_per_s * 1e6, rel=0.15)


def test_a_lone_thread_takes_as_long_as_its_way() -> None:
    iterations = [
        cost_us(of(PhaseCost(Path(rounds=n, far=n)), blocks=1), H200) for n in (0, 1000, 2000)
    ]
    assert iterations[1] - iterations[0] == pytest.approx(iterations[2] - iterations[1], rel=0.01)
    assert iterations[1] > iterations[0] + 10


def test_blocks_that_do_not_fit_at_once_go_one_after_the_other() -> None:
    phase = PhaseCost(Path(rounds=100, far=100))
    few, many = (cost_us(of(phase, blocks=132 * n), H200) for n in (8, 80))
    assert many > 5 * few


def test_a_grid_barrier_costs_what_the_profile_says_and_more() -> None:
    phase = PhaseCost(Path(rounds=1))
    first = replace(phase, grid_barriers=1)
    one, two = cost_us(of(phase), H200), cost_us(of(first, phase), H200)
    assert two - one > H200.grid_barrier_us
    lone = of(first, phase, blocks=1)
    assert cost_us(lone, H200) < two


def test_few_blocks_leave_the_device_idle() -> None:
    phase = PhaseCost(Path(), ops=1 << 28)
    full = cost_us(of(phase, blocks=132), H200)
    assert cost_us(of(phase, blocks=33), H200) > 3 * full
    assert cost_us(replace(of(phase), blocks=133), H200) > 1.5 * full


def test_too_few_kernels_on_tensor_cores_were_measured() -> None:
    assert proven(of(PhaseCost(Path(rounds=1))))
    assert not proven(of(PhaseCost(Path(rounds=1)), PhaseCost(Path(products=1))))


def test_rereads_come_from_where_they_were_kept() -> None:
    """Near, in L2, in DRAM: by what all blocks go through in between."""
    size = 1 << 28

    def us(block: int, common: bool = False) -> float:
        phase = replace(copy(size), again=(Again(block, 4 * size, common),))
        return cost_us(of(phase, blocks=4096, footprint=2 * size), H200)

    near, l2, dram = us(1 << 10), us(1 << 15), us(1 << 20)
    assert near == cost_us(of(copy(size), blocks=4096, footprint=2 * size), H200)
    assert near < 0.8 * l2 < 0.8 * 0.8 * dram
    assert us(1 << 15, common=True) == near


def test_a_block_whose_threads_all_go_the_longest_way_issues_it_for_each() -> None:
    path = Path(ops=10_000)
    lone, crowded = (cost_us(of(PhaseCost(path)), H200, crowded=crowd) for crowd in (0, 1))
    assert crowded > lone
    light = of(PhaseCost(Path(barriers=100)))
    assert cost_us(light, H200, crowded=True) == cost_us(light, H200)


def test_what_has_no_registers_costs() -> None:
    phase = PhaseCost(Path(ops=1000, kept=1000), ops=1 << 28, kept=1 << 28)
    free, some, all_ = (
        cost_us(replace(of(phase), spilled=share, spilled_bytes=int(400 * share)), H200)
        for share in (0.0, 0.3, 1.0)
    )
    assert free < some < all_


def test_blocks_of_a_cluster_wait_longer_than_threads_and_shorter_than_the_grid() -> None:
    threads, cluster = (
        path_cycles(Path(**{step: 1}), H200.prices) for step in ("barriers", "meetings")
    )
    assert threads < cluster < H200.grid_barrier_us * H200.cycles_per_us


def test_blocks_hide_what_others_wait_for() -> None:
    """The same ways and amounts, in one block on a multiprocessor and in four."""
    path = Path(rounds=8, far=8, barriers=4)
    phase = replace(copy(1 << 25), path=path)
    one = KernelCost((phase,), 132, 1024, registers=64, shared_bytes=0, footprint=1 << 26)
    four = replace(one, blocks=4 * 132, threads=256)
    assert cost_us(four, H200) < cost_us(one, H200)


@given(works("l2_bytes", "dot_flops", "tensor_flops"))
def test_no_kernel_takes_less_than_the_best_one(work: Work) -> None:
    assert least_us(work, H200) <= cost_us(cost_of(work), H200, missed=1.0)
