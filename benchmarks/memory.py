"""Peak device memory of the examples, stitched and by XLA: python -m benchmarks.memory --json FILE.

Each side of each program runs in a process of its own, so that the allocator's peak is its own.
The exit status is 1 if a stitched program needs more than XLA's: the table says which.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.workloads import WORKLOADS, Workload, find

#: More than XLA's by less than this counts as equal: buffers are rounded up, one by one.
TOLERANCE_BYTES = 64 << 10
SIDES = ("xla", "fusionstitch")
#: Calls after which the allocator has seen all there is.
_CALLS = 3
_LIMIT_S = 90.0


def planned(compiled: Any) -> dict[str, int]:
    """Bytes by XLA's buffer assignment; `peak`: arguments, results that are none, temporaries."""
    found = compiled.memory_analysis()
    arguments, results = found.argument_size_in_bytes, found.output_size_in_bytes
    peak = arguments + results - found.alias_size_in_bytes + found.temp_size_in_bytes
    return {"temp": found.temp_size_in_bytes, "peak": peak}


def measure(workload: Workload, jit: Callable[..., Any]) -> dict[str, int | None]:
    """Bytes that a program needs: `temp` and `peak` as planned, `allocated` the device allocator's
    peak over some calls less what was in use before (null where the device does not tell)."""
    import jax

    from fusionstitch.targets import load

    fun, args = load(workload.path)
    donated: dict[str, Any] = {"donate_argnums": 0} if workload.chain else {}
    compiled = jit(fun, **donated).lower(*args).compile()
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
    return {**planned(compiled), "allocated": allocated}


def compare(workload: Workload) -> dict[str, Any]:
    """One row: the bytes of both sides, or why there are none."""
    row: dict[str, Any] = {"target": workload.target}
    for side in SIDES:
        run = [sys.executable, "-m", "benchmarks.memory", "--worker", side, workload.target]
        variables = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        try:
            done = subprocess.run(
                run, capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=variables
            )
        except subprocess.TimeoutExpired:
            return {**row, "failure": f"{side} took longer than {_LIMIT_S:.0f} s"}
        if done.returncode:
            return {**row, "failure": f"{side}: {done.stderr.strip().splitlines()[-1]}"}
        row[side] = json.loads(done.stdout.splitlines()[-1])
    return row


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
        rows = list(pool.map(compare, chosen))
    print(table(rows))
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        data = {"environment": environment.describe(), "rows": rows}
        asked.json.write_text(json.dumps(data, indent=1) + "\n")
    return int(any(exceeds(row) or "failure" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
