"""The guard on this machine's GPU, with what it measured kept for later programs."""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence

from costmodel.devices import Device
from costmodel.model_errors import errors
from fusionstitch.core import Judge, Make
from fusionstitch.errors import FusionStitchError
from fusionstitch.guard.groups import Group
from fusionstitch.guard.guard import Guard
from fusionstitch.guard.sides import Sides, sides
from fusionstitch.measure.gpu import GpuMeter, meters
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.findings import Comparison
from fusionstitch.plan.scores import Score, is_complex, kind_of_pattern
from fusionstitch.planning import GraphPlanner
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.record import versions
from hlo.graph import Module

logger = logging.getLogger(__name__)

#: Microseconds (ours, XLA's) of each; raises MeasureError where nothing can be measured.
Compare = Callable[[Sequence[Sides]], Sequence[tuple[float, float]]]


def _beyond_proof(pattern: Pattern, score: Score) -> bool:
    return score.gain_us <= errors()[kind_of_pattern(pattern.ops)] * score.xla_us


#: Which patterns `Options.scorer` wants measured.
_DOUBTS: Mapping[str, Callable[[Pattern, Score], bool]] = {
    "guarded": _beyond_proof,
    "measured": lambda pattern, score: True,
    "mixed": lambda pattern, score: is_complex(pattern),
}


def judge_for(options: Options, device: Device) -> Judge | None:
    """What judges the plans of a program as `options.scorer` asks; None: nothing does.

    Nothing is measured for a program of several processes, which must get the same plan in each:
    there the model's proof alone counts.
    """
    if (doubts := _DOUBTS.get(options.scorer)) is None:
        return None
    import jax

    if jax.process_count() > 1:
        return recorded(options, {})

    def judge(
        module: Module, make: Make, planners: Sequence[GraphPlanner]
    ) -> Mapping[str, Comparison]:
        compare = _meter(device).sides_us
        live = Live(module, options, device, make, compare, _database())
        guard = Guard(doubts, live.known, live.measure)
        guard.settle(planners)
        return guard.used

    return judge


def recorded(options: Options, evidence: Mapping[str, Comparison]) -> Judge:
    """Judges by `evidence`, and measures nothing."""
    doubts = _DOUBTS[options.scorer]

    def judge(
        module: Module, make: Make, planners: Sequence[GraphPlanner]
    ) -> Mapping[str, Comparison]:
        guard = Guard(doubts, lambda group: evidence.get(group.key), lambda groups: {})
        guard.settle(planners)
        return guard.used

    return judge


@functools.cache
def _meter(device: Device) -> GpuMeter:
    return meters(device)[0]


@functools.cache
def _database() -> Database:
    return Database()


class Live:
    """Compares groups of patterns of one module, each once per device, versions and XLA's flags."""

    def __init__(
        self,
        module: Module,
        options: Options,
        device: Device,
        make: Make,
        compare: Compare,
        database: Database,
    ):
        self.module, self.device, self.database = module, device, database
        self.make, self.compare = make, compare
        self._where = f"{options.numerics} {options.sharing} {versions()} {xla_flags()}"

    def known(self, group: Group) -> Comparison | None:
        """What was measured before."""
        found = self.database.get_timing(self._key(group), self.device.name)
        theirs = found.meta.get("xla_us") if found is not None else None
        if found is None or not isinstance(theirs, float) or not 0 < theirs < math.inf:
            return None
        return Comparison(found.us, theirs, len(group.chosen))

    def measure(self, groups: Sequence[Group]) -> Mapping[str, Comparison]:
        """Runs both sides of each, and keeps the times."""
        built = {group.key: pair for group in groups if (pair := self._sides(group)) is not None}
        if not built:
            return {}
        try:
            times = self.compare(list(built.values()))
        except FusionStitchError as error:
            logger.info("patterns are modelled, not measured: %s", error)
            return {}
        found = {}
        of = {group.key: group for group in groups}
        for key, (ours, theirs) in zip(built, times, strict=True):
            found[key] = Comparison(ours, theirs, len(of[key].chosen))
            self.database.put_timing(self._key(of[key]), self.device.name, ours, {"xla_us": theirs})
        return found

    def _sides(self, group: Group) -> Sides | None:
        patterns = [one.pattern for one in group.chosen]
        made = self.make(patterns)
        if any(one is None for one in made):
            return None
        built = [(p, *one) for p, one in zip(patterns, made, strict=True) if one is not None]
        try:
            return sides(self.module, group, built, self.device)
        except FusionStitchError as error:
            logger.info("a pattern is modelled, not measured: %s", error)
            return None

    def _key(self, group: Group) -> str:
        return f"guard-{hashlib.sha256(f'{group.key} {self._where}'.encode()).hexdigest()}"


def xla_flags() -> str:
    """What changes the code that XLA makes in this process."""
    return " ".join(sorted(os.environ.get("XLA_FLAGS", "").split()))
