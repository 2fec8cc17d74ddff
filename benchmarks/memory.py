"""Peak device memory of the examples, stitched and by XLA: python -m benchmarks.memory --json FILE.

Each side of each program runs in processes of its own, so that the allocator's peak is its own: one
compiles it, and another takes it out of JAX's compilation cache, so that what XLA allocates to tune
its kernels while compiling counts for nothing. The exit status is 1 if a stitched program needs
more than XLA's: the table says which.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import environment, results_file
from benchmarks.workloads import WORKLOADS, Workload, find
from fusionstitch.reports.memory import TOLERANCE_BYTES, needed_bytes, temporary_bytes

SIDES = ("xla", "fusionstitch")
#: Calls after which the allocator has seen all there is.
_CALLS = 3
_MISSED = "/jax/compilation_cache/cache_misses"
#: JAX keeps everything that it compiles.
_KEEP = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def measure(workload: Workload, jit: Callable[..., Any]) -> dict[str, int | None]:
    """Bytes that a program needs: `temp` and `peak` as planned, `allocated` the device allocator's
    peak over some calls less what was in use before (null where the device does not tell). With
    them `compiled`, the number of programs that were compiled and not found in JAX's cache."""
    import jax

    from fusionstitch.commands.targets import load

    missed: list[str] = []
    jax.monitoring.register_event_listener(
        lambda event, **_: missed.append(event) if event == _MISSED else None
    )
    fun, args = load(workload.path)
    compiled = jit(fun, **workload.jit_keywords).lower(*args).compile()
    args = jax.block_until_ready(jax.device_put(args))
    [device] = {leaf.device for leaf in jax.tree.leaves(args)}
    arguments = sum(leaf.nbytes for leaf in jax.tree.leaves(args))
    before = device.memory_stats()
    for _ in range(_CALLS):
        result = jax.block_until_ready(compiled(*args))
        if workload.chain:
            args = (workload.next_state(result), *args[1:])
    after = device.memory_stats()
    allocated = None
    if before and after:
        allocated = after["peak_bytes_in_use"] - before["bytes_in_use"] + arguments
    return {
        "temp": temporary_bytes(compiled),
        "peak": needed_bytes(compiled),
        "allocated": allocated,
        "compiled": len(missed),
    }


def compare(workload: Workload, limit_s: float) -> dict[str, Any]:
    """One row: the bytes of both sides, or why there are none."""
    row: dict[str, Any] = {"target": workload.target}
    for side in SIDES:
        found = _side(workload, side, limit_s)
        if isinstance(found, str):
            return {**row, "failure": f"{side}: {found}"}
        row[side] = found
    return row


def _side(workload: Workload, side: str, limit_s: float) -> dict[str, Any] | str:
    """The bytes of a side, or why there are none: planned as compiled, allocated as cached."""
    until = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="fusionstitch-") as cache:
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_COMPILATION_CACHE_DIR": cache}
        found: list[dict[str, Any]] = []
        for _ in ("compiled", "cached"):
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.memory", "--worker", side, workload.target],
                    capture_output=True,
                    text=True,
                    timeout=max(0.0, until - time.monotonic()),
                    check=False,
                    env={**os.environ, **_KEEP, **variables},
                )
            except subprocess.TimeoutExpired:
                return f"longer than {limit_s:g} s"
            if done.returncode:
                return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            found.append(json.loads(done.stdout.splitlines()[-1]))
    compiled, cached = found
    if cached["compiled"]:
        return f"{cached['compiled']} of its programs were not found in JAX's compilation cache"
    return {"temp": compiled["temp"], "peak": compiled["peak"], "allocated": cached["allocated"]}


def exceeds(row: Mapping[str, Any]) -> list[str]:
    """What of a row is larger than XLA's: "peak" as planned, "allocated"."""
    if "failure" in row:
        return []
    ours, theirs = row["fusionstitch"], row["xla"]
    known = [name for name in ("peak", "allocated") if ours[name] is not None]
    return [name for name in known if ours[name] > theirs[name] + TOLERANCE_BYTES]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown, in MB."""
    lines = [
        "| workload | temp: XLA | fs | peak: XLA | fs | allocated: XLA | fs | more than XLA |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['target']} | | | | | | | {row['failure']} |")
            continue
        cells = [
            "-" if row[side][name] is None else f"{row[side][name] / 1e6:.2f}"
            for name in ("temp", "peak", "allocated")
            for side in SIDES
        ]
        more = ", ".join(exceeds(row)) or "no"
        lines.append(f"| {row['target']} | {' | '.join(cells)} | {more} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", help="targets of the examples; all short ones if none"
    )
    parser.add_argument("--jobs", type=int, default=2, help="programs side by side")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for a program's side")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    chosen = find(asked.targets) if asked.targets else [w for w in WORKLOADS if not w.long]
    if asked.worker:
        import jax

        import fusionstitch as fs

        print(json.dumps(measure(chosen[0], jax.jit if asked.worker == "xla" else fs.jit)))
        return 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        rows = list(pool.map(lambda workload: compare(workload, asked.limit), chosen))
    print(table(rows))
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        data = {"environment": environment.describe(), "rows": rows}
        results_file.write(asked.json, data)
    return int(any(exceeds(row) or "failure" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
