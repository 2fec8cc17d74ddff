"""What a later call costs the host beside jax.jit's: python -m benchmarks.later_calls --json FILE.

Each process takes both sides' calls in turns, the best batch of several; a figure is the median of
the processes, which differ by more than a call of a kernel costs: the least and the most are told
too. All patterns are stitched (scorer "paper"), so that programs tell what a custom call costs. The
exit status is 1 where the bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import environment, results_file

#: What a call may cost more than jax.jit's. None on the emulator, which runs kernels on a CPU.
BARS_US = {"cuda": 1.0, "auto": 1.0, "emulate": None}
_CALLS = 200
_ROWS, _WIDE = 64, 512


@dataclass(frozen=True)
class Program:
    """A function of so many square arrays."""

    run: Callable[..., Any]
    arrays: int = 1
    rows: int = _ROWS


def _nothing(x: Any) -> Any:
    return x @ x


def _one(x: Any) -> Any:
    """Rows beside columns, which XLA has several kernels for."""
    import jax

    return jax.nn.softmax(x), x.sum(0)


def _copies(*xs: Any) -> Any:
    """Arrays in and out, one op each."""
    return [x @ x for x in xs]


PROGRAMS: Mapping[str, Program] = {
    "nothing": Program(_nothing),
    "one pattern": Program(_one),
    "16 products": Program(_copies, 16, _WIDE),
}


def measure(name: str, backend: str, batches: int) -> dict[str, float]:
    """Microseconds of a call of each side in this process, the custom calls of ours and the
    arrays in and out."""
    import jax
    import jax.numpy as jnp

    import fusionstitch as fs

    program = PROGRAMS[name]
    square = [[0.5] * program.rows] * program.rows
    xs = [jax.block_until_ready(jnp.asarray(square, jnp.float32)) for _ in range(program.arrays)]
    ours = fs.jit(program.run, options=fs.Options(backend=backend, scorer="paper"))
    sides = {"xla_us": jax.jit(program.run), "fs_us": ours}
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(batches):
        for side, jitted in sides.items():
            result = jax.block_until_ready(jitted(*xs))
            begun = time.perf_counter()
            for _ in range(_CALLS):
                result = None
                result = jitted(*xs)
            spent = time.perf_counter() - begun
            jax.block_until_ready(result)
            best[side] = min(best[side], 1e6 * spent / _CALLS)
    kernels = len(ours.lower(*xs).compile().kernels)
    return {**best, "custom_calls": kernels, "arrays": len(xs) + len(jax.tree.leaves(result))}


def process(backend: str, batches: int, cache: Path) -> dict[str, dict[str, float]]:
    """What a process of its own measured of each program, the best of so many batches of calls."""
    own = {"FUSIONSTITCH_CACHE_DIR": str(cache), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-m", "benchmarks.later_calls"]
    done = subprocess.run(
        [*command, "--worker", "--backend", backend, "--batches", str(batches)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **own},
    )
    if done.returncode:
        raise RuntimeError(f"A process of benchmarks.later_calls failed:\n{done.stderr}")
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(runs: Sequence[Mapping[str, Mapping[str, float]]], bar_us: float | None) -> list[Any]:
    """A row per program: the medians of the processes, and how far apart the differences are."""
    found = []
    for name in runs[0]:
        own = [run[name] for run in runs]
        overs = [one["fs_us"] - one["xla_us"] for one in own]
        row = {key: statistics.median(one[key] for one in own) for key in own[0]}
        least, most = min(overs), max(overs)
        over = {"over_us": statistics.median(overs), "least_us": least, "most_us": most}
        found.append({"program": name, **row, **over, "bar_us": bar_us})
    return found


def misses(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bars that do not hold, in words."""
    return [
        f"{row['program']}: {row['over_us']:.2f} us over jax.jit"
        for row in found
        if row["bar_us"] is not None and row["over_us"] > row["bar_us"]
    ]


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| program | arrays | custom calls | call us: jax | fs | over | least | most | bar |",
        "|---|" + "--:|" * 8,
    ]
    for row in found:
        keys = ("xla_us", "fs_us", "over_us", "least_us", "most_us")
        figures = " | ".join(f"{row[key]:.2f}" for key in keys)
        bar = "-" if row["bar_us"] is None else f"{row['bar_us']:g}"
        counts = f"{row['arrays']:.0f} | {row['custom_calls']:.0f}"
        lines.append(f"| {row['program']} | {counts} | {figures} | {bar} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.later_calls", description=__doc__)
    default = os.environ.get("FUSIONSTITCH_BACKEND") or "auto"
    parser.add_argument("--backend", default=default, choices=BARS_US)
    parser.add_argument("--rounds", type=int, default=9, help="processes")
    parser.add_argument("--batches", type=int, default=40, help=f"batches of {_CALLS} calls")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--commit", help="the commit, where git is not at hand")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.worker:
        print(json.dumps({name: measure(name, asked.backend, asked.batches) for name in PROGRAMS}))
        return 0
    with tempfile.TemporaryDirectory(prefix="fusionstitch-") as cache:
        runs = [process(asked.backend, asked.batches, Path(cache)) for _ in range(asked.rounds)]
    found = rows(runs, BARS_US[asked.backend])
    print(table(found))
    for said in misses(found):
        print(said)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        command = " ".join(["python -m benchmarks.later_calls", *sys.argv[1:]])
        how = {"command": command, "backend": asked.backend, "rounds": asked.rounds}
        described = {"environment": environment.describe(asked.commit), **how, "calls": found}
        results_file.write(asked.json, described)
    return int(bool(misses(found)))


if __name__ == "__main__":
    sys.exit(main())
