"""Fits the `prices` of a device profile to measured kernels.

    python -m benchmarks.fit_model write replay|large|near|loops FOLDER [JOBS]      cubins
    python -m benchmarks.fit_model fit TIMES...

TIMES are what `benchmarks/revisions.py times` wrote on an H100 of the kernels of the replay, of
`large_kernels.py`, of `neighbours.py` and of `loops/by_form.py` here. It prints the prices found
with all of them, and how well kernels of each kind are met: with the prices in the repository, and
by prices that were found without the programs they are of, a fifth of the programs at a time; and
what it costs that the form of a loop is chosen by each.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from benchmarks import large_kernels, neighbours
from benchmarks.loops import by_form
from benchmarks.neighbours import default
from benchmarks.revisions import write
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import Looped
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.while_loops.generate import FORMS
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.costmodel.prices import Prices
from fusionstitch.hlo.errors import CodegenError
from tests.replay.replay import stored

#: Parts of the programs, each of which is met by what the others gave.
PARTS = 5
#: Where the search begins: guesses from what is known of the hardware, made before any time was
#: looked at, lest what is fitted without a program knows it from here.
GUESS = Prices(
    rounds=40,
    far=400,
    accesses=10,
    near=4,
    ops=0.7,
    records=20,
    special=8,
    divisions=20,
    shuffles=24,
    barriers=60,
    meetings=450,
    products=40,
    chain=1,
    issue_access=2,
    issue_sector=16,
    issue_near=2,
    issue_op=1.2,
    issue_record=4,
    issue_special=4,
    issue_division=10,
    issue_shuffle=2,
    l2_share=0.8,
    few_blocks=0.5,
    resident_share=0.6,
    missing_share=0.5,
    start_us=0.1,
    block_us=0.01,
    phase_us=0.5,
    overlap=2,
    independent=0.1,
    spilled=10,
    kept_share=1,
    issue_spilled=2,
)
#: A factor of two beside a measured time counts as much as this change of a price by a factor of e:
#: so prices that no kernel shows stay where they were.
STIFFNESS = 0.15
#: The same of what a lone warp issues and waits for, which tables of instructions say: most kernels
#: have other warps that hide it.
FIRM = dict.fromkeys(("accesses", "near", "ops", "special", "chain"), 1.0)
#: How much a kernel of a kind counts: loops are fewer, and long enough to show what a way takes.
WEIGHTS = {"rows": 3.0, "dealt": 2.0, "cluster": 2.0, "block": 2.0, "grid": 2.0, "near": 0.5}
_FORM = rf"-({'|'.join(FORMS)})"
#: Loops whose random inputs end them early, or take none of the ways that the program would.
MISLED = ("events", "time_warping", "van_der_pol", "viterbi-rows", "lbfgs-rows")
#: Kinds of large kernels.
LARGE = ("sum", "gelu", "waves", "layer", "normed", "heads")
#: What is near counts by its square, what is further off than this (a power of two) by its amount.
NEAR = 0.4
#: The bar: a power of two.
BAR = 0.6


@dataclass(frozen=True)
class Met:
    """How well times are met: the share within the bar, the median distance, the mean."""

    share: float
    median: float
    bias: float
    kernels: int

    def __str__(self) -> str:
        return (
            f"{self.share:.1%} of {self.kernels} within 2**{BAR}, median {self.median:.3f}, "
            f"bias {self.bias:+.3f}"
        )


def met(found: Mapping[str, float], measured: Mapping[str, float]) -> Met:
    """By log2(modelled / measured)."""
    off = [math.log2(us / measured[name]) for name, us in found.items() if name in measured]
    distances = [abs(one) for one in off]
    share = sum(one < BAR for one in distances) / len(off)
    return Met(share, statistics.median(distances), statistics.fmean(off), len(off))


def kind(name: str) -> str:
    """What sort of kernel it is: the form of a loop, the kind of a large one, a neighbour of a
    schedule, or the replay's."""
    if re.search(r"\.\d+$", name):
        return "near"
    if found := re.search(rf"{_FORM}-\d+$", name):
        return found[1]
    return name.split("-")[0] if name.split("-")[0] in LARGE else "replay"


def program(name: str) -> str:
    """The program that a kernel is of, whichever way it was scored or its loop is run."""
    return re.sub(rf"({_FORM}|-paper)?-\d+(\.\d+)?$|\.\d+$", "", name)


#: A kernel's name, what it does, and what makes it.
Known = tuple[str, KernelCost, Callable[[], Kernel]]


def _replayed() -> Iterator[Known]:
    for name, graph in stored():
        with contextlib.suppress(CodegenError):
            one = default(graph, device("h200"))
            yield name, one.cost, partial(one.kernel, device("h200"))


def _drafted(drafts: Iterable[tuple[str, Draft | Looped]]) -> Iterator[Known]:
    for name, one in drafts:
        yield name, one.cost, partial(one.kernel, device("h200"))


def _looped() -> Iterator[Known]:
    for name, kernel, facts in by_form.kernels():
        yield name, facts.cost, partial(lambda found: found, kernel)


#: What is fitted to.
SETS: Mapping[str, Callable[[], Iterator[Known]]] = {
    "replay": _replayed,
    "large": lambda: _drafted(large_kernels.drafts()),
    "near": lambda: _drafted(neighbours.drafts("known")),
    "loops": _looped,
}


def found_with(
    costs: Mapping[str, KernelCost], names: Iterable[str], times: Mapping[str, float], on: Device
) -> Prices:
    """The prices that meet the times of some kernels best."""
    start = np.log(astuple(GUESS))
    stiff = np.array([FIRM.get(field.name, STIFFNESS) for field in fields(Prices)])
    known = [
        (costs[name], math.log2(times[name]), WEIGHTS.get(kind(name), 1.0))
        for name in names
        if not name.startswith(MISLED)
    ]

    def distances(logs: np.ndarray) -> np.ndarray:
        priced = replace(on, prices=Prices(*np.exp(logs).tolist()))
        off = [w * (math.log2(cost_us(one, priced)) - us) for one, us, w in known]
        return np.array([*off, *(logs - start) * stiff])

    best = least_squares(distances, start, loss="soft_l1", f_scale=NEAR, max_nfev=30)
    return Prices(*np.exp(best.x).tolist())


def chosen(found: Mapping[str, float], times: Mapping[str, float]) -> str:
    """How much longer loops take in the forms that `found` chooses than in their fastest ones, of
    those that have several with one kernel each."""
    forms: dict[str, dict[str, list[str]]] = {}
    for name in found:
        if kind(name) in FORMS:
            forms.setdefault(program(name), {}).setdefault(kind(name), []).append(name)
    logs, worst = [], []
    for own in forms.values():
        names = [found_ for [found_, *others] in own.values() if not others]
        if len(names) > 1:
            taken = min(names, key=lambda name: found[name])
            logs.append(math.log(times[taken] / min(map(times.__getitem__, names))))
            worst.append((logs[-1], taken))
    far = ", ".join(f"{name} {math.exp(log):.2f}" for log, name in sorted(worst)[::-1] if log > 0.1)
    mean = math.exp(statistics.fmean(logs))
    return f"{mean:.3f} times the fastest form, of {len(logs)}; {far}"


def fit(times: Mapping[str, float]) -> None:
    """Finds prices and prints how well they meet the times."""
    h100 = device("h100")
    every = itertools.chain.from_iterable(found() for found in SETS.values())
    costs = {name: cost for name, cost, _ in every if name in times}
    programs = sorted(set(map(program, costs)))
    part = {one: number % PARTS for number, one in enumerate(programs)}
    apart: dict[str, float] = {}
    for number in range(PARTS):
        others = [name for name in costs if part[program(name)] != number]
        priced = replace(h100, prices=found_with(costs, others, times, h100))
        for name in costs:
            if part[program(name)] == number:
                apart[name] = cost_us(costs[name], priced)
    best = found_with(costs, costs, times, h100)
    priced = replace(h100, prices=best)
    here = {n: cost_us(one, priced) for n, one in costs.items()}
    now = {n: cost_us(one, h100) for n, one in costs.items()}
    for field in fields(Prices):
        print(f'    "{field.name}": {getattr(best, field.name):.3g},')
    sides = {"now": now, "by the others": apart, "by all": here}
    for what, found in sides.items():
        print(f"{what} ({len(programs)} programs, {PARTS} parts):")
        for one in dict.fromkeys(map(kind, found)):
            print(f"  {one}:", met({n: us for n, us in found.items() if kind(n) == one}, times))
        print("  forms:", chosen(found, times))
    for name in sorted(costs, key=lambda n: -abs(math.log2(here[n] / times[n])))[:30]:
        print(f"  {name}: {here[name]:.1f} us modelled, {times[name]:.1f} measured")


def main() -> None:
    match sys.argv[1:]:
        case ["write", which, folder, *jobs]:
            made = ((name, make()) for name, _, make in SETS[which]())
            write(made, Path(folder), *map(int, jobs))
        case ["fit", *files]:
            found = (json.loads(Path(file).read_text())["kernels"] for file in files)
            fit({name: us for times in found for name, us in times.items()})
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
