"""What the guard is worth on programs that nothing was fitted to, and what it costs.

python -m benchmarks.guard [NAME...] --json FILE [--total S] [--dry]
python -m benchmarks.guard --show FILE

Every program of `benchmarks/unseen` under jax.jit, with scorer="guarded" and with scorer="model":
GPU time (kernels and copies, by the profiler) and wall time of a call, each measured several times,
the best run of each side; the largest difference of a result from XLA's, and whether it is more
than rounding; the seconds that our pass takes of a compile that knows nothing of the program, and
of one in a second process, over XLA's own compile. JAX's persistent cache is off. The exit status
is 1 where a bar does not hold. --dry runs the programs on the CPU and plans them for an H200;
--show prints what a file holds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment, results_file
from benchmarks.unseen.table import find

#: The least speed over XLA's of any program, and the most that compiling may take over XLA's.
BARS = {"gpu": 0.97, "wall": 0.95, "first": 2.0, "second": 0.1}
Row = dict[str, Any]


def rows_of(what: str, names: Sequence[str], cache: str, end: float) -> Iterator[Row]:
    """The rows of a worker; where it dies, another one goes on after the program it died of."""
    left = list(names)
    env = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    env |= {"FUSIONSTITCH_CACHE_DIR": cache, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    while left and time.monotonic() < end:
        command = [sys.executable, "-u", "-m", "benchmarks.guard_worker", what, *left]
        begun = ""
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                if not line.startswith("{"):
                    continue
                row = json.loads(line)
                begun = row.get("begun", "")
                if not begun:
                    left.remove(row["name"])
                    yield row
                if time.monotonic() > end:
                    worker.kill()
        if time.monotonic() > end:
            break
        if left:
            failed = begun or left[0]
            left.remove(failed)
            yield {"name": failed, "failure": f"the process ended with {worker.returncode}"}


def speed(row: Mapping[str, Any], what: str, scorer: str) -> float | None:
    """How many times as fast as XLA."""
    times = row.get(f"{what}_us")
    return times["xla"] / times[scorer] if times else None


def _stitched(row: Mapping[str, Any], what: str, scorer: str) -> float | None:
    """The speed of a program with a pattern: without one it is XLA's own executable, compiled
    twice, and how far its times lie apart is the noise of the run."""
    return speed(row, what, scorer) if row.get(scorer, {}).get("patterns") else None


def share(row: Mapping[str, Any], scorer: str = "guarded") -> float | None:
    """Our part of a compile over XLA's compile."""
    spent = row.get(f"{scorer}_pass_s")
    return None if spent is None else spent / row["xla_s"]


def mean(values: Sequence[float | None], least: float = 0.0) -> float | None:
    """The geometric mean of those that are known, each taken for `least` at least."""
    known = [max(least, value) for value in values if value is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def summary(rows: Sequence[Row], again: Sequence[Row]) -> Row:
    """Means, the programs that miss a bar, and the noise: the least and the greatest speed of
    programs that nothing was stitched in."""
    found: Row = {"programs": len(rows), "failed": [r["name"] for r in rows if "failure" in r]}
    # without a pattern it is XLA's own program, which may add up in another order each time
    found["wrong"] = [
        r["name"]
        for r in rows
        if any(one["wrong"] and r[s]["patterns"] for s, one in r.get("check", {}).items())
    ]
    for what in ("gpu", "wall"):
        noise = []
        for scorer in ("guarded", "model"):
            speeds = {r["name"]: speed(r, what, scorer) for r in rows}
            found[f"{what} {scorer}"] = mean(list(speeds.values()))
            stitched = {r["name"]: s for r in rows if (s := _stitched(r, what, scorer))}
            below = {n: s for n, s in stitched.items() if s < BARS[what]}
            found[f"{what} {scorer} below {BARS[what]}"] = below
            noise += [s for n, s in speeds.items() if s is not None and n not in stitched]
        found[f"{what} noise"] = [min(noise), max(noise)] if noise else None
    # a pass that takes less than a hundredth of XLA's compile counts as that
    found["first"] = mean([share(r) for r in rows], 0.01)
    found["first model"] = mean([share(r, "model") for r in rows], 0.01)
    found["second"] = mean([share(r) for r in again], 0.01)
    return found


def misses(found: Mapping[str, Any]) -> list[str]:
    """The bars that do not hold, in words."""
    said = [f"{name} failed" for name in found["failed"]]
    said += [f"{name}: wrong numbers" for name in found["wrong"]]
    for what in ("gpu", "wall"):
        for name, value in found[f"{what} guarded below {BARS[what]}"].items():
            said.append(f"{name}: {value:.2f} times as fast as XLA ({what})")
    for what in ("first", "second"):
        if found[what] is not None and found[what] > BARS[what]:
            said.append(f"compiling, {what} process: {found[what]:.2f} of XLA's, bar {BARS[what]}")
    return said


def table(rows: Sequence[Row], again: Sequence[Row]) -> str:
    """The rows as Markdown."""
    seconds = {row["name"]: row for row in again}
    lines = [
        "| program | XLA GPU us | guarded | model | XLA wall us | guarded | model "
        "| patterns: guarded | model | measured | difference | XLA compile s | first | second |",
        "|---|" + "--:|" * 13,
    ]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['name']} | {row['failure']} |" + " |" * 12)
            continue
        cells = [row["name"]]
        for what in ("gpu", "wall"):
            cells.append(_number((row[f"{what}_us"] or {}).get("xla"), 1))
            cells += [_number(speed(row, what, s)) for s in ("guarded", "model")]
        cells += [str(row[s]["patterns"]) for s in ("guarded", "model")]
        cells += [str(row["guarded"]["measured"]), f"{row['check']['guarded']['difference']:.1e}"]
        cells += [_number(row["xla_s"]), _number(share(row))]
        cells.append(_number(share(seconds.get(row["name"], {}))))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs, or how they begin: all if none")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--total", type=float, default=1e9, help="seconds of the first processes")
    parser.add_argument("--commit", help="the commit, where git is not at hand")
    parser.add_argument(
        "--show", type=Path, help="print the table of this file, and measure nothing"
    )
    parser.add_argument("--dry", action="store_true", help="on the CPU, without times")
    asked = parser.parse_args(arguments)
    if asked.show is not None:
        content = json.loads(asked.show.read_text())
        return _report(content["rows"], content["second"])
    try:
        names = find(asked.names)
    except ValueError as error:
        parser.error(str(error))
    end = time.monotonic() + asked.total
    with tempfile.TemporaryDirectory(prefix="fusionstitch-") as cache:
        if asked.dry:
            return _dry(names, cache)
        rows: list[Row] = []
        again: list[Row] = []
        for found, what in ((rows, "first"), (again, "second")):
            known = names if what == "first" else [r["name"] for r in rows if "failure" not in r]
            for row in rows_of(what, known, cache, end if what == "first" else math.inf):
                found.append(row)
                print(row["name"], row.get("failure", ""), flush=True)
                _write(asked, rows, again)
    return _report(rows, again)


def _report(rows: Sequence[Row], again: Sequence[Row]) -> int:
    print(table(rows, again))
    found = summary(rows, again)
    print(json.dumps(found, indent=1))
    for said in misses(found):
        print(said)
    return int(bool(misses(found)))


def _write(asked: argparse.Namespace, rows: Sequence[Row], again: Sequence[Row]) -> None:
    if asked.json is None:
        return
    content = {
        "command": f"python -m benchmarks.guard {' '.join(sys.argv[1:])}",
        "environment": environment.describe(asked.commit),
        "summary": summary(rows, again),
        "rows": rows,
        "second": again,
    }
    results_file.write(asked.json, content)


def _dry(names: Sequence[str], cache: str) -> int:
    wrong = False
    for row in rows_of("dry", names, cache, math.inf):
        bad = "failure" in row or not row["finite"] or bool(row["fallbacks"])
        wrong |= bad
        print(f"{'! ' if bad else '  '}{row}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
