"""How far off the model of XLA's kernels is, by what `benchmarks/model_kernels.py` recorded.

    python -m benchmarks.fit_xla FILE... [--worst N] [--json FILE] [--write]

For each emitter: its kernels and their share of all time, the median error factor and the share of
kernels within 1.25 and 1.5, as modelled and with the factor that the other programs give: a fifth
of the programs at a time is held out. Kernels count by their time, programs alike. Then whole
programs, from their final kernels and from the unfused module, and the kernels by which most is
lost. --write puts the factors of emitters with kernels of enough programs into the table by which
what a program was measured to take is dealt to its kernels. It needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import results_file

#: Parts of the programs, each of which is met by what the others gave.
PARTS = 5
#: The bars: the median error factor, and the factor that 80% of kernels are to be within.
CLOSE, NEAR = 1.25, 1.5
ALL = "all"
#: Programs that an emitter must have kernels in for its factor to be kept.
ENOUGH = 10
TABLE = Path(__file__).parents[1] / "costmodel" / "emitters.json"


@dataclass(frozen=True)
class Kernel:
    """A kernel of a program: microseconds of one run, and `weight`, its share of the program's
    time."""

    program: str
    name: str
    emitter: str
    runs: int
    floor_us: float
    modelled_us: float
    measured_us: float
    weight: float

    @property
    def lost_us(self) -> float:
        """By how much a call is modelled wrong because of it."""
        return self.runs * abs(self.measured_us - self.modelled_us)

    def by(self, factor: float) -> float:
        """What is modelled with `factor` on what it takes beyond its floor."""
        return self.floor_us + factor * max(0.0, self.modelled_us - self.floor_us)


@dataclass(frozen=True)
class Met:
    """How well the kernels of an emitter are met: their number, share of all time, median error
    factor (at least 1), shares within `CLOSE` and `NEAR`, weighted median of measured over
    modelled."""

    kernels: int
    share: float
    median: float
    close: float
    near: float
    ratio: float


def kernels_of(contents: Iterable[Mapping[str, Any]]) -> list[Kernel]:
    """The kernels whose times are known, of files that `model_kernels` wrote."""
    found = []
    for content in contents:
        for program, record in content["programs"].items():
            rows = [row for row in record["kernels"] if row["measured_us"]]
            total = sum(row["runs"] * row["measured_us"] for row in rows)
            found += [
                Kernel(
                    program,
                    row["name"],
                    row["emitter"],
                    row["runs"],
                    row["floor_us"],
                    row["modelled_us"],
                    row["measured_us"],
                    row["runs"] * row["measured_us"] / total,
                )
                for row in rows
            ]
    return found


def quantile(pairs: Iterable[tuple[float, float]], share: float = 0.5) -> float:
    """The value below which `share` of the weight of (value, weight) lies."""
    ordered = sorted(pairs)
    left = share * sum(weight for _, weight in ordered)
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return math.nan


def met(kernels: Sequence[Kernel], modelled: Callable[[Kernel], float], whole: float) -> Met:
    """How well `modelled` meets some kernels, of a corpus of the weight `whole`."""
    ratios = [(k.measured_us / max(modelled(k), 1e-6), k.weight) for k in kernels]
    errors = [(max(ratio, 1 / ratio), weight) for ratio, weight in ratios]
    total = sum(weight for _, weight in errors)

    def within(bar: float) -> float:
        return sum(weight for error, weight in errors if error <= bar) / total

    return Met(
        len(kernels),
        total / whole,
        quantile(errors),
        within(CLOSE),
        within(NEAR),
        quantile(ratios),
    )


def factors_of(kernels: Sequence[Kernel]) -> dict[str, float]:
    """By emitter, the factor on what is modelled beyond the floors that meets the median kernel."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    for one in kernels:
        if one.modelled_us > one.floor_us:
            beyond = max(0.0, one.measured_us - one.floor_us)
            ratio = beyond / (one.modelled_us - one.floor_us)
            ratios.setdefault(one.emitter, []).append((ratio, one.weight))
    return {emitter: quantile(pairs) for emitter, pairs in ratios.items()}


def kept_of(kernels: Sequence[Kernel]) -> dict[str, float]:
    """The factors that are kept: those that enough programs give."""
    programs: dict[str, set[str]] = {}
    for one in kernels:
        programs.setdefault(one.emitter, set()).add(one.program)
    found = factors_of(kernels)
    return {
        emitter: round(factor, 2)
        for emitter, factor in sorted(found.items())
        if len(programs[emitter]) >= ENOUGH and factor > 0
    }


def held_out(kernels: Sequence[Kernel]) -> dict[Kernel, float]:
    """What each kernel is modelled to take with the factors of the programs of the other parts."""
    names = sorted({one.program for one in kernels})
    part = {name: number % PARTS for number, name in enumerate(names)}
    found: dict[Kernel, float] = {}
    for number in range(PARTS):
        factors = factors_of([one for one in kernels if part[one.program] != number])
        found |= {
            one: one.by(factors.get(one.emitter, 1.0))
            for one in kernels
            if part[one.program] == number
        }
    return found


def by_emitter(kernels: Sequence[Kernel]) -> dict[str, tuple[Met, Met]]:
    """Of each emitter and of all: (as modelled, with the factors of other programs)."""
    fitted, whole = held_out(kernels), sum(one.weight for one in kernels)
    groups: dict[str, list[Kernel]] = {ALL: list(kernels)}
    for one in kernels:
        groups.setdefault(one.emitter, []).append(one)
    return {
        name: (met(group, lambda k: k.modelled_us, whole), met(group, fitted.__getitem__, whole))
        for name, group in sorted(groups.items(), key=lambda item: -sum(k.weight for k in item[1]))
    }


def totals_of(contents: Iterable[Mapping[str, Any]], side: str) -> tuple[float, float]:
    """Of whole programs, (median error factor, share within `NEAR`) of "modelled_us", from their
    final kernels, or "unfused_us"."""
    ratios = [
        record["us"] / record[side]
        for content in contents
        for record in content["programs"].values()
        if record["us"] > 0 and record[side] > 0
    ]
    errors = [(max(ratio, 1 / ratio), 1.0) for ratio in ratios]
    near = sum(error <= NEAR for error, _ in errors)
    return quantile(errors), near / len(errors) if errors else math.nan


def table(found: Mapping[str, tuple[Met, Met]]) -> list[str]:
    """A row for each emitter."""
    lines = [
        f"{'emitter':12} {'kernels':>7} {'time':>6} {'median':>7} {'<1.25':>6} {'<1.5':>6} "
        f"{'ratio':>6}   held out: {'median':>6} {'<1.25':>6} {'<1.5':>6}"
    ]
    for name, (plain, fitted) in found.items():
        lines.append(
            f"{name:12} {plain.kernels:7} {plain.share:6.1%} {plain.median:7.2f} "
            f"{plain.close:6.0%} {plain.near:6.0%} {plain.ratio:6.2f}   "
            f"{fitted.median:16.2f} {fitted.close:6.0%} {fitted.near:6.0%}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fit_xla",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--worst", type=int, default=20, help="kernels that are listed")
    parser.add_argument("--json", type=Path, help="the table as data")
    parser.add_argument("--write", action="store_true", help="replace the table of factors")
    asked = parser.parse_args()
    contents = [json.loads(file.read_text()) for file in asked.files]
    kernels = kernels_of(contents)
    if not kernels:
        raise SystemExit("No kernel of these files was measured.")
    found = by_emitter(kernels)
    print("\n".join(table(found)))
    for side, words in (("modelled_us", "their final kernels"), ("unfused_us", "unfused modules")):
        median, near = totals_of(contents, side)
        print(f"programs from {words}: median error factor {median:.2f}, {near:.0%} within {NEAR}")
    for one in sorted(kernels, key=lambda k: -k.lost_us)[: asked.worst]:
        print(
            f"{one.lost_us:10.1f} us lost: {one.program} {one.name} ({one.emitter}, {one.runs} "
            f"runs): modelled {one.modelled_us:.2f}, measured {one.measured_us:.2f}"
        )
    if asked.json is not None:
        sides = ("modelled", "held_out")
        data = {
            name: dict(zip(sides, map(asdict, pair), strict=True)) for name, pair in found.items()
        }
        results_file.write(asked.json, data)
    if asked.write:
        source = [
            {"file": file.name, "environment": content["environment"]}
            for file, content in zip(asked.files, contents, strict=True)
        ]
        kept = {"factors": kept_of(kernels), "from": source}
        TABLE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
