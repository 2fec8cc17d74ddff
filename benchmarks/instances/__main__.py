"""Instances of one kind of op, each a program of its own, under `jax.jit` and `fs.jit`.

    python -m benchmarks.instances sorting --json FILE [--commit C]      on a GPU, in two minutes
    python -m benchmarks.instances convolutions --json FILE

Microseconds of the device, taken in turns, with XLA's kernels and with the kernels that the plan
has, if it won its trial. The floor reads the arguments once and writes the results.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results_file
from benchmarks.environment import describe
from benchmarks.instances import convolutions, sorting
from benchmarks.instances.instance import Instance
from benchmarks.measuring import in_turns, summary
from benchmarks.paired import ratios

RUNS, ROUNDS, SECONDS = 8, 20, 0.5
#: What an H200's memory moves in a microsecond.
BYTES_PER_US = 4.1e6
#: The programs of each kind.
KINDS: dict[str, Callable[[], dict[str, Instance]]] = {
    "sorting": sorting.programs,
    "convolutions": convolutions.programs,
}


@dataclass(frozen=True)
class Row:
    """One program: microseconds of both sides and of the floor, and the relative error of either
    against float64; None where nothing is rounded."""

    program: str
    shapes: tuple[tuple[int, ...], ...]
    xla: dict[str, float]
    ours: dict[str, float]
    ratio: dict[str, float]
    floor: float
    equal: bool
    errors: dict[str, float] | None
    stitched: int
    first_call_s: dict[str, float]


def measured(name: str, instance: Instance) -> Row:
    """A program under both."""
    import jax

    import fusionstitch as fs
    from fusionstitch.measure.spans import span_us

    draw = np.random.default_rng(0)
    host = [draw.standard_normal(dims).astype(instance.dtype) for dims in instance.shapes]
    args = jax.device_put(host)
    theirs = jax.jit(instance.fun)
    ours = fs.jit(instance.fun)
    first, results = {}, {}
    for side, run in (("xla", theirs), ("ours", ours)):
        since = time.perf_counter()
        results[side] = jax.tree.leaves(jax.block_until_ready(run(*args)))
        first[side] = round(time.perf_counter() - since, 2)
    got, wanted = results["ours"], results["xla"]
    takers = {
        "xla": lambda: span_us(lambda: theirs(*args), RUNS),
        "ours": lambda: span_us(lambda: ours(*args), RUNS),
    }
    times = in_turns(takers, ROUNDS, SECONDS)
    stitched = ours.lower(*args).compile().stitched
    return Row(
        program=name,
        shapes=instance.shapes,
        xla=summary(times["xla"]),
        ours=summary(times["ours"]),
        ratio=ratios(times["xla"], times["ours"]).data(),
        floor=round(1 + sum(x.nbytes for x in (*args, *wanted)) / BYTES_PER_US, 1),
        equal=all(bool((a == b).all()) for a, b in zip(got, wanted, strict=True)),
        errors=errors(instance, host, got, wanted) if instance.rounds else None,
        stitched=len(stitched.stitches) if stitched else 0,
        first_call_s=first,
    )


def errors(instance: Instance, args: Any, ours: Any, xla: Any) -> dict[str, float]:
    """Relative errors of both sides against the program in float64."""
    import jax

    from fusionstitch.accuracy import relative_error

    with jax.enable_x64(True):
        wide = [np.asarray(x, np.float64) for x in args]
        [wanted] = jax.tree.leaves(jax.jit(instance.fun)(*wide))
        host = np.asarray(wanted)
    return {
        side: relative_error(np.asarray(found[0]).astype(np.float64), host)
        for side, found in (("ours", ours), ("xla", xla))
    }


def main() -> None:
    """Measures, prints and writes after each program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instances", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--commit", default="", help="the commit, where the checkout has no git")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, instance in KINDS[given.kind]().items():
        row = measured(name, instance)
        rows.append(asdict(row))
        xla, ours = row.xla["median"], row.ours["median"]
        print(
            f"{name:32} {xla:9.1f} {ours:9.1f} {row.ratio['median']:6.2f}, floor {row.floor:7.1f}, "
            f"{row.stitched} stitched, {list(row.first_call_s.values())} s, "
            f"{row.errors or ('equal' if row.equal else 'NOT EQUAL')}",
            flush=True,
        )
        content = {
            "command": f"python -m benchmarks.instances {' '.join(sys.argv[1:])}",
            "environment": describe(given.commit),
            "rows": rows,
        }
        results_file.write(given.json, content)


if __name__ == "__main__":
    main()
