"""The kernels of the recorded loops in each of their forms: what prices of loops are fitted to.

    python -m benchmarks.loops.by_form FOLDER [JOBS [PROGRAM...]]

writes cubins for `benchmarks/revisions.py times`.

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
from fusionstitch.codegen.whiles.generate import FORMS
from fusionstitch.compiler import core
from fusionstitch.costmodel.account_time import account_us
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.options import Options

#: Kernels that are estimated to take longer, in microseconds, are left out.
LONGEST = 200_000.0


def kernels(programs: Collection[str] = ()) -> Iterator[tuple[str, Kernel, KernelFacts]]:
    """The kernels of programs, of all for none, by name, with what they do."""
    target = device("h200")
    for program, module in stored():
        if programs and program not in programs:
            continue
        for form in FORMS:
            made: list[tuple[Kernel, KernelFacts]] = []
            with taken(form, made):
                core.stitch(module, Options(scorer="model"), target, None)
            for number, (kernel, facts) in enumerate({k.source: (k, f) for k, f in made}.values()):
                short = account_us(facts.account, target) < LONGEST
                if short and known(dict(facts.facts)["turns"]):
                    yield f"{program}-{form}-{number}", kernel, facts


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
