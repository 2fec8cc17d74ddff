"""Loops in each of their forms on a GPU, modelled and measured: what the model's prices of loops
are compared with. python -m benchmarks.loops.by_form [NAME ...] --json FILE

Each program has a process of its own in each form. They compile side by side and are measured one
at a time.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.loops.forced import taken
from benchmarks.loops.table import Loop, find
from fusionstitch.codegen.whiles import generate

#: Whose loops they are: XLA's, or ours in a form.
FORMS = ("xla", *generate.FORMS)
#: Runs of which the median counts.
RUNS = 7


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """While it lasts no other process measures."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured_form(loop: Loop, name: str, lock: Path) -> dict[str, Any]:
    """A program's loops in one form: the microseconds of a call by the model, where one pattern
    holds all loops, and as measured. In the form "xla" they are XLA's."""
    import jax

    import fusionstitch as fs
    from benchmarks.loops.spans import spans_us
    from benchmarks.loops.worker import Side, reasons, stitched_loops
    from fusionstitch.accuracy import relative_error

    leaves = jax.tree.leaves(loop.program(loop.xla)[1])
    xla = Side(loop, jax.jit, loop.xla)
    row: dict[str, Any] = {}
    if name == "xla":
        with turn(lock):
            row["span_us"] = statistics.median(spans_us(xla.module(), leaves, RUNS))
        return row
    modelled: list[float] = []
    with taken(name, modelled):
        ours = Side(loop, fs.jit, loop.xla)
    row["loops"] = len(stitched_loops(ours.run))
    row["compile_s"] = ours.compile_s
    if not row["loops"]:
        return {**row, "left": reasons(ours.run)}
    row["kernels"] = [k.template for k in ours.run.stitched.kernels]
    row["error"] = max(map(relative_error, ours.result(), xla.result()))
    if row["loops"] == 1:
        row["modelled_us"] = modelled[-1]
    with turn(lock):
        row["span_us"] = statistics.median(spans_us(ours.module(), leaves, RUNS))
    return row


def measured(case: tuple[Loop, str], folder: Path, limit: float) -> dict[str, Any]:
    """The row of a program in a form, by a process of its own with a cache of its own: what became
    of a program is kept there."""
    loop, form = case
    command = [sys.executable, "-m", "benchmarks.loops.by_form", loop.name]
    own = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "EQX_ON_ERROR": "nan",
        "FUSIONSTITCH_CACHE_DIR": str(folder / f"{loop.name} {form}"),
    }
    row: dict[str, Any] = {"target": loop.name, "form": form}
    try:
        done = subprocess.run(
            [*command, "--form", form, "--lock", str(folder / "lock")],
            capture_output=True,
            text=True,
            timeout=limit,
            env=os.environ | own,
            check=False,
        )
        lines = done.stdout.splitlines()
        row |= json.loads(lines[-1]) if lines else {"failure": done.stderr[-300:]}
    except subprocess.TimeoutExpired:
        row["failure"] = f"stopped after {limit:g} s"
    print(line(row), flush=True)
    return row


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    span, model = row.get("span_us"), row.get("modelled_us")
    ratio = f"{math.log2(model / span):+.2f}" if span and model else ""
    numbers = [f"{x:10.1f}" if x else " " * 10 for x in (span, model)]
    rest = row.get("failure") or row.get("left") or [row.get("kernels", ""), row.get("error", "")]
    return f"{row['target']:24s} {row['form']:6s} {' '.join(numbers)} {ratio:6s} {rest!s:.100s}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="loops or kinds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    parser.add_argument("--jobs", type=int, default=8, help="programs compiled side by side")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a program")
    parser.add_argument("--commit", help="the commit, where the checkout has no git")
    parser.add_argument("--form", help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.form:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(json.dumps(measured_form(find(asked.names)[0], asked.form, asked.lock)))
        sys.stdout.flush()
        os._exit(0)  # what is measured is written
    cases = list(product(find(asked.names), FORMS))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        rows = list(pool.map(lambda case: measured(case, Path(folder), asked.limit), cases))
    if asked.json:
        command = " ".join(["python -m benchmarks.loops.by_form", *sys.argv[1:]])
        described = environment.describe(asked.commit)
        results = {"command": command, "environment": described, "rows": rows}
        asked.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
