"""How long a kernel of XLA's takes, its work against the rates of a device; and grid barriers."""

from __future__ import annotations

import math
from dataclasses import replace

from fusionstitch.costmodel.bandwidth import latency_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import Work


def barrier_us(device: Device, blocks: int) -> float:
    """One grid barrier of `blocks` blocks.

    Linear in the blocks. A single block needs none.
    """
    if blocks == 1:
        return 0.0
    more = (blocks or device.sm_count) / device.sm_count - 1
    return device.grid_barrier_us + more * device.barrier_block_us


def boundary_us(device: Device, blocks: int) -> float:
    """From one phase to the next: the barrier, and the latency of what crosses it."""
    barrier = barrier_us(device, blocks)
    return barrier + device.phase_latency_us if barrier else 0.0


def compute_us(work: Work, device: Device, share: float = 1.0, dots: bool = True) -> float:
    """The busiest arithmetic unit, at `share` of its rate; if not `dots`, without what dots add to
    the FMA units."""
    slowest = max(
        (work.flops + work.dot_flops * dots) / device.fp32_flops,
        work.tensor_flops / device.library.share / device.tensor_bf16_flops,
        work.flops64 / device.fp64_flops,
        work.special / device.special_per_s,
        work.int_ops / device.int32_ops,
    )
    return slowest * 1e6 / share


def moved_us(work: Work, device: Device) -> float:
    """Traffic at full rates, linear in the bytes: what two plans for the same ops both read from
    DRAM must cost both the same, however many kernels they spread it over (unlike M(V), which
    sees a single copy's array become resident in L2)."""
    return (work.bytes / device.dram_bytes_per_s + work.l2_bytes / device.l2_bytes_per_s) * 1e6


def kernel_us(work: Work, device: Device, threads: int = 256) -> float:
    """Microseconds of one kernel of `threads` per block in a CUDA graph, launch included.

    Traffic and arithmetic overlap, so the slower of them counts. A grid that does not fill the
    device gets a share of it, beyond what its threads' first loads bring within the latency.
    `work.blocks` 0 stands for a grid that fills the device.
    """
    resident = device.max_threads_per_sm
    launched = (work.blocks or device.sm_count * resident) * threads
    per_sm = min(launched / device.sm_count, resident)
    sms = min(1.0, work.blocks / device.sm_count) if work.blocks else 1.0
    bandwidth = 1 - math.exp(-per_sm / device.bandwidth_threads) if work.blocks else 1.0
    moved = moved_us(work, device)
    first = launched * device.round_trip_bytes / max(1, work.bytes + work.l2_bytes)
    late = moved * max(0.0, 1 - first) / bandwidth
    # a few threads with a tile of a dot each keep a multiprocessor busy
    others = compute_us(work, device, min(sms, per_sm / device.busy_threads), dots=False)
    busy = max(moved, late, compute_us(work, device, sms), others)
    return device.launch_us + latency_us(device) + busy


#: Bytes that rows of a narrow product's operands begin at multiples of, or XLA pads them.
ALIGNED = 16


def library_gemm_us(
    work: Work,
    device: Device,
    flops: int,
    result: tuple[int, int, int],
    k: int,
    unit: float,
    bytes_each: int = 4,
    joined: bool = False,
) -> float:
    """Microseconds of a library GEMM of `flops` with `result` (batch, m, n) and contraction `k`,
    launch included, on a unit of `unit` FLOP/s; `work` holds its traffic. Elements of the operands
    have `bytes_each`. `joined`: another kernel adds up the parts of a split contraction. Without
    products only zeros are written."""
    if not flops:
        return kernel_us(work, device)
    (batch, m, n), library = result, device.library
    narrow = bytes_each <= 2
    if bytes_each == 4 and (m + n) * k < library.loop_elements:
        # no library's: each multiply-add reads its operands
        return kernel_us(replace(work, l2_bytes=2 * bytes_each * batch * m * n * k), device)
    tiles = batch * math.ceil(m / library.tile) * math.ceil(n / library.tile)
    at_once = library.resident * device.sm_count
    most = library.split_share if k < library.long_k else 1.0
    few = tiles <= device.sm_count * most
    parts = max(1, min(k // library.split_k, int(at_once / tiles))) if few else 1
    share = min(1.0, tiles * parts / device.sm_count)
    compute = flops / (unit * library.share * share) * 1e6
    busy = latency_us(device) + max(moved_us(work, device), compute)
    padded = batch > 1 and narrow and k * bytes_each % ALIGNED > 0
    tile_us = library.unaligned_us if padded else library.tile_us
    alone = k / parts * library.step_us
    # a large tile is as long under way as its products take
    waves = (alone + tile_us) * tiles * parts / at_once if min(m, n) < library.tile else 0.0
    us = max(library.least_us + alone, device.launch_us + max(busy, waves))
    if few and k >= library.split_k:
        parted = Work(l2_bytes=2 * parts * batch * m * n * 4, blocks=device.sm_count)
        us += moved_us(parted, device) if joined else kernel_us(parted, device)
        if k % library.pad:
            read = work.bytes_read
            copied = Work(bytes_read=read, bytes_written=read, blocks=device.sm_count)
            us += kernel_us(copied, device) + kernel_us(Work(), device)
    return us
