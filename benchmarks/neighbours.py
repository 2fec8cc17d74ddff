"""How well the account ranks the schedules of one pattern: neighbours of the default one, measured.

    python -m benchmarks.neighbours write FOLDER [JOBS]   cubins for `benchmarks/revisions.py times`
    python -m benchmarks.neighbours rank TIMES TIMES      two runs on a GPU

The patterns are whole programs of `benchmarks/schedules.py` and regions of the replay, those that
take longest: where starting a kernel is all there is, there is nothing to rank. `rank` prints for
each pattern Spearman's rank correlation of modelled and measured times, that of the two runs, and
what the schedule of the least modelled time takes beside the fastest one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import readings
from benchmarks.revisions import write
from benchmarks.schedules import TARGETS, whole
from benchmarks.workloads import find
from fusionstitch.codegen.generate import Draft, draft
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.codegen.variants import variants
from fusionstitch.costmodel.account_time import account_us
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.estimate import facts_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.tuning.outcome import spearman

#: Regions of the replay, and schedules of a pattern beside the default one.
REGIONS, SCHEDULES = 24, 20
#: Measured times of the replay's kernels, by which regions are chosen.
KNOWN = Path(__file__).parent / "results/h100-2026-11-25-kernels.json"


def patterns() -> Iterator[tuple[str, Graph]]:
    """The regions by name."""
    from tests.replay.replay import stored

    os.environ.setdefault("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    for target in TARGETS:
        [workload] = find([target])
        with contextlib.suppress(CodegenError):
            yield re.sub(r"\W", "_", target), whole(workload)
    times: dict[str, float] = json.loads(KNOWN.read_text())["kernels"]
    regions = {name: graph for name, graph in stored() if name in times}
    longest = sorted(regions, key=lambda name: (-times[name], name))
    for name in longest[:REGIONS]:
        yield name, regions[name]


def drafts() -> Iterator[tuple[str, Draft]]:
    """The kernels by name: "pattern.0" is the default schedule, the others are spread over all of
    its neighbours."""
    target = device("h200")
    for name, graph in patterns():
        with contextlib.suppress(CodegenError):
            first = draft(graph, target)
            assert isinstance(first, Draft)
            yield f"{name}.0", first
            every = list(variants(graph, target))
            step = max(1.0, len(every) / SCHEDULES)
            chosen = dict.fromkeys(int(n * step) for n in range(min(len(every), SCHEDULES)))
            for number in chosen:
                options = replace(CodegenOptions(), template=every[number].template)
                with contextlib.suppress(CodegenError):
                    found = draft(graph, target, options)
                    assert isinstance(found, Draft)
                    yield f"{name}.{number + 1}", found


def ranks(first: Mapping[str, float], second: Mapping[str, float]) -> list[str]:
    """The table of a run, beside another run."""
    target = device("h200")
    points: dict[str, list[tuple[float, float, float, float]]] = {}
    for name, one in drafts():
        if name in first and name in second:
            facts = one.facts
            assert facts.account is not None
            ours = account_us(facts.account, target), facts_us(facts, target)
            points.setdefault(name.rpartition(".")[0], []).append(
                (*ours, first[name], second[name])
            )
    rows, found = [], []
    for name, each in points.items():
        best = min(one[2] for one in each)
        pairs = [[(one[side], one[2]) for one in each] for side in (0, 1, 3)]
        rhos = [spearman(pair) for pair in pairs]
        if None in rhos:
            continue
        lost = [each[0][2] / best, *(min(pair)[1] / best for pair in pairs[:2])]
        found.append((*(rho or 0.0 for rho in rhos), *lost))
        rows.append([name, str(len(each)), f"{best:.1f} us", *(f"{one:.2f}" for one in found[-1])])
    columns = list(zip(*found, strict=True))
    mean = [f"{statistics.fmean(one):.2f}" for one in columns[:3]]
    mean += [readings.fixed(readings.mean(one)) for one in columns[3:]]
    head = ["pattern", "schedules", "fastest", "account", "facts", "second run"]
    head += ["default / fastest", "account's / fastest", "facts' / fastest"]
    return readings.table(head, [*rows, ["mean", str(sum(map(len, points.values()))), "", *mean]])


def main() -> None:
    match sys.argv[1:]:
        case ["write", folder, *jobs]:
            kernels = ((name, one.kernel(device("h200"))) for name, one in drafts())
            write(kernels, Path(folder), *map(int, jobs))
        case ["rank", first, second]:
            times = (json.loads(Path(file).read_text())["kernels"] for file in (first, second))
            print("\n".join(ranks(*times)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
