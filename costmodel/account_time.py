"""How long a kernel takes, by the account of what it does.

A phase has a way that its slowest thread goes, amounts that multiprocessors issue, and bytes that
move. They overlap in part. A grid that does not fill the device has a part of it only, and one of
more blocks than fit at once goes its way several times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.costmodel.account import ISSUED, STEPS, Account, Path, PhaseAccount
from fusionstitch.costmodel.bandwidth import latency_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.estimate import LIBRARY_DOT_SHARE, barrier_us
from fusionstitch.costmodel.occupancy import blocks_per_sm

#: Lanes of a multiprocessor that start an instruction in a cycle, and FLOPs of one in it.
LANES, LANE_FLOPS = 128, 2


@dataclass(frozen=True)
class Prices:
    """What `benchmarks/fit_model.py` found with the times of 814 kernels on an H100, 246 of them
    loops.

    Names of `Path`: cycles of the way of a thread. `issue_...`: slots of a lane for each of what
    all threads do. Shares are of what the profile of a device says. From `resident_share` of L2 on,
    what a kernel touches begins to be missing when it runs again, all of it `missing_share` later.
    """

    rounds: float = 12.2
    far: float = 214.0
    accesses: float = 12.6
    near: float = 3.61
    ops: float = 0.58
    records: float = 15.8
    special: float = 12.8
    divisions: float = 7.16
    shuffles: float = 14.8
    barriers: float = 69.2
    products: float = 84.5
    chain: float = 0.963
    issue_access: float = 5.99
    issue_sector: float = 16.4
    issue_near: float = 4.44
    issue_op: float = 0.945
    issue_record: float = 32.3
    issue_special: float = 0.183
    issue_division: float = 0.183
    issue_shuffle: float = 3.04
    l2_share: float = 1.16
    dram_share: float = 0.927
    few_blocks: float = 0.719
    resident_share: float = 0.353
    missing_share: float = 0.323
    start_us: float = 0.176
    block_us: float = 0.00757
    phase_us: float = 0.275
    overlap: float = 1.86


PRICES = Prices()
#: Nine of ten of these kernels are met to this factor.
OFF = 2**0.6


def account_us(
    account: Account, device: Device, missed: float | None = None, prices: Prices = PRICES
) -> float:
    """Microseconds of a kernel in a CUDA graph, launch included. `missed` is the share of its
    inputs and outputs that cross DRAM; None: as where it runs again and again."""
    if missed is None:
        missed = missed_again(account, device, prices)
    blocks = account.blocks
    started = device.launch_us + latency_us(device) + prices.start_us
    started += prices.block_us * blocks / device.sm_count
    between = barrier_us(device, blocks) + prices.phase_us if blocks > 1 else 0.0
    return (
        started
        + sum(phases_us(account, device, missed, prices))
        + between * sum(phase.grid_barriers for phase in account.phases)
    )


def proven(account: Account) -> bool:
    """Whether enough kernels of its kind were met: of the 500 no more than 12 use tensor cores."""
    return not any(phase.path.products for phase in account.phases)


def path_cycles(path: Path, prices: Prices = PRICES) -> float:
    """What a thread takes for its way if it never waits for others."""
    issued, waited = 0.0, 0.0
    for step in STEPS:
        cycles = getattr(prices, step) * getattr(path, step)
        if step in ISSUED:
            issued += cycles
        elif step != "chain":
            waited += cycles
    return waited + float((issued**4 + (prices.chain * path.chain) ** 4) ** 0.25)


def missed_again(account: Account, device: Device, prices: Prices = PRICES) -> float:
    """The share of what a kernel touches that is no longer in L2 when it runs again."""
    beyond = account.footprint / device.l2_bytes - prices.resident_share
    return min(1.0, max(0.0, beyond / prices.missing_share))


def phases_us(
    account: Account, device: Device, missed: float, prices: Prices = PRICES
) -> Iterator[float]:
    """Microseconds of each phase in all its turns, without the barriers between them."""
    for phase in account.phases:
        way, *rates = parts_us(phase, account, device, missed, prices)
        power = prices.overlap
        yield phase.turns * float((way**power + max(rates) ** power) ** (1 / power))


def parts_us(
    phase: PhaseAccount, account: Account, device: Device, missed: float, prices: Prices
) -> tuple[float, float, float, float]:
    """What a turn of a phase takes if nothing else did: its way, issuing, L2, DRAM."""
    fit = max(1, blocks_per_sm(device, account.threads, account.registers, account.shared_bytes))
    each = account.blocks / device.sm_count  # blocks of a multiprocessor
    cycles_per_us = device.fp32_flops / device.sm_count / LANES / LANE_FLOPS / 1e6
    way = path_cycles(phase.path, prices) / cycles_per_us * max(1.0, each / fit)
    uneven = math.ceil(each) / each
    slots = (
        prices.issue_access * phase.accesses
        + prices.issue_sector * phase.sectors
        + prices.issue_near * phase.near
        + prices.issue_op * phase.ops
        + prices.issue_record * phase.records
        + prices.issue_special * phase.special
        + prices.issue_division * phase.divisions
        + prices.issue_shuffle * phase.shuffles
    )
    issued = slots / LANES / device.sm_count / cycles_per_us
    issued += phase.flops64 / device.fp64_flops * 1e6
    issued += phase.tensor_flops / device.tensor_bf16_flops / LIBRARY_DOT_SHARE * 1e6
    near = phase.moved / (device.l2_bytes_per_s * prices.l2_share) * 1e6
    near *= max(1.0, 1 / each) ** prices.few_blocks
    far = phase.outside * missed / (device.dram_bytes_per_s * prices.dram_share) * 1e6
    turns = max(1, phase.turns)
    return way, issued * uneven / turns, near / turns, far / turns
