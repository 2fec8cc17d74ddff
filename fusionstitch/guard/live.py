"""The guard on this machine's GPU, with its measurements stored for later programs."""

from __future__ import annotations

import functools
import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import builders
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.compiler.workpiece import Judge, Workpiece
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.model_errors import errors
from fusionstitch.errors import FusionStitchError, MeasureError
from fusionstitch.guard.groups import Group, is_ended_by_data
from fusionstitch.guard.guard import Doubts, Guard
from fusionstitch.guard.sides import in_part, sides, taken_out
from fusionstitch.measure.side_by_side import Sides
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.findings import Comparison, Evidence
from fusionstitch.plan.scores import Score, is_complex, is_loop, kind_of_pattern
from fusionstitch.runtime import delays
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.cache import Database
from fusionstitch.runtime.xla_pass import flags
from fusionstitch.tuning.record import versions
from fusionstitch.tuning.tuned import Tuned
from fusionstitch.version import code

if TYPE_CHECKING:
    from fusionstitch.measure.gpu import GpuMeter

logger = logging.getLogger(__name__)

#: Loops are not measured if XLA is modelled to take longer than this many microseconds, or if the
#: kernel is modelled to be this many times as fast.
LONGEST_LOOP_US, SURE_LOOP = 20_000.0, 5.0

#: Microseconds (ours, XLA's) of each pair; raises MeasureError if nothing can be measured now.
Compare = Callable[[Sequence[Sides]], Sequence[tuple[float, float]]]


def _unproven(pattern: Pattern, score: Score) -> bool:
    return score.gain_us <= errors()[kind_of_pattern(pattern.ops)].proven * score.xla_us


def _loop_in_doubt(pattern: Pattern, score: Score) -> bool:
    sure = score.ours_us * SURE_LOOP <= score.xla_us
    return not sure and score.xla_us <= LONGEST_LOOP_US


def _within_error(pattern: Pattern, score: Score) -> bool:
    return score.gain_us <= errors()[kind_of_pattern(pattern.ops)].usual * score.xla_us


#: Which patterns `Options.scorer` wants measured, and which of them it rejects unmeasured.
_DOUBTS: Mapping[str, tuple[Doubts, Doubts]] = {
    "guarded": (_unproven, _within_error),
    "measured": (lambda pattern, score: True,) * 2,
    "mixed": (lambda pattern, score: is_complex(pattern),) * 2,
}


def judge_for(options: Options, device: Device, tuned: Tuned, tried: bool) -> Judge | None:
    """The judge of a program's plans that `options.scorer` asks for. None if there is none, for
    example for a GPU that is not in use. A program that is `tried` as a whole on the user's data is
    judged by its trial where random data would mislead.

    Nothing is measured for a program of several processes, which must get the same plan in each:
    only the model's proof counts there.
    """
    if options.scorer not in _DOUBTS or device != builders.profile(options.replace(device=None)):
        return None
    import jax

    if jax.process_count() > 1:
        return recorded(options, tuned, Evidence())

    def judge(work: Workpiece, planners: Sequence[GraphPlanner]) -> Evidence:
        live = Live(work, options, device, _compare_on(device), _database())
        guard = Guard(*doubts_of(options, tuned, tried), live.known, live.measure)
        guard.settle(planners)
        return Evidence(guard.used, live.whole, tried)

    return judge


def put_off(judge: Judge, defer: Callable[[Callable[[], Stitched]], None]) -> Judge:
    """Judges nothing yet: for a program whose trial comes first, and whose patterns are measured
    only if it loses. `defer` gets a function that then judges the same plans and makes the program
    again."""

    def later(work: Workpiece, planners: Sequence[GraphPlanner]) -> Evidence:
        defer(lambda: work.again(judge(work, planners)))
        return Evidence(tried=True, put_off=True)

    return later


def recorded(options: Options, tuned: Tuned, evidence: Evidence) -> Judge | None:
    """Judges by `evidence`, and measures nothing."""
    if options.scorer not in _DOUBTS or evidence.put_off:
        return None

    def judge(work: Workpiece, planners: Sequence[GraphPlanner]) -> Evidence:
        doubts = doubts_of(options, tuned, evidence.tried)
        known = evidence.comparisons
        guard = Guard(*doubts, lambda group: known.get(group.key), lambda groups: {})
        guard.settle(planners)
        return Evidence(guard.used, tried=evidence.tried)

    return judge


def doubts_of(options: Options, tuned: Tuned, tried: bool) -> tuple[Doubts, Doubts]:
    """What is to be measured, and what of that is rejected unmeasured. What tuning measured is not
    in doubt. Loops may stay unmeasured if they win by far more than the model's error. A loop that
    ends by its data cannot be measured on random data; it must be a sure win, unless the program is
    `tried`."""

    def loop_in_doubt(pattern: Pattern, score: Score) -> bool:
        return _loop_in_doubt(pattern, score) and not (tried and is_ended_by_data(pattern))

    def loop_unproven(pattern: Pattern, score: Score) -> bool:
        return loop_in_doubt(pattern, score) and is_ended_by_data(pattern)

    def open_to(doubts: Doubts, of_loops: Doubts) -> Doubts:
        return lambda pattern, score: (
            tuned.find(pattern, options) is None
            and (of_loops if is_loop(pattern) else doubts)(pattern, score)
        )

    measured, left = _DOUBTS[options.scorer]
    return open_to(measured, loop_in_doubt), open_to(left, loop_unproven)


def _compare_on(device: Device) -> Compare:
    return lambda pairs: _meter(device).sides_us(pairs)


@functools.cache
def _meter(device: Device) -> GpuMeter:
    """One meter for all threads: it measures one thing at a time."""
    from fusionstitch.measure import gpu

    return gpu.meters(device)[0]


@functools.cache
def _database() -> Database:
    return Database()


class Live:
    """Compares groups of patterns of one module, each once per device, versions and XLA flags.

    It is no longer `whole` once a measurement has failed for a reason that may pass.
    """

    def __init__(
        self,
        work: Workpiece,
        options: Options,
        device: Device,
        compare: Compare,
        database: Database,
    ):
        self.work, self.device, self.database, self.compare = work, device, database, compare
        self.whole = True
        where = f"{options.numerics} {options.sharing} {versions()} {code()} {flags()}"
        self._where = " ".join((where, *delays.flags()))

    def known(self, group: Group) -> Comparison | None:
        """The stored measurement."""
        found = self.database.get_timing(self._key(group), self.device.name)
        theirs = found.meta.get("xla_us") if found is not None else None
        if found is None or not isinstance(theirs, float) or not 0 < theirs < math.inf:
            return None
        return Comparison(found.us, theirs, len(group.chosen))

    def measure(self, groups: Sequence[Group]) -> Mapping[str, Comparison]:
        """Runs both sides of each group, and stores the times."""
        groups = [group for group in groups if not is_ended_by_data(group.near)]
        patterns = list(dict.fromkeys(one.pattern for group in groups for one in group.chosen))
        made = dict(zip(patterns, self.work.make(self.work.module, patterns), strict=True))
        found = [
            (group, one) for group in groups if (one := self._sides_of(group, made)) is not None
        ]
        if not found:
            return {}
        try:
            times = self.compare([sides for _, sides in found])
        except MeasureError as error:
            logger.info("patterns are modelled, not measured: %s", error)
            self.whole = False
            return {}
        comparisons = {}
        for (group, _), us in zip(found, times, strict=True):
            comparisons[group.key] = Comparison(*us, len(group.chosen))
            self.database.put_timing(self._key(group), self.device.name, us[0], {"xla_us": us[1]})
        return comparisons

    def _sides_of(
        self, group: Group, made: Mapping[Pattern, tuple[Kernel, Artifact] | None]
    ) -> Sides | None:
        """The two programs to run for a group; `made` are the program's kernels."""
        patterns = [one.pattern for one in group.chosen]
        built = [(pattern, *one) for pattern in patterns if (one := made[pattern]) is not None]
        if len(built) < len(patterns):
            self.whole = False
            return None
        try:
            module = taken_out(self.work, group)
            return sides(self.work, group, module, in_part(group, module, built))
        except FusionStitchError as error:
            logger.info("a pattern is modelled, not measured: %s", error)
            return None

    def _key(self, group: Group) -> str:
        return f"guard-{hashlib.sha256(f'{group.key} {self._where}'.encode()).hexdigest()}"
