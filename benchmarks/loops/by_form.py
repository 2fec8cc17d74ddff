"""The kernels of the recorded loops in each of their forms: what prices of loops are fitted to.

    python -m benchmarks.loops.by_form FOLDER [JOBS [PROGRAM...]]

writes cubins for `benchmarks/revisions.py times`; of programs that are named, also those of larger
clusters. With "threads" for a program: of all, blocks of other numbers of threads.

Loops are those whose turns the program says: others turn as often as the data wants.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from benchmarks.loops.forced import taken
from benchmarks.loops.record import stored
from benchmarks.revisions import write
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.while_loops.generate import FORMS
from fusionstitch.compiler import core
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.options import Options

#: Kernels that are estimated to take longer, in microseconds, are left out.
LONGEST = 200_000.0
#: Clusters of more blocks than the least that hold what iterations read.
LARGER = ("cluster 4", "cluster 8")
#: Blocks of other numbers of threads, for "threads" instead of the names of programs.
THREADS = tuple(f"{form} {n}" for form in ("dealt", "block") for n in (64, 128, 256, 512, 1024))


def kernels(programs: Collection[str] = ()) -> Iterator[tuple[str, Kernel, KernelFacts]]:
    """The kernels of programs, of all for none, by name, with what they do."""
    target = device("h200")
    for program, module in stored():
        sizes = programs == ["threads"]
        if programs and program not in programs and not sizes:
            continue
        for form in THREADS if sizes else (*FORMS, *LARGER) if programs else FORMS:
            made: list[tuple[Kernel, KernelFacts]] = []
            with taken(form, made):
                core.stitch(module, Options(scorer="model"), target, None)
            for number, (kernel, facts) in enumerate({k.source: (k, f) for k, f in made}.values()):
                short = cost_us(facts.cost, target) < LONGEST
                if short and known(dict(facts.facts)["turns"]):
                    yield f"{program}-{form.replace(' ', '_of_')}-{number}", kernel, facts


def known(turns: Any) -> bool:
    """Whether the program says how often a loop and those in it turn."""
    _, inner, said = turns
    return said and all(map(known, inner))


def main() -> None:
    folder, jobs, programs = sys.argv[1], sys.argv[2:3], sys.argv[3:]
    found = ((name, kernel) for name, kernel, _ in kernels(programs))
    write(found, Path(folder), *map(int, jobs))


if __name__ == "__main__":
    main()
