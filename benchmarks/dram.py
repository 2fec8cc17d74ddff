"""DRAM traffic of one call as Nsight Compute counts it, where `ncu` is there and may read the
counters: python -m benchmarks.dram TARGET SIDE makes the call that is counted."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.workloads import Workload, find

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
SIDES = ("xla", "fusionstitch")
#: Seconds a program may take under the profiler.
LIMIT = 120


def measured(workload: Workload, side: str) -> int | None:
    """Bytes that the kernels of one call read and write; copies and memsets are not counted."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [ncu, "--clock-control", "none", "--cache-control", "none"]
        command += ["--profile-from-start", "off", "--metrics", ",".join(METRICS)]
        command += ["--csv", "--print-units", "base", "--log-file", str(log)]
        command += [sys.executable, "-m", "benchmarks.dram", workload.target, side]
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer="
        try:
            subprocess.run(
                command,
                env={**os.environ, "XLA_FLAGS": flags.strip()},
                capture_output=True,
                timeout=LIMIT,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return total(log.read_text().splitlines())


def total(lines: Iterable[str]) -> int | None:
    """The sum over all kernels in ncu's CSV, which follows lines that begin with ==."""
    rows = csv.DictReader(line for line in lines if not line.startswith("=="))
    found = [row["Metric Value"] for row in rows if row["Metric Name"] in METRICS]
    return sum(int(float(value.replace(",", ""))) for value in found) if found else None


def main(target: str, side: str) -> None:
    import jax
    from cupy.cuda import runtime

    import fusionstitch as fs
    from benchmarks.measuring import Contestant
    from fusionstitch.commands.targets import load

    [workload] = find([target])
    fun, args = load(workload.path)
    jit = fs.jit if side == "fusionstitch" else jax.jit
    program = Contestant(jit(fun, **workload.jit_keywords).lower(*args).compile(), args, workload)
    program.calls(2)
    runtime.profilerStart()
    program.calls(1)
    runtime.profilerStop()


if __name__ == "__main__":
    main(*sys.argv[1:])
