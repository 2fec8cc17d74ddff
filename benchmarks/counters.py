"""What it takes for blocks to wait for each other by counters across the grid.

    python -m benchmarks.counters --json FILE [--commit C]      on a GPU, in some seconds

Microseconds from where a block arrives to where another one has waited for it, by distance and by
how many there are; of arriving and of waiting alone; of zeroing the counters; of atomic additions;
and beside them the barrier of the same grid. Every wait for a counter ends after 10 seconds with an
error.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks import results_file
from benchmarks.environment import describe

THREADS = 256
ROUNDS, READINGS = 1000, 5
#: How many blocks wait for one, or one for them; a block each multiprocessor takes the rest.
FANS = (1, 8, 32)
#: Words that are zeroed.
WORDS = (64, 1024, 16384)
#: Kernels in a CUDA graph, after each of which words are zeroed or not.
CHAINED = 100
#: Bytes of what kernels use: counters, data, times.
SIZES = (1 << 17, 1 << 20, 1 << 14)


@dataclass(frozen=True)
class Launch:
    """What one launch said: nanoseconds from the first begin to the last end of blocks that took
    part, and what each block noted: its multiprocessor, but of `clocks` the cycles that passed."""

    ns: int
    noted: tuple[int, ...]


class Gpu(Protocol):
    """What is measured on."""

    multiprocessors: int

    def launch(
        self, entry: str, grid: int, rounds: int, first: int = 0, second: int = 0, mode: int = 0
    ) -> Launch:
        """Launches a kernel of `counters.cu` once."""

    def memset_us(self, words: int) -> float:
        """What zeroing so many words adds to a kernel in a CUDA graph."""


@dataclass(frozen=True)
class Row:
    """A number of a device: the median, the least and the greatest of what was read."""

    name: str
    us: float
    least: float
    most: float


def rows(gpu: Gpu) -> Iterator[Row]:
    """All numbers."""
    sms = gpu.multiprocessors

    def read(entry: str, grid: int, per: float = 1, rounds: int = ROUNDS, **of: int) -> list[float]:
        """Microseconds of each of `per` parts of a round."""
        gpu.launch(entry, grid, rounds, **of)  # the first one finds nothing in caches
        each = (gpu.launch(entry, grid, rounds, **of) for _ in range(READINGS))
        return [one.ns / 1000 / rounds / per for one in each]

    for payload, what in enumerate(("", ", with an element a thread")):
        by_block = [
            statistics.median(read("signal", sms, 2, second=other, mode=payload))
            for other in range(1, sms)
        ]
        yield row(f"1 to 1, from block 0 to each other{what}", by_block)
        yield row(f"1 to 1, the next block{what}", by_block[:1])
        yield row(f"1 to 1, the last block{what}", by_block[-1:])
    placed = gpu.launch("signal", 2 * sms, 1, second=1).noted
    if beside := [block for block in range(1, 2 * sms) if placed[block] == placed[0]]:
        found = read("signal", 2 * sms, 2, second=beside[0])
        yield row("1 to 1, on the same multiprocessor", found)

    for many in (*FANS, sms - 1):
        for mode, what in enumerate(("one of them back", "all back", "all back, counters apart")):
            yield row(f"1 to {many} and {what}", read("fan", sms, first=many, mode=mode))

    for grid in (1, sms):
        for apart, where in enumerate(("one counter", "counters apart")[: 1 + (grid > 1)]):
            for writes, what in enumerate(("", ", after a store")):
                found = read("arrive", grid, first=apart, mode=writes)
                yield row(f"arrive, {grid} blocks, {where}{what}", found)
            found = read("wait", grid, first=apart)
            yield row(f"wait for what has come, {grid} blocks, {where}", found)

    for grid in (2, 8, 32, sms, 2 * sms):
        for mode, what in enumerate(("barrier of the grid", "all wait for all by a counter")):
            yield row(f"{what}, {grid} blocks", read("barrier", grid, mode=mode))

    for mode, who in enumerate(("block 0", "all")):
        for words in (0, *WORDS):
            found = read("zero", sms, first=words, mode=mode)
            yield row(f"{words} words zeroed by {who}, and the barrier", found)

    for grid in (1, sms):
        for apart, where in enumerate(("one word", "words apart")[: 1 + (grid > 1)]):
            for returns, what in enumerate(("add", "add and wait for what it was")):
                found = read("add", grid, first=apart, mode=returns)
                yield row(f"{what}, {grid} blocks, {where}", found)

    for grid in (8, sms):
        yield row(f"chain of {grid} blocks, a block", read("chain", grid, grid, 200, mode=0))
        steps = (200 + grid - 1) / 200
        yield row(f"wavefront of {grid} blocks, a step", read("chain", grid, steps, 200, mode=1))

    for words in WORDS:
        yield row(f"memset of {words} words in a graph", [gpu.memset_us(words) for _ in range(3)])


def busy_mhz(gpu: Gpu) -> float:
    """The clock of multiprocessors, once they are busy."""
    gpu.launch("barrier", gpu.multiprocessors, 100_000)
    cycles, microseconds = gpu.launch("clocks", 1, 10_000).noted[0], 10_000
    return cycles / microseconds


def row(name: str, found: list[float]) -> Row:
    return Row(name, statistics.median(found), min(found), max(found))


class Cuda:
    """The GPU of this machine, through CuPy."""

    def __init__(self) -> None:
        import cupy

        from fusionstitch.runtime import nvrtc

        self.cupy = cupy
        about = cupy.cuda.runtime.getDeviceProperties(0)
        self.multiprocessors = int(about["multiProcessorCount"])
        source = Path(__file__).with_suffix(".cu").read_text()
        arch = f"sm_{about['major']}{about['minor']}"
        self.module = cupy.cuda.function.Module()
        self.module.load(nvrtc.compile(source, arch).image)
        self.buffers = [cupy.zeros(size, cupy.uint8) for size in SIZES]

    def launch(
        self, entry: str, grid: int, rounds: int, first: int = 0, second: int = 0, mode: int = 0
    ) -> Launch:
        for buffer in self.buffers:
            buffer.data.memset_async(0, buffer.nbytes)
        addresses = [np.uint64(buffer.data.ptr) for buffer in self.buffers]
        numbers = [np.uint32(rounds), *map(np.int32, (first, second, mode))]
        function = self.module.get_function(entry)
        function((grid,), (THREADS,), (*addresses, *numbers), enable_cooperative_groups=True)
        self.cupy.cuda.Device().synchronize()
        times = self.cupy.asnumpy(self.buffers[2]).view(np.int64)
        begun, ended = times[0 : 2 * grid : 2], times[1 : 2 * grid : 2]
        took_part = ended > 0
        ns = int(ended[took_part].max() - begun[took_part].min())
        return Launch(ns, tuple(times[2 * grid : 3 * grid].tolist()))

    def memset_us(self, words: int) -> float:
        without, each = (self._graph_us(count) for count in (0, words))
        return (each - without) / CHAINED

    def _graph_us(self, words: int) -> float:
        """The least of some calls of a graph."""
        cuda, nothing = self.cupy.cuda, self.module.get_function("nothing")
        stream = cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            for _ in range(CHAINED):
                if words:
                    self.buffers[0].data.memset_async(0, 4 * words, stream)
                nothing((1,), (THREADS,), ())
            graph = stream.end_capture()
            begun, ended = cuda.Event(), cuda.Event()
            least = float("inf")
            for _ in range(READINGS + 1):
                begun.record(stream)
                graph.launch(stream)
                ended.record(stream)
                ended.synchronize()
                least = min(least, cuda.get_elapsed_time(begun, ended) * 1000)
        return least


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counters", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--commit", help="the commit, where git is not at hand")
    asked = parser.parse_args()
    gpu, found = Cuda(), []
    clock = busy_mhz(gpu)
    print(f"{f'{clock:.0f} MHz':62s} {'us':>9s} {'least':>9s} {'most':>9s}")
    for one in rows(gpu):
        print(f"{one.name:62s} {one.us:9.4f} {one.least:9.4f} {one.most:9.4f}", flush=True)
        found.append(one)
    content: dict[str, Any] = {
        "command": f"python -m benchmarks.counters {' '.join(sys.argv[1:])}",
        "environment": describe(asked.commit),
        "clock_mhz": clock,
        "rows": [vars(one) for one in found],
    }
    results_file.write(asked.json, content)


if __name__ == "__main__":
    main()
