"""The kernels of the recorded loops in each of their forms: what prices of loops are fitted to.

    python -m benchmarks.loops.by_form FOLDER [JOBS]    cubins, for `benchmarks/revisions.py times`

Loops are those whose turns the program says: others turn as often as the data wants.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.loops.forced import taken
from benchmarks.loops.record import stored
from benchmarks.revisions import written
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.whiles.generate import FORMS
from fusionstitch.compiler import core
from fusionstitch.costmodel.account_time import account_us
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.options import Options

#: Kernels that are estimated to take longer, in microseconds, are left out.
LONGEST = 200_000.0


def kernels() -> Iterator[tuple[str, Kernel, KernelFacts]]:
    """The kernels by name, with what they do."""
    target = device("h200")
    for program, module in stored():
        for form in FORMS:
            made: list[tuple[Kernel, KernelFacts]] = []
            with taken(form, made):
                core.stitch(module, Options(scorer="model"), target, None)
            for number, (kernel, facts) in enumerate({k.source: (k, f) for k, f in made}.values()):
                assert facts.account is not None
                if (
                    _known(dict(facts.facts)["turns"])
                    and account_us(facts.account, target) < LONGEST
                ):
                    yield f"{program}-{form}-{number}", kernel, facts


def _known(turns: Any) -> bool:
    """Whether the program says how often a loop and those in it turn."""
    _, inner, known = turns
    return known and all(map(_known, inner))


def main() -> None:
    folder, jobs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        building = [pool.submit(written, folder, name, kernel) for name, kernel, _ in kernels()]
        for one in building:
            one.result()


if __name__ == "__main__":
    main()
