"""How long a kernel takes: its work against the rates of a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fusionstitch.costmodel.bandwidth import latency_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts, Walk
from fusionstitch.costmodel.occupancy import blocks_per_sm
from fusionstitch.costmodel.work import L2_SHARE, Work

#: Bytes per thread that one round trip brings: four loads in flight.
FIRST_BYTES = 64
#: A row of a loop whose threads wait for each other, while others keep the memory busy: its loads
#: and its stores; what a block takes to start and to end; loads that wait for those before them;
#: an exchange between threads, and what each warp adds to it. Softmax and layer norm of 8192 rows
#: of 4096 by blocks of 64 to 1024 threads on an H200 (benchmarks/results, schedules).
TURN_US, START_US, ROUND_US, JOIN_US, WARP_US = 0.8, 0.8, 0.23, 0.05, 0.016
#: Turns under way at once where nothing in them waits for other threads.
TURNS_TOGETHER = 4
#: The power of the norm that adds moving and waiting: 1 would add them, infinity take the longer.
OVERLAP = 4
#: Share of an SM's shared memory and L1 cache in which rows are still found by the next sweep.
L1_SHARE = 0.75
#: Threads per multiprocessor that keep its arithmetic busy.
BUSY_THREADS = 512
#: The least that the work between two grid barriers takes, reading what was written before the
#: first: a phase of one dependent load and store on an H200, its barrier included, takes 1.54 us at
#: 132 blocks, 1.70 at 264.
PHASE_LATENCY_US = 0.5
#: One step of a dot inside a stitched kernel, a thread's two loads and its FMA, in sequence with
#: the next: batched 94x94 dots of depth 2 and 8 and a 100x256x256 one took 0.10..0.14 us a step
#: on an H200.
DOT_STEP_US = 0.06
#: Multiply-adds of one lane in the time of such a step where a register tile does the dot: 16 by 32
#: results of a warp, 8 summed elements in three steps.
TILED_ADDS = 40
#: How many times as many of 16-bit elements.
HALF_ADDS = 4
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


def busy_us(work: Work, device: Device, threads: int, resident: int, flight: int = 1) -> float:
    """One phase, neither launch, latency nor barrier included.

    Traffic, arithmetic and the steps of dots overlap, so the slowest of them counts. A grid that
    does not fill the device gets a share of it, beyond what its threads' first loads bring
    within the latency that the caller adds. `resident` threads fit on a multiprocessor, each with
    `flight` loads under way; `work.blocks` 0 stands for a grid that fills the device.
    """
    launched = (work.blocks or device.sm_count * resident) * threads
    per_sm = min(launched / device.sm_count, resident)
    sms = min(1.0, work.blocks / device.sm_count) if work.blocks else 1.0
    bandwidth = 1 - math.exp(-per_sm * flight / device.bandwidth_threads) if work.blocks else 1.0
    moved = moved_us(work, device)
    first = launched * FIRST_BYTES / max(1, work.bytes + work.l2_bytes)
    late = moved * max(0.0, 1 - first) / bandwidth
    steps = max(work.dot_chain, work.dot_steps / (per_sm * device.sm_count))
    # a few threads with a tile of a dot each keep a multiprocessor busy
    others = compute_us(work, device, min(sms, per_sm / BUSY_THREADS), dots=False)
    return max(moved, late, steps * DOT_STEP_US, compute_us(work, device, sms), others)


def kernel_us(work: Work, device: Device, threads: int = 256) -> float:
    """Microseconds of one kernel of `threads` per block in a CUDA graph, launch included."""
    boundaries = (work.phases - 1) * boundary_us(device, work.blocks)
    busy = busy_us(work, device, threads, device.max_threads_per_sm)
    return device.launch_us + latency_us(device) + busy + boundaries


def facts_us(facts: KernelFacts, device: Device) -> float:
    """Microseconds of the kernel that `facts` describe, launch included."""
    if facts.loop_us is not None:
        return facts.loop_us
    first, *later = phases_us(facts, device)
    blocks = max(phase.blocks for phase in facts.phases or (facts.work,))
    started = device.launch_us + latency_us(device) + first
    if not later:
        return started + (facts.work.phases - 1) * boundary_us(device, blocks)
    barrier = barrier_us(device, blocks)
    least = PHASE_LATENCY_US if barrier else 0.0
    return started + sum(barrier + max(least, us) for us in later)


def phases_us(facts: KernelFacts, device: Device) -> list[float]:
    """Microseconds of each phase of a kernel, the barriers between them not included."""
    phases = facts.phases or (facts.work,)
    walks = facts.walks or ((),) * len(phases)
    alone = facts.alone or ((),) * len(phases)
    fit = max(1, blocks_per_sm(device, facts.threads, facts.registers, facts.shared_bytes))
    each = []
    for phase, loops, parts in zip(phases, walks, alone, strict=True):
        whole = phase_us(phase, loops, device, facts.threads, fit)
        apart = (busy_us(part, device, facts.threads, fit * facts.threads) for part in parts)
        each.append(max(whole, *apart) if parts else whole)
    return each


def phase_us(
    work: Work, walks: Sequence[Walk], device: Device, threads: int, resident: int
) -> float:
    """One phase whose blocks of `threads`, `resident` on a multiprocessor, walk as `walks` say.

    Blocks that wait leave the memory to others, as long as others have something to ask for:
    the two times overlap but in part (`OVERLAP`).
    """
    slots = resident * device.sm_count
    for walk in walks:
        repeated = walk.again
        in_flight = resident * walk.rows_bytes
        if in_flight <= L1_SHARE * device.shared_per_sm:
            repeated = 0
        if in_flight * device.sm_count <= L2_SHARE * device.l2_bytes:
            work += Work(l2_bytes=repeated + walk.spilled)
        else:
            work += Work(bytes_read=repeated, l2_bytes=walk.spilled)
    active = max(1, round(threads * max((walk.busy for walk in walks), default=1.0)))
    flight = max((walk.flight for walk in walks), default=1)
    # every thread has a share of the dots, however few the rows beside them keep busy
    dots = Work(
        dot_flops=work.dot_flops,
        dot_steps=work.dot_steps,
        dot_chain=work.dot_chain,
        blocks=work.blocks,
    )
    rows = replace(work, dot_flops=0, dot_steps=0, dot_chain=0)
    moving = max(
        busy_us(rows, device, active, resident * active, flight),
        busy_us(dots, device, threads, resident * threads),
    )
    waiting = waiting_us(walks, slots, work.blocks)
    return (moving**OVERLAP + waiting**OVERLAP) ** (1 / OVERLAP)


def waiting_us(walks: Sequence[Walk], slots: int, blocks: int) -> float:
    """What the threads of a phase's loops wait after the first turn, of which the caller knows.

    `slots` blocks are on the device at once; further ones have to start, unless the `blocks`
    there are take several tiles each, of one loop or of one after the other. However many there
    are, the loops of one block come one by one.
    """
    tiles = sum(walk.tiles for walk in walks)
    at_once = max(1, min(slots, tiles, blocks or slots))
    each = [(walk.tiles / at_once, walk.turns * _turn_us(walk), _end_us(walk)) for walk in walks]
    waited = sum(waves * (turns + end) for waves, turns, end in each)
    behind = 0.0
    for walk, (_, turns, end) in zip(walks, each, strict=True):
        behind = turns + end + (behind if walk.follows else 0.0)
        waited = max(waited, behind)
    first = max((_turn_us(walk) + _end_us(walk) for walk in walks), default=0.0)
    joins = any(walk.joins for walk in walks)
    starts = max(0.0, blocks / slots - 1) if joins else 0.0
    return max(0.0, waited - first) + starts * START_US


def _turn_us(walk: Walk) -> float:
    """A row of a loop, from its loads to its stores where its threads wait for each other."""
    turn = walk.rounds * ROUND_US
    if walk.joins:
        return turn + TURN_US - ROUND_US + walk.joins * _join_us(walk)
    return turn / TURNS_TOGETHER


def _end_us(walk: Walk) -> float:
    """What a tile takes beside its rows: the latency of the first, and joining what it sums."""
    return TURN_US - ROUND_US + _join_us(walk) if walk.carries else 0.0


def _join_us(walk: Walk) -> float:
    return JOIN_US + WARP_US * walk.warps


def best_case_us(work: Work, device: Device) -> float:
    """A lower bound of `kernel_us` for any kernel that does at least `work`."""
    threads = device.sm_count * device.max_threads_per_sm
    halves = work.tensor_flops // 2  # multiply-adds, each counted as a step at least
    steps = (work.dot_steps - halves + halves / HALF_ADDS) / TILED_ADDS
    steps *= DOT_STEP_US / threads
    busy = max(moved_us(work, device), compute_us(work, device), steps)
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
