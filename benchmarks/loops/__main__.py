"""Loops on a GPU, XLA and fusionstitch in one run: python -m benchmarks.loops [--only NAME...].

Each program runs in a process of its own with a time limit. They are compiled side by side and
measured one at a time. --check needs no GPU: small sizes under the emulator, compared to jax.jit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment, readings, results_file
from benchmarks.loops.check import check
from benchmarks.loops.table import FORMS, Loop, find
from benchmarks.row import WAITING

_POLL = 0.1


class Worker:
    """The process of one loop, and what it has written so far."""

    def __init__(self, loop: Loop, folder: Path, repeats: int, limit: float):
        self.loop, self.folder, self.limit = loop, folder / loop.name, limit
        self.folder.mkdir()
        own = {
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "FUSIONSTITCH_CACHE_DIR": str(folder / "cache"),
            "EQX_ON_ERROR": "nan",
        }
        self.output = (self.folder / "output").open("wb")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.loops.worker", loop.name, str(self.folder)),
                *("--repeats", str(repeats)),
            ],
            stdin=subprocess.PIPE,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own},
        )
        self.since = time.monotonic()
        self.failure = ""

    def row(self) -> dict[str, Any]:
        path = self.folder / "row.json"
        return json.loads(path.read_text()) if path.exists() else {"target": self.loop.name}

    def ready(self) -> bool:
        """Whether it waits for its turn, or has ended or taken too long."""
        return self.row().get("step") == WAITING or self._over()

    def measured(self) -> dict[str, Any]:
        if self.process.poll() is None:
            self.since = time.monotonic()
            assert self.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # one that has ended says why itself
                self.process.stdin.write(b"go\n")
                self.process.stdin.close()
            while not self._over():
                time.sleep(_POLL)
        self.output.close()
        row = self.row()
        step = row.get("step", "start")
        # XLA's own programs of CUDA graphs may fail under the profiler, which comes last
        if step.startswith("profile") and "span_us" in row:
            row["unprofiled"], row["activity"] = step, row.get("activity", {})
        elif step != "done":
            text = (self.folder / "output").read_text(errors="replace")[-600:]
            how = self.failure or f"ended with {self.process.returncode}"
            row["failure"] = f"{how} in step '{row.get('step', 'start')}'"
            row["output"] = text
        return row

    def _over(self) -> bool:
        if self.process.poll() is None and time.monotonic() - self.since > self.limit:
            self.process.kill()
            self.process.wait()
            self.failure = f"stopped after {self.limit:g} s"
        return self.process.poll() is not None


def measure(loops: Sequence[Loop], jobs: int, repeats: int, limit: float) -> list[dict[str, Any]]:
    """A row per loop: `jobs` of them are compiled side by side, then measured in turn."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for first in range(0, len(loops), jobs):
            workers = [
                Worker(one, Path(name), repeats, limit) for one in loops[first : first + jobs]
            ]
            while not all(worker.ready() for worker in workers):
                time.sleep(_POLL)
            for worker in workers:
                rows.append(worker.measured())
                print(line(rows[-1]), flush=True)
    return rows


HEAD = (
    "| loop | form | whole | span us: xla | fs | gain | wall us: xla | fs | gain "
    "| kernels: xla | fs | compile s: xla | fs | right |\n" + "|---" * 14 + "|"
)


def line(row: dict[str, Any]) -> str:
    """A row as Markdown; what failed says why."""
    if "failure" in row:
        return f"| {row['target']} | {row['failure']} |" + " |" * 12
    cells: list[str] = [row["target"], row["form"], str(sum(p["loops"] for p in row["loops"]))]
    for key in ("span_us", "wall_us"):
        cells += [f"{v:.1f}" if v else "-" for v in map(row[key].get, ("xla", "fusionstitch"))]
        value = gain(row, key)
        cells.append(f"{value:.2f}" if value else "-")
    for side in ("xla", "fusionstitch"):
        found = row["activity"].get(side)
        cells.append(str(found["kernels"]) if found else "-")
    cells += [str(row["compile_s"][side]) for side in ("xla", "fusionstitch")]
    return "| " + " | ".join([*cells, "no" if row["check"]["wrong"] else "yes"]) + " |"


def gain(row: dict[str, Any], key: str) -> float | None:
    """How many times faster than XLA; None where one side was not measured."""
    xla, ours = (row.get(key, {}).get(side) for side in ("xla", "fusionstitch"))
    return xla / ours if xla and ours else None


def planned(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean of what planning takes, as a share of XLA's compile of the program."""
    pairs = [(row.get("planned_s"), row.get("compile_s", {}).get("xla")) for row in rows]
    shares = [ours / xla for ours, xla in pairs if ours and xla]
    return {"programs": len(shares), "share": readings.mean(shares)}


def means(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the gains by form, of those that were measured."""
    found: dict[str, Any] = {}
    for form in ("all", *FORMS):
        for key in ("span_us", "wall_us"):
            own = [gain(row, key) for row in rows if form in ("all", row.get("form"))]
            gains = [one for one in own if one]
            mean = readings.mean(gains)
            found.setdefault(form, {})[key] = {"programs": len(gains), "gain": mean}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loops", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="loops or kinds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    parser.add_argument("--repeats", type=int, default=9, help="rounds of wall times")
    parser.add_argument("--jobs", type=int, default=8, help="compiled side by side")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds to compile, to measure")
    parser.add_argument("--by-hand", action="store_true", help="also the hand-written kernels")
    parser.add_argument("--check", action="store_true", help="small sizes under the emulator")
    parser.add_argument("--commit", help="the commit, where the checkout has no git")
    asked = parser.parse_args()
    try:
        loops = find(asked.only)
    except ValueError as error:
        parser.error(str(error))
    if asked.check:
        failed = [text for one in loops if (text := check(one))]
        print("\n".join(failed) or f"{len(loops)} loops are right")
        return int(bool(failed))
    print(HEAD)
    rows = measure(loops, asked.jobs, asked.repeats, asked.limit)
    results: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.loops", *sys.argv[1:]]),
        "environment": environment.describe(asked.commit),
        "means": means(rows),
        "planned": planned(rows),
        "rows": rows,
    }
    path = asked.json or Path("benchmarks", "results", "loops.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    results_file.write(path, results)  # before what may take too long
    print(json.dumps(results["means"], indent=1))
    if asked.by_hand:
        command = [sys.executable, "-m", "benchmarks.loops.by_hand"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = done.stdout if done.returncode == 0 else done.stderr
        results["by_hand"] = json.loads(text) if done.returncode == 0 else text[-500:]
        print(results["by_hand"])
        results_file.write(path, results)
    return int(any("failure" in row or row["check"]["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
