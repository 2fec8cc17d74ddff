"""The threads of blocks that work alone, or in a cluster: how many each has, how many blocks share
a multiprocessor, and the registers that hold what all iterations read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.rewrite.extents import inner_extents
from fusionstitch.codegen.schedule.tuning import power_of_two
from fusionstitch.codegen.while_loops.segments import (
    LoopBuffer,
    Program,
    Straight,
    repeats,
    straight_ones,
)
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op

#: Threads of one block that works alone.
LEAST_THREADS = 32
SIZES = (32, 64, 128, 256, 512, 1024)
#: Elements that a thread of it sums up.
SUMMED = 16
#: Threads that a block keeps, however much each of fewer could hold.
FEW_THREADS = 256
#: Blocks of a multiprocessor at most, where that has them all run at once.
MOST_RESIDENT = 4
#: Registers of a thread that an iteration computes with.
WORKING = 48
#: Registers that are taken for each that is filled, at most: rows that threads share are padded.
PADDED = 1.2
#: Ops that read another part of an array in each iteration.
_CUTTING = frozenset({"dynamic-slice", "gather"})


@dataclass(frozen=True)
class Threads:
    """`block` threads of a block, of which a multiprocessor has `resident` at once. Each thread has
    `registers` for what it holds of what iterations read again; whether that `holds` all of it."""

    block: int
    resident: int
    registers: int
    holds: bool = False


def free_registers(threads: int, device: Device) -> int:
    """Registers in which one of so many threads of a multiprocessor can hold what it reads."""
    return min(device.registers.most, device.registers_per_sm // threads) - WORKING


def threads_alone(cut: Program, device: Device, requested: int | None = None) -> Threads:
    """The threads of blocks that work independently, or of the only block: `requested` ones if that
    is given. Raises CodegenError for a number that blocks cannot have.

    Fewer threads can hold more: each needs some registers to compute with. Blocks that run at once
    take less time than one after the other, as they mostly wait.
    """
    if requested is not None and requested not in SIZES:
        known = ", ".join(map(str, SIZES))
        raise CodegenError(f"Blocks of loops have {known} threads, not {requested}.")
    most = requested or _most_threads(cut, device)
    sizes = (most,) if requested else (most, most // 2, most // 4)
    blocks = math.ceil(cut.dealt.blocks / device.sm_count) if cut.dealt else 1
    for resident in range(min(MOST_RESIDENT, blocks), 0, -1):
        if (found := _holding(cut, device, sizes, resident)) is not None:
            return found
    return Threads(most, 1, free_registers(most, device))


def threads_in_cluster(cut: Program, device: Device, blocks: int) -> Threads:
    """The threads of blocks that share each iteration, one to a multiprocessor."""
    most = _most_threads(cut, device, blocks)
    found = _holding(cut, device, (most, most // 2, most // 4), 1, blocks)
    return found or Threads(most, 1, free_registers(most, device))


def _most_threads(cut: Program, device: Device, blocks: int = 1) -> int:
    """Threads that each of so many blocks keeps busy."""
    ops = [op for segment in straight_ones(cut.segments) for op in segment.graph.ops[:-1]]
    steps = power_of_two(max(map(_steps, ops))) // blocks
    return min(device.max_threads_per_block, max(LEAST_THREADS, steps))


def _holding(
    cut: Program, device: Device, sizes: Sequence[int], resident: int, blocks: int = 1
) -> Threads | None:
    """The threads of `blocks` whose registers hold what all iterations read: the first of `sizes`
    that do."""
    read = PADDED * sum(read_again(cut).values()) / blocks
    for block in sizes:
        registers = free_registers(block * resident, device)
        if block >= min(sizes[0], FEW_THREADS) and read <= 4 * block * registers:
            return Threads(block, resident, registers, holds=True)
    return None


def read_again(cut: Program) -> Mapping[LoopBuffer, int]:
    """The arrays that all iterations read, as they are and as a whole, and their bytes."""
    found: dict[LoopBuffer, int] = {}
    for repeat in repeats(cut.segments):
        inside = list(straight_ones(repeat.body))
        written = {buffer for pair in repeat.pairs for buffer in pair}
        written |= {t.buffer for segment in inside for targets in segment.targets for t in targets}
        for segment in inside:
            read = dict(zip(segment.graph.parameters, segment.sources, strict=True))
            for p in read_as_they_are(segment):
                buffer = read[p]
                if buffer and buffer not in written:
                    found[buffer] = p.shape.bytes
    return found


def read_as_they_are(segment: Straight) -> Iterator[Op]:
    """The parameters that a segment reads as a whole."""
    for p in segment.graph.parameters:
        if not any(user.opcode in _CUTTING for user in segment.graph.users[p.id]):
            yield p


def _steps(op: Op) -> int:
    """Threads that an op keeps busy, each with a few elements that it sums."""
    if op.opcode == "parameter":
        return 1
    return max(op.shape.size, op.shape.size * math.prod(inner_extents(op)) // SUMMED)
