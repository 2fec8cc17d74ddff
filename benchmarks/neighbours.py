"""How well estimates rank the schedules of one pattern: neighbours of the default one, measured.

    python -m benchmarks.neighbours write known|others FOLDER [JOBS]
                                                 cubins for `benchmarks/revisions.py times`
    python -m benchmarks.neighbours rank known|others TIMES TIMES
                                                 two runs on a GPU

The patterns are whole programs of the examples and the regions of the replay that take longest
("known": prices are fitted to these), or the regions that come next ("others"): where starting a
kernel is all there is, there is nothing to rank. `rank` prints for each pattern
Spearman's rank correlation of modelled and measured times, that of the two runs, and what schedules
take beside the fastest one: the default, that of the least modelled time, and what compiling takes
(`codegen/search/compared.py`) of those that were measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import readings
from benchmarks.revisions import write
from benchmarks.workloads import Workload, find
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import draft, plan_kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.search.compared import SHARE, others
from fusionstitch.codegen.search.neighbours import neighbours
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
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
#: Regions of the replay, by the time they take.
REGIONS = {"known": slice(24), "others": slice(24, 54)}
#: Schedules of a pattern beside the default one and those that compiling looks at.
SCHEDULES = 12
#: Measured times of the replay's kernels, by which regions are chosen.
KNOWN = Path(__file__).parent / "results/h100-2026-11-25-kernels.json"


def whole(workload: Workload) -> Graph:
    """All ops of a program as one region."""
    import jax

    from fusionstitch.commands.targets import load
    from fusionstitch.hlo.importer import from_proto
    from fusionstitch.hlo.inline import inline_calls
    from fusionstitch.hlo.simplify import simplify

    with jax.default_device(jax.devices("cpu")[0]):  # as on a machine without a GPU
        fun, args = load(workload.path)
        lowered = jax.jit(fun).lower(*args).compiler_ir("hlo")
    proto = lowered.as_serialized_hlo_module_proto()  # type: ignore[attr-defined]
    graph = simplify(from_proto(inline_calls(proto)).entry)
    roots = graph.root.operands if graph.root.opcode == "tuple" else (graph.root,)
    outputs = list(dict.fromkeys(o for o in roots if o.opcode != "parameter"))
    ops = [o for o in graph if o.opcode not in ("parameter", "tuple")]
    return region("whole", ops, graph.parameters, outputs)


def patterns(which: str) -> Iterator[tuple[str, Graph]]:
    """The regions of a set by name."""
    from tests.replay.replay import stored

    os.environ.setdefault("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    for target in TARGETS if which == "known" else ():
        [workload] = find([target])
        with contextlib.suppress(CodegenError):
            yield re.sub(r"\W", "_", target), whole(workload)
    times: dict[str, float] = json.loads(KNOWN.read_text())["kernels"]
    regions = {name: graph for name, graph in stored() if name in times}
    longest = sorted(regions, key=lambda name: (-times[name], name))
    for name in longest[REGIONS[which]]:
        yield name, regions[name]


def default(graph: Graph, on: Device) -> Draft:
    """A region's kernel in its default blocks."""
    return Draft.of(plan_kernel(graph, on), CodegenOptions(), on)


def drafts(which: str) -> Iterator[tuple[str, Draft]]:
    """The kernels of a set, by their patterns and digests of their templates, so that another
    commit finds its schedules among those that were measured: the default one, what compiling looks
    at, and some that are spread over all other neighbours."""
    target = device("h200")
    for name, graph in patterns(which):
        with contextlib.suppress(CodegenError):
            first = default(graph, target)
            yield _named(name, first.scheduled.template), first
            templates = [one.template for one in (*offered(first), *_spread(graph, target))]
            for template in dict.fromkeys(templates):
                with contextlib.suppress(CodegenError):
                    found = draft(graph, target, CodegenOptions(template=template))
                    assert isinstance(found, Draft)
                    yield _named(name, template), found


def _named(pattern: str, template: str) -> str:
    return f"{pattern}.{hashlib.sha256(template.encode()).hexdigest()[:10]}"


def _spread(graph: Graph, target: Device) -> Iterator[Scheduled]:
    every = list(neighbours(plan_kernel(graph, target), Settings.of(target, CodegenOptions())))
    step = max(1.0, len(every) / SCHEDULES)
    return (every[int(n * step)] for n in range(min(len(every), SCHEDULES)))


@dataclass(frozen=True)
class Point:
    """A schedule: microseconds as estimated and of two runs; whether compiling could take it."""

    cost: float
    first: float
    second: float
    compared: bool


def points(
    which: str, first: Mapping[str, float], second: Mapping[str, float]
) -> dict[str, list[Point]]:
    """The schedules of each pattern that were measured, the default one, which must be, first."""
    target = device("h200")
    found: dict[str, list[Point]] = {}
    known: dict[str, set[str]] = {}
    for name, one in drafts(which):
        pattern, measured = name.rpartition(".")[0], name in first and name in second
        if pattern not in known:
            known[pattern] = {other.template for other in offered(one)}
            found |= {pattern: []} if measured else {}
        if measured and pattern in found:
            us = cost_us(one.cost, target)
            compared = one.scheduled.template in known[pattern]
            found[pattern].append(Point(us, first[name], second[name], compared))
    return found


def offered(one: Draft) -> Iterator[Scheduled]:
    """The schedules that compiling compares with the default one."""
    return others(one, Settings.of(device("h200"), one.options))


def taken(every: Sequence[Point]) -> Point:
    """What compiling takes."""
    best = min((one for one in every if one.compared), key=lambda one: one.cost, default=None)
    default = every[0]
    return best if best and best.cost < SHARE * default.cost else default


def ranks(which: str, first: Mapping[str, float], second: Mapping[str, float]) -> list[str]:
    """The table of a run, beside another run."""
    rows, found = [], []
    for name, each in points(which, first, second).items():
        best = min(one.first for one in each)
        rhos = [
            spearman([(getattr(one, side), one.first) for one in each])
            for side in ("cost", "second")
        ]
        if None in rhos:
            continue
        chosen = each[0], min(each, key=lambda one: one.cost), taken(each)
        found.append((*(rho or 0.0 for rho in rhos), *(one.first / best for one in chosen)))
        rows.append([name, str(len(each)), f"{best:.1f} us", *(f"{one:.2f}" for one in found[-1])])
    columns = list(zip(*found, strict=True))
    mean = [f"{statistics.fmean(one):.2f}" for one in columns[:2]]
    mean += [readings.fixed(readings.mean(one)) for one in columns[2:]]
    head = ["pattern", "schedules", "fastest", "estimate", "second run"]
    head += ["default / fastest", "estimate's / fastest", "taken / fastest"]
    return readings.table(head, [*rows, ["mean", "", "", *mean]])


def main() -> None:
    match sys.argv[1:]:
        case ["write", which, folder, *jobs]:
            kernels = ((name, one.kernel()) for name, one in drafts(which))
            write(kernels, Path(folder), *map(int, jobs))
        case ["rank", which, first, second]:
            times = (json.loads(Path(file).read_text())["kernels"] for file in (first, second))
            print("\n".join(ranks(which, *times)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
