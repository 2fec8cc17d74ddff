"""What each composition of the paper adds: kernels of a program as more of them are allowed.

python -m benchmarks.ablation [TARGET...] [--suite NAME...] [--device h200] [--jobs N] [--json FILE]

Programs are planned, not run, so no GPU is needed: XLA's kernels for what is not stitched, and all
times, are the model's.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks import arguments, readings, results_file
from benchmarks.environment import describe
from benchmarks.workloads import Workload, module_of

_ALONE = {"packing": False, "exploratory": False}
#: Steps of the ladder, each with what the one before it has: the paper's, then what goes beyond it.
LADDER: Mapping[str, Mapping[str, Any]] = {
    "thread": {"scope": "thread", **_ALONE},
    "+ warp": {"scope": "warp", **_ALONE},
    "+ block": {"scope": "block", **_ALONE},
    "+ packing": {"scope": "block", "packing": True, "exploratory": False},
    "+ exploratory": {"scope": "block"},
    "+ grid": {},
}


def ladder(workload: Workload, device: str) -> dict[str, Any]:
    """Kernels and microseconds by the model: XLA's, and on each step."""
    from fusionstitch.compiler import builders, core
    from fusionstitch.options import Options
    from fusionstitch.reports.modelled import modelled_counts, modelled_times

    module = module_of(workload.target)
    row: dict[str, Any] = {"target": workload.target, "steps": {}}
    for name, switches in LADDER.items():
        options = Options(device=device, **switches)
        result = core.stitch(module, options, builders.profile(options), None)
        xla, ours = modelled_counts(result)
        xla_us, ours_us = modelled_times(result)
        row["xla"] = {"kernels": xla.kernels, "us": round(xla_us, 1)}
        row["steps"][name] = {"kernels": ours.kernels, "us": round(ours_us, 1)}
    return row


def rises(row: Mapping[str, Any]) -> list[str]:
    """Steps that have more kernels than the one before them."""
    counts = [(name, step["kernels"]) for name, step in row["steps"].items()]
    return [name for (_, before), (name, now) in itertools.pairwise(counts) if now > before]


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Modelled kernels per call under XLA and on each step."""
    head = ["workload", "XLA", *LADDER]
    body = [
        [
            row["target"],
            readings.plain(row["xla"]["kernels"]),
            *(readings.plain(step["kernels"]) for step in row["steps"].values()),
        ]
        for row in rows
    ]
    means = [
        readings.fixed(
            readings.mean([row["xla"]["kernels"] / row["steps"][name]["kernels"] for row in rows])
        )
        for name in LADDER
    ]
    return readings.table(head, [*body, ["XLA / fs, geometric mean", "", *means]])


def main() -> int:
    parser = arguments.parser("benchmarks.ablation", __doc__)
    parser.add_argument("--device", default="h200", help="the profile to plan for")
    parser.add_argument("--jobs", type=int, default=1, help="programs planned side by side")
    options, workloads = arguments.parse(parser)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(ladder, workloads, [options.device] * len(workloads)))
    print("\n".join(table(rows)))
    if options.json:
        results = {"environment": describe(), "device": options.device, "rows": rows}
        results_file.write(options.json, results)
    for row in rows:
        for name in rises(row):
            print(f"{row['target']}: more kernels on the step {name}", file=sys.stderr)
    return int(any(map(rises, rows)))


if __name__ == "__main__":
    sys.exit(main())
