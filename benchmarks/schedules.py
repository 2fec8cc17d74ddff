"""How well the model ranks schedules: whole programs, with one choice of the tuner changed.

python -m benchmarks.schedules --measure [TARGET...] --json FILE [--seconds S]
python -m benchmarks.schedules FILE

The first measures, on a GPU, every schedule that differs from the default one in a single choice;
the second needs none: it asks the present model about the schedules of such a file and prints
Spearman's rank correlation of its times with the measured ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import readings
from benchmarks.environment import describe
from benchmarks.workloads import Workload, find
from fusionstitch.codegen.generate import CodegenOptions, generate, inspect
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.costmodel.estimate import facts_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.verdict import Verdict
from fusionstitch.tuning.neighbours import neighbours
from fusionstitch.tuning.outcome import spearman

#: Programs that one kernel computes, whose schedules differ.
TARGETS = (
    "softmax.py:rows",
    "norms.py:backward",
    "norms.py:residual_norm_gelu",
    "norms.py:rms_backward",
    "norms.py:batch_backward",
    "cross_entropy.py:vocabulary",
    "black_scholes.py:options",
    "figure1.py:deep",
    "norms.py:forward",
    "figure1.py:original",
    "rmsprop.py:rmsprop100",
    "perceptron.py:train_step",
    "logistic.py:train_step",
)
ROUNDS = 5


def whole(workload: Workload) -> Graph:
    """All ops of a program as one region."""
    import jax

    from fusionstitch.commands.targets import load
    from fusionstitch.hlo.importer import from_proto
    from fusionstitch.hlo.inline import inline_calls
    from fusionstitch.hlo.simplify import simplify

    with jax.default_device(jax.devices("cpu")[0]):  # as on a machine without a GPU
        fun, args = load(workload.path)
        lowered: Any = jax.jit(fun).lower(*args).compiler_ir("hlo")
    graph = simplify(from_proto(inline_calls(lowered.as_serialized_hlo_module_proto())).entry)
    roots = graph.root.operands if graph.root.opcode == "tuple" else (graph.root,)
    outputs = list(dict.fromkeys(o for o in roots if o.opcode != "parameter"))
    ops = [o for o in graph if o.opcode not in ("parameter", "tuple")]
    return region("whole", ops, graph.parameters, outputs)


def schedules(graph: Graph, profile: Device) -> dict[Kernel, Tuning]:
    """The kernels of the default schedule and of those next to it."""
    found: dict[Kernel, Tuning] = {}
    for tuning in (DEFAULT, *neighbours(DEFAULT, profile)):
        try:
            kernel = generate(graph, profile, CodegenOptions(tuning=tuning))
        except CodegenError:
            continue
        found.setdefault(kernel, tuning)
    return found


def prepared(workload: Workload, profile: Device) -> list[tuple[Kernel, Tuning, Any]]:
    """The schedules of a program that can be built, with what came of building them."""
    from fusionstitch.compiler import builders
    from fusionstitch.compiler.built import Built
    from fusionstitch.options import Options

    found = schedules(whole(workload), profile)
    outcomes = builders.cuda(profile, Options())(list(found))
    return [
        (kernel, tuning, built)
        for (kernel, tuning), built in zip(found.items(), outcomes, strict=True)
        if isinstance(built, Built)
    ]


def measure(workloads: Sequence[Workload], seconds: float) -> Iterator[dict[str, Any]]:
    """What each schedule of each program takes, microseconds, and the registers it got, as far as
    about `seconds` last."""
    from fusionstitch.compiler import builders
    from fusionstitch.errors import MeasureError
    from fusionstitch.measure import gpu
    from fusionstitch.options import Options

    deadline = time.monotonic() + seconds
    profile = builders.profile(Options())
    meter = gpu.meters(profile)[0]
    for workload in workloads:
        if time.monotonic() > deadline:
            return
        points = []
        for kernel, tuning, made in prepared(workload, profile):
            if time.monotonic() > deadline:
                break
            try:
                us = round(meter.kernel_us(kernel, made.artifact, ROUNDS), 3)
            except MeasureError:
                continue
            points.append({"tuning": tuning.to_dict(), "us": us, "registers": made.registers})
        yield {"target": workload.target, "points": points}


def ranked(entry: dict[str, Any], profile: Device) -> list[tuple[float, float, str]]:
    """(model, measured, choice) of each schedule that the present version still has."""
    [workload] = find([entry["target"]])
    graph = whole(workload)
    found = []
    for point in entry["points"]:
        tuning = Tuning.from_dict(point["tuning"])
        facts = inspect(graph, profile, CodegenOptions(tuning=tuning))
        if not isinstance(facts, Verdict):
            found.append((facts_us(facts, profile), point["us"], str(tuning)))
    return found


def table(results: dict[str, Any], profile: Device) -> list[str]:
    """Per program: schedules, rank correlation, the model's error, and what its choice loses."""
    rows, rhos, losses = [], [], []
    for entry in results["kernels"]:
        points = ranked(entry, profile)
        rho = spearman([point[:2] for point in points])
        if rho is None:
            continue
        best = min(us for _, us, _ in points)
        chosen = min(points)[1] / best
        error = statistics.median(abs(math.log(model / us)) for model, us, _ in points)
        rhos.append(rho)
        losses.append(chosen)
        rows.append(
            [
                entry["target"],
                str(len(points)),
                f"{rho:.2f}",
                f"{math.exp(error):.2f}",
                f"{points[0][1] / best:.2f}",
                f"{chosen:.2f}",
            ]
        )
    mean = [f"{statistics.mean(rhos):.2f}", "", "", readings.fixed(readings.mean(losses))]
    head = ["program", "schedules", "rank correlation", "model off by", "default / best"]
    return readings.table([*head, "model's choice / best"], [*rows, ["mean", "", *mean]])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.schedules",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="TARGET or FILE")
    parser.add_argument("--measure", action="store_true", help="measure on the GPU at hand")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the times go")
    parser.add_argument("--seconds", type=float, default=120.0, help="for measuring; default: 120")
    parser.add_argument("--device", default="h200", help="the profile of the model")
    parser.add_argument("--commit", help="the commit, where the checkout has no git")
    options = parser.parse_args()
    path = options.json and options.json.resolve()
    files = [] if options.measure else [Path(name).resolve() for name in options.names]
    os.chdir(Path(__file__).parent.parent)
    os.environ.setdefault("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    if not options.measure:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        for file in files:
            print("\n".join(table(json.loads(file.read_text()), device(options.device))))
        return 0
    results: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.schedules", *sys.argv[1:]]),
        "environment": describe(options.commit),
        "kernels": [],
    }
    for entry in measure([find([name])[0] for name in options.names or TARGETS], options.seconds):
        results["kernels"].append(entry)
        print(f"{entry['target']}: {len(entry['points'])} schedules", file=sys.stderr, flush=True)
        if path:
            path.write_text(as_text(results))
    return 0


def as_text(results: dict[str, Any]) -> str:
    """JSON with a schedule per line."""
    head = json.dumps({key: results[key] for key in results if key != "kernels"}, indent=1)
    entries = []
    for entry in results["kernels"]:
        points = ",\n    ".join(map(json.dumps, entry["points"]))
        target = json.dumps(entry["target"])
        entries.append(f'  {{"target": {target}, "points": [\n    {points}]}}')
    kernels = ",\n".join(entries)
    return head.removesuffix("\n}") + f',\n "kernels": [\n{kernels}\n ]\n}}\n'


if __name__ == "__main__":
    sys.exit(main())
