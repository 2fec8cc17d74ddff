"""How long a kernel takes, by the cost estimate of what it does.

A phase has a way that its slowest thread goes, amounts that multiprocessors issue, and bytes that
move. They overlap in part. A grid that does not fill the device has a part of it only, and one of
more blocks than fit at once goes its way several times. Where blocks wait for each other by
counters, phases are side by side (`critical_path.py`), and units of the device are shared by all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fusionstitch.costmodel.bandwidth import latency_us
from fusionstitch.costmodel.critical_path import Links, critical_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.estimate import barrier_us
from fusionstitch.costmodel.kernel_cost import ISSUED, PRICED, KernelCost, Path, PhaseCost
from fusionstitch.costmodel.occupancy import blocks_per_sm
from fusionstitch.costmodel.prices import Prices
from fusionstitch.costmodel.work import Work

#: FLOPs of a thread in an instruction of tensor cores on 16-bit numbers; others take as long.
PRODUCT_FLOPS = 2 * 16 * 8 * 16 // 32


def cost_us(
    cost: KernelCost,
    device: Device,
    missed: float | None = None,
    crowded: bool = False,
) -> float:
    """Microseconds of a kernel in a CUDA graph, launch included. `missed` is the share of its
    inputs and outputs that cross DRAM; None: as where it runs again and again. How many threads go
    the longest way is not known: `crowded` if all of a block do, which then issue it together."""
    if missed is None:
        missed = missed_again(cost, device)
    prices, blocks = device.prices, cost.blocks
    started = device.launch_us + latency_us(device) + prices.start_us
    started += prices.block_us * blocks / device.sm_count
    phases = tuple(phases_us(cost, device, missed, crowded))
    if cost.steps:
        return started + _side_by_side_us(cost, phases, device, missed)
    between = _between_us(device, blocks)
    return started + sum(phases) + between * sum(phase.grid_barriers for phase in cost.phases)


def _between_us(device: Device, blocks: int) -> float:
    """What a barrier of so many blocks takes, and what comes with it."""
    return barrier_us(device, blocks) + device.prices.phase_us if blocks > 1 else 0.0


def links(device: Device, blocks: int) -> Links:
    """What blocks of a grid of so many take to wait for each other. The more arrive at a counter,
    the longer it takes, up to where all wait for all, which is a barrier of the grid."""
    more = (_between_us(device, blocks) - device.signal_us) / max(1, blocks - 1)

    def signal_us(arriving: int) -> float:
        return device.signal_us + more * (arriving - 1) - device.arrive_us

    return Links(device.arrive_us, device.wait_us, signal_us)


def _side_by_side_us(
    cost: KernelCost, phases: Sequence[float], device: Device, missed: float
) -> float:
    """Phases of blocks that wait for each other: the longest path through them, or what a unit of
    the device takes for all of them."""
    each = [us / max(1, phase.iterations) for us, phase in zip(phases, cost.phases, strict=True)]
    busy = [0.0, 0.0, 0.0]
    for phase in cost.phases:
        _, *rates = parts_us(phase, cost, device, missed)
        busy = [sum_ + max(1, phase.iterations) * us for sum_, us in zip(busy, rates, strict=True)]
    return max(critical_us(cost.steps, each, links(device, cost.blocks)), *busy)


def least_us(work: Work, device: Device) -> float:
    """A lower bound of `cost_us` for any kernel that does at least `work`. Products may be
    tensor cores', and of elementwise operations half may be spared by rewriting."""
    prices = device.prices
    slots_per_us = device.lanes * device.sm_count * device.cycles_per_us
    elementwise = (work.flops + work.int_ops) / 2
    busy = max(
        (work.bytes + work.l2_bytes) / (device.l2_bytes_per_s * prices.l2_share) * 1e6,
        work.bytes / device.dram_bytes_per_s * 1e6,
        prices.issue_op * elementwise / slots_per_us,
        prices.issue_special * work.special / slots_per_us,
        work.flops64 / device.fp64_flops * 1e6,
        work.tensor_flops / device.tensor_bf16_flops / device.library.share * 1e6,
    )
    return device.launch_us + latency_us(device) + prices.start_us + busy


def proven(cost: KernelCost) -> bool:
    """Whether enough kernels of its kind were met: of the 500 no more than 12 use tensor cores."""
    return not any(phase.path.products for phase in cost.phases)


def path_cycles(path: Path, prices: Prices) -> float:
    """What a thread takes for its way if it never waits for others."""
    issued, waited = 0.0, 0.0
    for step in PRICED:
        cycles = getattr(prices, step) * getattr(path, step)
        if step in ISSUED:
            issued += cycles
        elif step != "chain":
            waited += cycles
    return waited + float((issued**4 + (prices.chain * path.chain) ** 4) ** 0.25)


def missed_again(cost: KernelCost, device: Device) -> float:
    """The share of what a kernel touches that is no longer in L2 when it runs again."""
    prices = device.prices
    beyond = cost.footprint / device.l2_bytes - prices.resident_share
    return min(1.0, max(0.0, beyond / prices.missing_share))


def phases_us(
    cost: KernelCost,
    device: Device,
    missed: float,
    crowded: bool = False,
) -> Iterator[float]:
    """Microseconds of each phase in all its iterations, without the barriers between them."""
    prices = device.prices
    for phase in cost.phases:
        own = replace(cost, blocks=phase.blocks) if phase.blocks else cost
        way, *rates = parts_us(phase, own, device, missed)
        if crowded:
            slots = cost.threads * _slots(phase.path, prices)
            way = max(way, slots / device.lanes / device.cycles_per_us)
        power = prices.overlap * _independent(phase, own, device) ** prices.independent
        yield phase.iterations * float((way**power + max(rates) ** power) ** (1 / power))


def _resident(cost: KernelCost, device: Device) -> int:
    """Blocks on a multiprocessor at once."""
    fit = blocks_per_sm(device, cost.threads, cost.registers, cost.shared_bytes)
    return max(1, min(fit, math.ceil(cost.blocks / device.sm_count)))


def _independent(phase: PhaseCost, cost: KernelCost, device: Device) -> float:
    """How many parts of what is on a multiprocessor go their ways without the others: blocks whose
    threads wait for each other, else warps."""
    blocks = _resident(cost, device)
    waits = phase.path.barriers + phase.path.meetings
    return blocks if waits else blocks * cost.threads / device.warp_size


def _again_bytes(
    phase: PhaseCost, cost: KernelCost, device: Device, resident: int
) -> tuple[float, float]:
    """Of what blocks visit again, the bytes that come from L2 and those that come from DRAM. None
    do where what they visit takes half of the cache's capacity, all do from one and a half of it
    on."""
    prices, sms = device.prices, min(device.sm_count, cost.blocks)
    near = prices.kept_share * max(0, device.shared_per_sm - resident * cost.shared_bytes)
    spilled = cost.spilled_bytes * cost.threads * cost.blocks
    l2 = dram = 0.0
    found: list[tuple[int, float, bool]]
    found = [(one.block, one.bytes, one.common) for one in phase.again]
    if cost.spilled:
        bytes_ = 4 * phase.kept * cost.spilled
        found.append((cost.spilled_bytes * cost.threads, bytes_, False))
    for block, again, common in found:
        bytes_near = block * (1 if common else resident)
        l2 += again * min(1.0, max(0.0, bytes_near / max(near, 1) - 0.5))
        visited = min(bytes_near * (1 if common else sms), cost.footprint + spilled)
        beyond = visited / device.l2_bytes - prices.resident_share
        dram += again * min(1.0, max(0.0, beyond / prices.missing_share))
    return l2, dram


def _slots(does: Path | PhaseCost, prices: Prices) -> float:
    """Issue slots of lanes that a thread, or all of them, take."""
    return (
        prices.issue_access * does.accesses
        + prices.issue_near * does.near
        + prices.issue_op * does.ops
        + prices.issue_record * does.records
        + prices.issue_special * does.special
        + prices.issue_division * does.divisions
        + prices.issue_shuffle * does.shuffles
    )


def parts_us(
    phase: PhaseCost, cost: KernelCost, device: Device, missed: float
) -> tuple[float, float, float, float]:
    """What an iteration of a phase takes if nothing else did: its way, issuing, L2, DRAM."""
    prices, resident = device.prices, _resident(cost, device)
    each = cost.blocks / device.sm_count  # blocks of a multiprocessor
    cycles = path_cycles(phase.path, prices) + prices.spilled * cost.spilled * phase.path.kept
    way = cycles / device.cycles_per_us * max(1.0, each / resident)
    uneven = math.ceil(each) / each
    slots = (
        _slots(phase, prices)
        + prices.issue_sector * phase.sectors
        + prices.issue_spilled * cost.spilled * phase.kept
    )
    issued = slots / device.lanes / device.sm_count / device.cycles_per_us
    issued += phase.flops64 / device.fp64_flops * 1e6
    products = phase.products * PRODUCT_FLOPS
    issued += products / device.tensor_bf16_flops / device.library.share * 1e6
    from_l2, from_dram = _again_bytes(phase, cost, device, resident)
    near = (phase.moved + from_l2) / (device.l2_bytes_per_s * prices.l2_share) * 1e6
    near *= max(1.0, 1 / each) ** prices.few_blocks
    lines = prices.line * phase.lines + prices.line_stored * phase.lines_stored
    sms = min(device.sm_count, cost.blocks)
    near = max(near, lines / sms / device.cycles_per_us)
    moved = phase.outside * missed + from_dram
    far = moved / device.dram_bytes_per_s * 1e6
    iterations = max(1, phase.iterations)
    return way, issued * uneven / iterations, near / iterations, far / iterations
