"""The examples on a GPU: fusionstitch against XLA and against op-by-op execution.

python -m benchmarks [TARGET...] [--json FILE] [--rounds N] [--jobs N] [--limit S] [--no-unfused]

TARGET is a target of the examples (softmax.py:rows) or a file of them (norms); all without one.
Every workload runs in a process of its own with a time limit, and every failure is a row.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.environment import describe
from benchmarks.measuring import IN_FLIGHT
from benchmarks.runner import Settings, measure
from benchmarks.tables import markdown
from benchmarks.workloads import find


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    parser.add_argument("--rounds", type=int, default=15, help="times taken per side")
    parser.add_argument(
        "--jobs", type=int, default=1, help="programs compiled side by side; measuring never is"
    )
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds to prepare, and to measure, each"
    )
    parser.add_argument(
        "--no-unfused", dest="unfused", action="store_false", help="leave out op-by-op execution"
    )
    parser.add_argument("--commit", help="the commit, where the checkout has no git")
    options = parser.parse_args()
    try:
        workloads = find(options.targets)
    except ValueError as error:
        parser.error(str(error))
    path = options.json and options.json.resolve()
    os.chdir(Path(__file__).parent.parent)
    settings = Settings(options.jobs, options.rounds, options.limit, options.unfused)
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:.0f} s] {text}", file=sys.stderr, flush=True)

    results: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "environment": describe(options.commit),
        "method": {
            "rounds": options.rounds,
            "calls_in_flight": IN_FLIGHT,
            "jobs": options.jobs,
        },
        "rows": [],
    }
    path = path or _default_path(results["environment"])
    for row in measure(workloads, settings, say):
        results["rows"].append(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
    print(markdown(results))
    say(f"written to {path}")
    return int(any("failure" in row or row["check"]["wrong"] for row in results["rows"]))


def _default_path(environment: dict[str, Any]) -> Path:
    """benchmarks/results/GPU-DATE.json"""
    gpu = (environment["gpu"] or "cpu").split()[-1].lower()
    return Path("benchmarks", "results", f"{gpu}-{environment['date'][:10]}.json")


if __name__ == "__main__":
    sys.exit(main())
