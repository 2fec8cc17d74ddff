"""Fits the prices of `costmodel/account_time.py` to measured kernels.

    python -m benchmarks.fit_model TIMES [OTHERS]

TIMES is what `benchmarks/revisions.py times` wrote of all kernels on an H100. It prints the prices
found with all of them, and how well kernels are met: before (the account taken from the schedule),
with the prices in the repository, and by prices that were found without the programs they are of,
a fifth of the programs at a time. OTHERS, of an H200, are met with the same prices: what
`benchmarks/revisions.py measure` wrote.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from fusionstitch.codegen.generate import draft
from fusionstitch.costmodel.account import Account
from fusionstitch.costmodel.account_time import Prices, account_us
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.costmodel.estimate import facts_us
from fusionstitch.hlo.errors import CodegenError
from tests.replay.replay import stored

#: Parts of the programs, each of which is met by what the others gave.
PARTS = 5
#: Where the search begins: guesses from what is known of the hardware, made before any time was
#: looked at, lest what is fitted without a program knows it from here.
GUESS = Prices(
    rounds=40,
    far=400,
    accesses=16,
    near=30,
    ops=6,
    records=20,
    special=20,
    divisions=20,
    shuffles=24,
    barriers=60,
    products=40,
    issue_access=2,
    issue_sector=16,
    issue_near=2,
    issue_op=1.2,
    issue_record=4,
    issue_special=4,
    issue_division=10,
    issue_shuffle=2,
    l2_share=0.8,
    dram_share=0.9,
    few_blocks=0.5,
    resident_share=0.6,
    missing_share=0.5,
    start_us=0.1,
    block_us=0.01,
    phase_us=0.5,
    overlap=2,
)
#: A factor of two beside a measured time counts as much as this change of a price by a factor of e:
#: so prices that no kernel shows stay where they were.
STIFFNESS = 0.15
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


def program(name: str) -> str:
    """The program that a stored kernel is of, whichever way it was scored."""
    return re.sub(r"(-paper)?-\d+$", "", name)


def found_with(
    accounts: Mapping[str, Account], names: Iterable[str], times: Mapping[str, float], on: Device
) -> Prices:
    """The prices that meet the times of some kernels best."""
    start = np.log(astuple(GUESS))
    kernels = [(accounts[name], math.log2(times[name])) for name in names]

    def distances(logs: np.ndarray) -> np.ndarray:
        prices = Prices(*np.exp(logs).tolist())
        off = [math.log2(account_us(one, on, prices=prices)) - us for one, us in kernels]
        return np.array([*off, *(logs - start) * STIFFNESS])

    best = least_squares(distances, start, loss="soft_l1", f_scale=NEAR, max_nfev=30)
    return Prices(*np.exp(best.x).tolist())


def main() -> None:
    h100, h200 = device("h100"), device("h200")
    times: dict[str, float] = json.loads(Path(sys.argv[1]).read_text())["kernels"]
    accounts: dict[str, Account] = {}
    before: dict[str, dict[str, float]] = {"h100": {}, "h200": {}}
    for name, graph in stored():
        try:
            facts = draft(graph, h200).facts
        except CodegenError:
            continue
        assert facts.account is not None
        accounts[name] = facts.account
        for one in (h100, h200):
            before[one.name][name] = facts_us(facts, one)
    names = [name for name in accounts if name in times]
    print("before:", met(before["h100"], times))
    print("now:", met({n: account_us(accounts[n], h100) for n in names}, times))
    programs = sorted(set(map(program, names)))
    part = {one: number % PARTS for number, one in enumerate(programs)}
    apart: dict[str, float] = {}
    for number in range(PARTS):
        others = [name for name in names if part[program(name)] != number]
        prices = found_with(accounts, others, times, h100)
        for name in names:
            if part[program(name)] == number:
                apart[name] = account_us(accounts[name], h100, prices=prices)
    print(f"by the other programs ({len(programs)}, {PARTS} parts):", met(apart, times))
    best = found_with(accounts, names, times, h100)
    here = {n: account_us(accounts[n], h100, prices=best) for n in names}
    print("found with all:", met(here, times))
    for field in fields(Prices):
        print(f"    {field.name}: float = {getattr(best, field.name):.3g}")
    if len(sys.argv) > 2:
        pairs = json.loads(Path(sys.argv[2]).read_text())["kernels"]
        others = {name: pair[1] for name, pair in pairs.items() if pair}
        print("H200, before:", met(before["h200"], others))
        print("H200:", met({n: account_us(accounts[n], h200, prices=best) for n in names}, others))
    for name in sorted(names, key=lambda n: -abs(math.log2(here[n] / times[n])))[:20]:
        print(f"  {name}: {here[name]:.1f} us modelled, {times[name]:.1f} measured")


if __name__ == "__main__":
    main()
