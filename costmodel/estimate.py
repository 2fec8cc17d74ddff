"""How long a kernel of XLA's takes, its work against the rates of a device; and grid barriers."""

from __future__ import annotations

import math

from fusionstitch.costmodel.bandwidth import latency_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import Work

#: Bytes per thread that one round trip brings: four loads in flight.
FIRST_BYTES = 64
#: Threads per multiprocessor that keep its arithmetic busy.
BUSY_THREADS = 512
#: The least that the work between two grid barriers takes, reading what was written before the
#: first: a phase of one dependent load and store on an H200, its barrier included, takes 1.54 us at
#: 132 blocks, 1.70 at 264.
PHASE_LATENCY_US = 0.5
#: A reduction or a dot that waits for another one inside a kernel: its last loads, the
#: exchange between threads, and the barriers around it. A softmax cross-entropy with its gradient
#: on an H200, six of them in one block, took 2.2 us more than a kernel without: 0.37 us each. The
#: value was set below that by hand; no table of measurements gives it.
STAGE_US = 0.2
#: Library GEMMs, from here on, are priced against the 75 dots of costmodel/gemms/h200.json, as XLA
#: runs them on an H200 with warm caches: the mean of |log(modelled / measured)| is 0.21, and a
#: step of one of these constants alone lowers it by no more than 0.02 (tests/costmodel).
#: Share of its unit's rate that a library GEMM reaches when it fills the device.
LIBRARY_DOT_SHARE = 0.6
#: The smallest library GEMM, launch included, and what each contracted element adds.
LIBRARY_GEMM_US = 1.2
LIBRARY_STEP_US = 0.008
#: Side of the square tile that one block of a library GEMM computes.
LIBRARY_TILE = 64
#: Blocks that a library GEMM splits a long contraction into at most, contracted elements below
#: which that does not pay, and the share of the multiprocessors with a tile from which it does not.
#: The parts are added up by a kernel of their own.
LIBRARY_SPLIT = 8
LIBRARY_SPLIT_K = 128
LIBRARY_SPLIT_SHARE = 1 / 8
#: A split contraction whose length is no multiple of this is padded first, a kernel an operand.
LIBRARY_PAD = 64


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
    return barrier + PHASE_LATENCY_US if barrier else 0.0


def compute_us(work: Work, device: Device, share: float = 1.0, dots: bool = True) -> float:
    """The busiest arithmetic unit, at `share` of its rate; without what `dots` add to the FMA
    units if told so."""
    slowest = max(
        (work.flops + work.dot_flops * dots) / device.fp32_flops,
        work.tensor_flops / LIBRARY_DOT_SHARE / device.tensor_bf16_flops,
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
    first = launched * FIRST_BYTES / max(1, work.bytes + work.l2_bytes)
    late = moved * max(0.0, 1 - first) / bandwidth
    # a few threads with a tile of a dot each keep a multiprocessor busy
    others = compute_us(work, device, min(sms, per_sm / BUSY_THREADS), dots=False)
    busy = max(moved, late, compute_us(work, device, sms), others)
    return device.launch_us + latency_us(device) + busy


def library_gemm_us(
    work: Work,
    device: Device,
    flops: int,
    result: tuple[int, int, int],
    k: int,
    unit: float,
    joined: bool = False,
) -> float:
    """Microseconds of a library GEMM of `flops` with `result` (batch, m, n) and contraction `k`,
    launch included, on a unit of `unit` FLOP/s; `work` holds its traffic. `joined`: another kernel
    adds up the parts of a split contraction. Without products only zeros are written."""
    if not flops:
        return kernel_us(work, device)
    batch, m, n = result
    tiles = batch * math.ceil(m / LIBRARY_TILE) * math.ceil(n / LIBRARY_TILE)
    few = tiles <= device.sm_count * LIBRARY_SPLIT_SHARE
    parts = min(LIBRARY_SPLIT, max(1, k // LIBRARY_SPLIT_K)) if few else 1
    share = min(1.0, tiles * parts / device.sm_count)
    compute = flops / (unit * LIBRARY_DOT_SHARE * share) * 1e6
    busy = latency_us(device) + max(moved_us(work, device), compute)
    us = max(LIBRARY_GEMM_US + k / parts * LIBRARY_STEP_US, device.launch_us + busy)
    if few and k >= LIBRARY_SPLIT_K:
        parted = Work(l2_bytes=2 * parts * batch * m * n * 4, blocks=device.sm_count)
        us += moved_us(parted, device) if joined else kernel_us(parted, device)
        us += 2 * kernel_us(Work(), device) if k % LIBRARY_PAD else 0.0
    return us
