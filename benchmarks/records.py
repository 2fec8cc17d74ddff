"""What it takes to read and to write rows of a few floats, one per thread.

    python -m benchmarks.records --json FILE [--commit C]      on a GPU, in some seconds

Microseconds for 201 MB of rows: `read` and summed, or `write`, some floats at a time, one row of a
thread after another; and written through shared memory, so that neighboring threads write
neighboring floats (`staged`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.environment import describe

#: Floats of all rows together.
FLOATS = 48 << 20
THREADS = 256
#: Floats of a row, and those that are accessed at a time.
ROWS = (
    *((2, 2), (3, 1), (4, 4), (4, 1), (5, 1), (6, 2), (8, 4), (9, 1)),
    *((12, 4), (12, 1), (16, 4), (16, 1), (24, 4), (32, 4), (32, 1)),
)
#: Rows of a thread, one after the other.
EACH = (1, 4)
READINGS, LAUNCHES = 5, 10


@dataclass(frozen=True)
class Row:
    """The median time of one kernel."""

    kernel: str
    floats: int
    at_a_time: int
    rows_each: int
    us: float


def rows(gpu: Cuda) -> Iterator[Row]:
    """All kernels."""
    for floats, width in ROWS:
        for kernel in ("read", "write"):
            for each in EACH:
                yield Row(kernel, floats, width, each, gpu.us(kernel, floats, width, each))
        yield Row("staged", floats, 1, 1, gpu.us("staged", floats, 1, 1))


class Cuda:
    """The GPU of this machine, through CuPy."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.source = Path(__file__).with_suffix(".cu").read_text()
        self.arrays = [cupy.zeros(FLOATS, cupy.float32) for _ in range(2)]

    def us(self, kernel: str, floats: int, width: int, each: int) -> float:
        """Microseconds of a kernel of `records.cu`."""
        cupy = self.cupy
        sizes = (f"-DN={floats}", f"-DW={width}", f"-DG={each}")
        module = cupy.RawModule(code=self.source, options=("-std=c++17", *sizes))
        entry, count = module.get_function(kernel), FLOATS // floats
        grid = -(-count // (THREADS * each))

        def launch() -> None:
            entry((grid,), (THREADS,), (*self.arrays, cupy.int32(count)))

        def reading() -> float:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            for _ in range(LAUNCHES):
                launch()
            end.record()
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(begin, end)) * 1000 / LAUNCHES

        reading()
        return round(statistics.median(reading() for _ in range(READINGS)), 1)


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--commit", default="", help="the commit, where the checkout has no git")
    given = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    for row in rows(Cuda()):
        found.append(asdict(row))
        print(f"{row.kernel:7} {row.floats:3} by {row.at_a_time}, {row.rows_each} each: {row.us}")
    content = {
        "command": " ".join(["python -m benchmarks.records", *(arguments or sys.argv[1:])]),
        "environment": describe(given.commit),
        "rows": found,
    }
    results_file.write(given.json, content)


if __name__ == "__main__":
    main()
