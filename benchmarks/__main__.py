"""The examples on a GPU: fusionstitch against XLA, Inductor and op-by-op execution.

python -m benchmarks [TARGET...] [--suite NAME...] [--json FILE] [--jobs N] [--without PART,...]

TARGET is a target of the examples (softmax.py:rows) or a file of them (norms); all without one and
without a suite. Every workload runs in processes of its own with a time limit, and every failure is
a row. PART is op-by-op, inductor, graphs (XLA's flags for CUDA graphs), warm (compile times with
warm caches) or long (programs that take minutes to compile).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import arguments, results_file
from benchmarks.environment import describe
from benchmarks.measuring import IN_FLIGHT, LEAST_SECONDS
from benchmarks.runner import OPTIONAL, Settings, measure
from benchmarks.tables import markdown
from benchmarks.workloads import WORKLOADS
from fusionstitch.compiler import progress


def main() -> int:
    parser = arguments.parser("benchmarks", __doc__)
    parser.add_argument("--rounds", type=int, default=25, help="times taken per side, at least")
    parser.add_argument(
        "--jobs", type=int, default=1, help="programs compiled side by side; measuring never is"
    )
    parser.add_argument(
        "--limit", type=float, default=420.0, help="seconds to prepare, and to measure, each"
    )
    parser.add_argument(
        "--batch", type=int, default=24, help="processes prepared before any of them measures"
    )
    parser.add_argument(
        "--without", type=_parts, default=frozenset(), metavar="PART,...", help="what to leave out"
    )
    parser.add_argument(
        "--ncu", action="store_true", help="count DRAM bytes with Nsight Compute, too"
    )
    parser.add_argument(
        "--tune",
        type=float,
        default=0.0,
        metavar="S",
        help="tune each program for S seconds and measure it once more",
    )
    parser.add_argument(
        "--total",
        type=float,
        default=math.inf,
        metavar="S",
        help="seconds for all; what is not prepared by then is stopped, the rest still measured",
    )
    parser.add_argument("--commit", help="the commit, where the checkout has no git")
    options, workloads = arguments.parse(parser)
    settings = Settings(
        jobs=options.jobs,
        rounds=options.rounds,
        limit=options.limit,
        batch=options.batch,
        without=options.without,
        ncu=options.ncu,
        tune=options.tune,
        total=options.total,
    )
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:.0f} s] {text}", file=sys.stderr, flush=True)

    results: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "environment": describe(options.commit),
        "method": {
            "rounds": options.rounds,
            "seconds": LEAST_SECONDS,
            "calls_in_flight": IN_FLIGHT,
            "jobs": options.jobs,
            "copy_bytes_per_s": _ceiling(),
        },
        "rows": [],
    }
    place = {workload.target: number for number, workload in enumerate(WORKLOADS)}
    path = options.json or _default_path(results["environment"])
    with progress.counted("measures", len(workloads)) as step:
        told = step if progress.enabled() and sys.stderr.isatty() else say
        for row in measure(workloads, settings, told):
            results["rows"] = sorted([*results["rows"], row], key=lambda row: place[row["target"]])
            path.parent.mkdir(parents=True, exist_ok=True)
            results_file.write(path, results)
    print(markdown(results))
    say(f"written to {path}")
    return int(any("failure" in row or row["check"]["wrong"] for row in results["rows"]))


def _parts(text: str) -> frozenset[str]:
    parts = frozenset(text.split(","))
    if unknown := sorted(parts - set(OPTIONAL)):
        raise argparse.ArgumentTypeError(
            f"no part is called {', '.join(unknown)}; there are {', '.join(OPTIONAL)}"
        )
    return parts


def _ceiling() -> float | None:
    """Bytes per second of a copy inside the GPU, measured before anything else runs."""
    command = [sys.executable, "-m", "benchmarks.ceiling"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: float | None = json.loads(done.stdout) if done.returncode == 0 else None
    return found


def _default_path(environment: dict[str, Any]) -> Path:
    """benchmarks/results/GPU-DATE.json"""
    gpu = (environment["gpu"] or "cpu").split()[-1].lower()
    return Path("benchmarks", "results", f"{gpu}-{environment['date'][:10]}.json")


if __name__ == "__main__":
    sys.exit(main())
