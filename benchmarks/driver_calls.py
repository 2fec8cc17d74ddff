"""Calls into CUDA's driver, per call of a program: python -m benchmarks.driver_calls TARGET...

Each side of a program runs as in a training loop; of the driver's functions those that are called
in every fifth call at least are printed, with how often and how long. The counting adds to the
wall time, which is for comparing the sides. It preloads `driver_calls.cc`, so Linux with glibc.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workloads import Workload, find

SOURCE = Path(__file__).with_suffix(".cc")
WARM_UP = 50
CALLS = 400
#: Calls of a driver's function per call of the program that are worth a line.
SELDOM = 0.2


@dataclass(frozen=True)
class Count:
    """Calls of one of the driver's functions since the last reset."""

    name: str
    calls: int
    us: float


class Counter:
    """The counters of a process that has the library preloaded; AttributeError in another."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._reset, self._read = library.driver_calls_reset, library.driver_calls_read
        self._read.restype = ctypes.c_bool

    def reset(self) -> None:
        """Starts again at zero."""
        self._reset()

    def counts(self) -> Iterator[Count]:
        """All functions that were looked up, called or not."""
        name, calls, nanoseconds = ctypes.c_char_p(), ctypes.c_long(), ctypes.c_long()
        number = 0
        found = ctypes.byref(name), ctypes.byref(calls), ctypes.byref(nanoseconds)
        while self._read(number, *found):
            yield Count((name.value or b"").decode(), calls.value, nanoseconds.value / 1e3)
            number += 1


def preloading(folder: Path) -> dict[str, str]:
    """The environment of a process that counts; the library is built into `folder`."""
    from fusionstitch.runtime.toolchain import compile_shared

    library = folder / "driver_calls.so"
    library.write_bytes(compile_shared(SOURCE.read_text(), flags=("-O2",)))
    return {**os.environ, "LD_PRELOAD": str(library)}


def report(workload: Workload, counter: Counter) -> Iterator[str]:
    """Lines on a program under XLA and under fusionstitch."""
    import jax

    import fusionstitch as fs
    from benchmarks.measuring import Contestant
    from fusionstitch.commands.targets import load

    fun, args = load(workload.path)
    for name, jit in (("XLA", jax.jit), ("fusionstitch", fs.jit)):
        program = Contestant(
            jit(fun, **workload.jit_keywords).lower(*args).compile(), args, workload
        )
        program.calls(WARM_UP)
        counter.reset()
        start = time.perf_counter()
        program.calls(CALLS)
        wall = (time.perf_counter() - start) / CALLS * 1e6
        counts = [count for count in counter.counts() if count.calls >= SELDOM * CALLS]
        inside = sum(count.us for count in counts) / CALLS
        yield f"{workload.target}, {name}: {wall:.1f} us a call, {inside:.1f} of them in the driver"
        for count in counts:
            yield f"  {count.name:<40} {count.calls / CALLS:8.2f} {count.us / CALLS:8.2f} us"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver_calls", description=__doc__)
    parser.add_argument("targets", metavar="TARGET", nargs="+")
    targets = parser.parse_args(arguments).targets
    try:
        workloads = find(targets)
    except ValueError as error:
        parser.error(str(error))
    try:
        counter = Counter()
    except AttributeError:
        command = [sys.executable, "-m", "benchmarks.driver_calls", *targets]
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run(command, env=preloading(Path(folder)), check=False).returncode
    for workload in workloads:
        for line in report(workload, counter):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
