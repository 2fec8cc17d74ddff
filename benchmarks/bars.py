"""What a run should show, as data: goals for groups of workloads, and whether they were reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import readings
from benchmarks.readings import OURS, Row, gpu, launches, mean, ratio, wall
from benchmarks.suites import MEMORY, PAPER

#: A number of a row, given the bytes per second of a copy.
Value = Callable[[Row, float | None], float | None]
NORM, LOSS, ADAM = "norms.py:backward", "cross_entropy.py:vocabulary", "adam.py:gpt2_small"


def _faster(side: str = "xla") -> Value:
    return lambda row, copy: ratio(row, gpu, side)


def _wall(row: Row, copy: float | None) -> float | None:
    return ratio(row, wall)


def _kernels(row: Row, copy: float | None) -> float | None:
    return ratio(row, launches)


def _fewer(row: Row, copy: float | None) -> float | None:
    theirs, ours = launches(row, "xla"), launches(row, OURS)
    return None if theirs is None or ours is None else theirs - ours


def _own_kernels(row: Row, copy: float | None) -> float | None:
    return launches(row, OURS)


def _of_ceiling(row: Row, copy: float | None) -> float | None:
    return readings.of_ceiling(row, OURS, copy)


def _passes(row: Row, copy: float | None) -> float | None:
    own, whole = readings.passes(row), row.get("compile_s", {}).get("xla")
    return own / whole if own and whole else None


def _warm(row: Row, copy: float | None) -> float | None:
    warm, whole = (row.get("warm_s") or {}).get(OURS), row.get("compile_s", {}).get("xla")
    return warm / whole if warm and whole else None


@dataclass(frozen=True)
class Goal:
    """`value` of each target (all measured ones for none), or their geometric mean, is at least
    `least` or at most `most`."""

    what: str
    value: Value
    targets: Sequence[str] = ()
    least: float | None = None
    most: float | None = None
    over_all: bool = False

    def met(self, value: float) -> bool:
        high_enough = self.least is None or value >= self.least
        return high_enough and (self.most is None or value <= self.most)

    @property
    def bound(self) -> str:
        return f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"


_TEN = tuple(PAPER.values())
#: Noise allowed where a program is to be no slower: of GPU time, and of wall time.
_GPU_NOISE, _WALL_NOISE = 0.97, 0.95

GOALS = (
    Goal("share of a copy's rate", _of_ceiling, MEMORY, least=0.70),
    Goal("share of a copy's rate", _of_ceiling, MEMORY, least=0.80, over_all=True),
    Goal("GPU time, XLA / fs", _faster(), MEMORY, least=_GPU_NOISE),
    Goal("GPU time, Inductor / fs", _faster("inductor"), MEMORY, least=_GPU_NOISE),
    Goal("GPU time, XLA / fs", _faster(), ("black_scholes.py:options",), least=1.15),
    Goal("GPU time, XLA / fs", _faster(), ("norms.py:dropout",), least=1.4),
    Goal("GPU time, XLA / fs", _faster(), ("figure1.py:original", "figure1.py:deep"), least=4),
    Goal("GPU time, XLA / fs", _faster(), (LOSS, NORM), least=3),
    Goal("kernels and copies", _own_kernels, (ADAM,), most=1),
    Goal("GPU time, XLA / fs", _faster(), (ADAM,), least=1.2),
    Goal("GPU time, XLA / fs", _faster(), ("rmsprop.py:rmsprop100",), least=15),
    Goal("wall time, XLA / fs", _wall, ("rmsprop.py:rmsprop100",), least=1.0),
    Goal("GPU time, XLA / fs", _faster(), ("transformer.py:block_forward",), least=1.25),
    Goal("GPU time, XLA / fs", _faster(), ("transformer.py:block_gradient",), least=1.2),
    Goal("kernels, XLA less fs", _fewer, _TEN, least=1),
    Goal("kernels, XLA / fs", _kernels, _TEN, least=2, over_all=True),
    Goal("GPU time, XLA / fs", _faster(), _TEN, least=1.5, over_all=True),
    Goal("wall time, XLA / fs", _wall, _TEN, least=_WALL_NOISE),
    Goal("planning, codegen and NVRTC / XLA's compile", _passes, most=1.0, over_all=True),
    Goal("compile with warm caches / XLA's compile", _warm, most=0.2, over_all=True),
)


def table(results: dict[str, Any]) -> list[str]:
    """Each goal with its worst value (or its mean) and those that miss it."""
    copy = results["method"].get("copy_bytes_per_s")
    body = []
    for goal in GOALS:
        rows = [row for row in results["rows"] if not goal.targets or row["target"] in goal.targets]
        values = {row["target"]: goal.value(row, copy) for row in rows}
        found = {target: value for target, value in values.items() if value is not None}
        if not found:
            continue
        if goal.over_all:
            worst = mean(list(found.values()))
            missed = [] if worst is not None and goal.met(worst) else ["the mean"]
        else:
            pick = max if goal.most is not None else min
            worst = pick(found.values())
            missed = [f"{t} {readings.fixed(v)}" for t, v in found.items() if not goal.met(v)]
        which = f"{goal.what}{', geometric mean' if goal.over_all else ''}"
        of = goal.targets[0] if len(goal.targets) == 1 else f"{len(found)} workloads"
        body.append([which, of, "; ".join(missed) or "-", goal.bound, readings.fixed(worst)])
    head = ["goal", "workloads", "missed by", "wanted", "mean or worst"]
    return readings.table(head, body, words=3)
