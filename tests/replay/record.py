"""Writes graphs.zip: python -m tests.replay.record.

Regions are the patterns chosen for an H200, by the model and by the paper's scores, of the programs
in `benchmarks/everyday`, `benchmarks/unseen` and `examples` and of grown ones.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from benchmarks.everyday.table import programs
from benchmarks.loops.record import bare
from benchmarks.unseen.table import PROGRAMS
from benchmarks.workloads import WORKLOADS
from fusionstitch.codegen.generate import generate
from fusionstitch.compiler import core
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.compiler.workpiece import Workpiece
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError, VerifyError
from fusionstitch.hlo.extract import extract
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.simplify import simplify
from fusionstitch.options import Options
from fusionstitch.plan.findings import Evidence
from tests.codegen.regions import whole
from tests.replay.replay import GRAPHS, digest, text
from tests.strangers.programs import grow

#: Regions in the archive, and those of them that are of grown programs.
MOST, GROWN = 500, 160
#: Ops of a region: longer ones make replays slow and show little more.
MOST_OPS = 250
_EPOCH = (1980, 1, 1, 0, 0, 0)


def sources() -> Iterator[tuple[str, Callable[..., Any], Sequence[Any], str]]:
    """Programs by name with their arguments, and how their patterns are scored."""
    for name, one in programs().items():
        yield f"everyday-{name}", one.fun, one.args, "model"
    for name, make in PROGRAMS.items():
        fun, args = make()
        yield f"unseen-{name.replace('/', '-')}", fun, args, "model"
    sys.path.insert(0, "examples")
    for workload in WORKLOADS:
        if not workload.long:
            module, _, target = workload.target.partition(".py:")
            fun, args, *_ = getattr(importlib.import_module(module), target)()
            yield f"example-{module}-{target}", fun, args, "model"
    for name, one in programs().items():
        yield f"everyday-{name}-paper", one.fun, one.args, "paper"


def regions(fun: Callable[..., Any], args: Sequence[Any], scorer: str) -> list[bytes]:
    """The chosen patterns of a program as modules, without what programs call their parts."""
    found: list[bytes] = []

    def judge(work: Workpiece, planners: Sequence[GraphPlanner]) -> Evidence:
        for planner in planners:
            for one in planner.plan.chosen:
                pattern = one.pattern
                if len(pattern.ops) > MOST_OPS:
                    continue
                border = pattern.inputs, pattern.outputs
                # what a pattern computes again stands for no instruction
                with contextlib.suppress(VerifyError):
                    found.append(bare(extract(work.module, pattern.graph, *border, "region")))
        return Evidence()

    ir: Any = jax.jit(fun).trace(*args).lower(lowering_platforms=("cuda",)).compiler_ir("hlo")
    options = Options(scorer=scorer)
    core.stitch(ir.as_serialized_hlo_module_proto(), options, device("h200"), None, judge=judge)
    return found


def main() -> None:
    known: set[str] = set()
    kept: list[tuple[str, bytes]] = []

    def keep(name: str, found: Sequence[bytes], most: int) -> None:
        for number, data in enumerate(found):
            try:
                kernel = generate(whole(simplify(from_proto(data).entry), "region"), device("h200"))
            except CodegenError:
                continue
            if digest(text(kernel)) not in known and len(kept) < most:
                known.add(digest(text(kernel)))
                kept.append((f"{name}-{number}", data))

    for name, fun, args, scorer in sources():
        keep(name, regions(fun, args, scorer), MOST - GROWN)
        print(name, len(kept), flush=True)
    seed = 0
    while len(kept) < MOST:
        program = grow(seed)
        keep(f"grown-{seed}", regions(program.__call__, program.arguments(), "paper"), MOST)
        seed += 1
    with zipfile.ZipFile(GRAPHS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in kept:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
