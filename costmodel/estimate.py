"""How long a kernel takes: its work against the rates of a device."""

from __future__ import annotations

import math

from costmodel.bandwidth import latency_us
from costmodel.devices import Device
from costmodel.facts import KernelFacts
from costmodel.work import Work

#: Threads per multiprocessor that hide the latency of arithmetic, and of memory with wide loads.
BUSY_THREADS = 512
#: One multiprocessor alone can draw this many times its fair share of bandwidth.
LONE_BANDWIDTH = 3.0
#: Share of the FMA rate that a simple shared-memory GEMM inside a stitched kernel reaches: an
#: assumption of the model, replaced by measured times in tuned results.
STITCHED_DOT_SHARE = 0.25
#: The same for a library kernel, of the unit it runs on.
LIBRARY_DOT_SHARE = 0.6
#: The smallest GEMM of a library, launch included: what is left per GEMM of a perceptron step
#: on an H200 (27 kernels in 45 us) when its other kernels take a launch and a round trip each.
LIBRARY_GEMM_US = 2.5
#: Side of the square tile that one block of a library GEMM computes.
LIBRARY_TILE = 64
#: Blocks that a library GEMM splits a long contraction into at most.
LIBRARY_SPLIT = 8
#: Contracted elements below which splitting does not pay.
LIBRARY_SPLIT_K = 256


def barrier_us(device: Device, blocks: int) -> float:
    """One grid barrier of `blocks` blocks.

    Linear in the blocks; on the H200 a barrier takes 0.98, 1.27 and 1.97 us at one, two and four
    blocks per multiprocessor. A single block needs none.
    """
    if blocks <= 1:
        return 0.0
    return device.grid_barrier_us * (0.7 + 0.3 * blocks / device.sm_count)


def _shares(device: Device, blocks: int, threads: int) -> tuple[float, float]:
    """(arithmetic, bandwidth): the shares of the device that a grid can use."""
    blocks = blocks or device.sm_count
    filled = min(1.0, blocks * threads / (device.sm_count * BUSY_THREADS))
    sms = min(1.0, blocks / device.sm_count)
    return min(filled, sms), min(filled, sms * LONE_BANDWIDTH, 1.0)


def compute_us(work: Work, device: Device, share: float = 1.0) -> float:
    """The busiest arithmetic unit. Dots share the FMA units with other arithmetic."""
    fma = (work.flops + work.dot_flops / STITCHED_DOT_SHARE) / device.fp32_flops
    tensor = work.tensor_flops / LIBRARY_DOT_SHARE / device.tensor_bf16_flops
    double = work.flops64 / device.fp64_flops
    slowest = max(
        fma + tensor,
        double,
        work.special / device.special_per_s,
        work.int_ops / device.int32_ops,
    )
    return slowest * 1e6 / share


def moved_us(work: Work, device: Device) -> float:
    """Traffic at full rates, linear in the bytes: what two plans for the same ops both read from
    DRAM must cost both the same, however many kernels they spread it over (unlike M(V), which
    sees a single copy's array become resident in L2)."""
    return (work.bytes / device.dram_bytes_per_s + work.l2_bytes / device.l2_bytes_per_s) * 1e6


def busy_us(work: Work, device: Device, threads: int) -> float:
    """One phase, neither launch nor barrier included.

    Traffic and arithmetic overlap, so the slower of them counts, after a round trip to memory.
    Fewer blocks than multiprocessors get a share of the device; `work.blocks` 0 stands for a
    grid that fills it.
    """
    compute, bandwidth = _shares(device, work.blocks, threads)
    moved = moved_us(work, device) / bandwidth
    return latency_us(device) + max(moved, compute_us(work, device, compute))


def kernel_us(work: Work, device: Device, threads: int = 256) -> float:
    """Microseconds of one kernel of `threads` per block in a CUDA graph, launch included; further
    phases cost a grid barrier and a round trip each."""
    boundary = barrier_us(device, work.blocks or device.sm_count) + latency_us(device)
    return device.launch_us + busy_us(work, device, threads) + (work.phases - 1) * boundary


def facts_us(facts: KernelFacts, device: Device) -> float:
    """Microseconds of the kernel that `facts` describe, phase by phase, launch included."""
    if not facts.phases:
        return kernel_us(facts.work, device, facts.threads)
    busy = sum(busy_us(phase, device, facts.threads) for phase in facts.phases)
    blocks = max(phase.blocks for phase in facts.phases) or device.sm_count
    return device.launch_us + busy + (len(facts.phases) - 1) * barrier_us(device, blocks)


def best_case_us(work: Work, device: Device) -> float:
    """A lower bound of `kernel_us` for any kernel that does at least `work`."""
    busy = max(moved_us(work, device), compute_us(work, device))
    return device.launch_us + latency_us(device) + busy


def library_gemm_us(
    work: Work, device: Device, flops: int, result: tuple[int, int, int], k: int, unit: float
) -> float:
    """Microseconds of a library GEMM of `flops` with `result` (batch, m, n) and contraction `k`,
    launch included, on a unit of `unit` FLOP/s; `work` holds its traffic."""
    batch, m, n = result
    tiles = batch * math.ceil(m / LIBRARY_TILE) * math.ceil(n / LIBRARY_TILE)
    blocks = tiles * min(LIBRARY_SPLIT, max(1, k // LIBRARY_SPLIT_K))
    share = min(1.0, blocks / device.sm_count)
    compute = flops / (unit * LIBRARY_DOT_SHARE * share) * 1e6
    busy = latency_us(device) + max(moved_us(work, device), compute)
    return max(LIBRARY_GEMM_US, device.launch_us + busy)
