"""The search for one pattern: neighbourhoods of a schedule by successive halving.

The model orders each neighbourhood and decides what is compiled; the clock decides the rest. Every
time is written to the database when it is taken and looked up before the next one, so a search
that was cut short goes on where it stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from fusionstitch.codegen.generate import CodegenOptions, draft, generate, plan_kernel
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.compiler.built import Builder, Built
from fusionstitch.compiler.naming import kernel_name
from fusionstitch.compiler.progress import Step, silent
from fusionstitch.costmodel.account_time import account_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.errors import CodegenError, FusionStitchError, MeasureError
from fusionstitch.hlo.graph import Graph
from fusionstitch.measure.meter import Meter, timing_key
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.neighbours import combined, neighbours
from fusionstitch.tuning.record import Record

logger = logging.getLogger(__name__)

#: Schedules of a neighbourhood that are compiled and measured, the model's best.
WIDTH = 24
#: Replays per measurement while there are many, and for the last ones.
FIRST_ROUNDS, LAST_ROUNDS = 5, 25
#: How much faster a schedule has to be to be another best one.
NOISE = 0.01
#: Improvements of single choices that are tried together.
COMBINED = 5
#: Largest relative L2 difference from the default schedule's results, by the result's type.
DIFFERENCES = {"f32": 1e-4, "f64": 1e-4}
OTHER_DIFFERENCE = 2e-2


def template_of(pattern: Pattern, tuning: Tuning, context: Context) -> str:
    """The template of a pattern's kernel with the choices of the tuner, or "" where there is none
    any more."""
    part = region("tuned", pattern.ops, pattern.inputs, pattern.outputs)
    try:
        return plan_kernel(part, context.device, _settings(tuning, context.options)).template
    except CodegenError:
        return ""


def _settings(tuning: Tuning, options: Options) -> CodegenOptions:
    return replace(CodegenOptions(options.numerics, options.sharing), tuning=tuning)


@dataclass(frozen=True)
class Variant:
    """One way to schedule the pattern, built."""

    tuning: Tuning
    kernel: Kernel
    artifact: Artifact
    model_us: float

    @property
    def key(self) -> str:
        """What its time belongs to."""
        return timing_key(self.artifact)


@dataclass(frozen=True, eq=False)
class Context:
    """What the searches of one run have in common. Times are in seconds of `clock`."""

    options: Options
    device: Device
    builder: Builder
    database: Database
    deadline: float
    clock: Callable[[], float] = time.monotonic

    @property
    def expired(self) -> bool:
        return self.clock() >= self.deadline


@dataclass(eq=False)
class Search:
    """The search for one pattern; `points` are (model, measured) microseconds by `Variant.key`."""

    pattern: Pattern
    context: Context
    meter: Meter
    step: Step = silent
    points: dict[str, tuple[float, float]] = field(default_factory=dict)
    _seen: dict[str, Variant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pattern = self.pattern
        self.name = kernel_name(pattern.ops, pattern.key)
        self.region: Graph = region(self.name, pattern.ops, pattern.inputs, pattern.outputs)

    def run(self, xla_us: float) -> Record:
        """The best schedule found by the deadline, next to XLA's time for the same ops.

        Raises MeasureError if not even the default schedule can be built and run.
        """
        start = self._variants([DEFAULT])
        if not start:
            raise MeasureError(f"{self.name}: the default schedule cannot be built.")
        default = best = start[0]
        default_us = best_us = self._measure(default, LAST_ROUNDS)
        complete = False
        frontier = list(neighbours(DEFAULT, self.context.device))
        while not self.context.expired:
            found = self._fastest(self._variants(frontier))
            improved = [(us, v) for us, v in found if us < default_us * (1 - NOISE)]
            winner = next((one for one in found if self._agrees(default, *one)), None)
            if winner is None or winner[0] >= best_us * (1 - NOISE):
                complete = not self.context.expired
                break
            best_us, best = winner
            together = [v.tuning for _, v in improved[:COMBINED]]
            frontier = [
                *combined(best.tuning, together),
                *neighbours(best.tuning, self.context.device),
            ]
        return Record(
            tuning=best.tuning,
            us=best_us,
            default_us=default_us,
            xla_us=xla_us,
            model_us=best.model_us,
            tried=len(self.points),
            complete=complete,
            name=self.name,
            gpu=self.meter.name,
        )

    def _variants(self, tunings: Iterable[Tuning]) -> list[Variant]:
        """The model's best of them, built; those that are no other kernel are left out.

        After the deadline only the first of them.
        """
        ranked: list[tuple[float, int, Tuning]] = []
        for number, tuning in enumerate(dict.fromkeys(tunings)):
            if number and self.context.expired:
                break
            try:
                one = draft(self.region, self.context.device, self._settings(tuning))
            except CodegenError:
                continue
            ranked.append((account_us(one.account, self.context.device), number, tuning))
        ranked.sort(key=lambda one: one[:2])
        written: dict[Kernel, tuple[Tuning, float]] = {}
        for us, _, tuning in ranked:
            if len(written) == WIDTH or (written and self.context.expired):
                break
            kernel = self._generated(tuning)
            if kernel is not None:
                written.setdefault(kernel, (tuning, us))
        self.step(f"{self.name}: building {len(written)} schedules")
        made = []
        for kernel, built in zip(written, self.context.builder(list(written)), strict=True):
            if isinstance(built, Built):
                tuning, us = written[kernel]
                made.append(Variant(tuning, kernel, built.artifact, us))
        new = [one for one in made if one.key not in self._seen]
        self._seen.update((one.key, one) for one in new)
        return new

    def _settings(self, tuning: Tuning) -> CodegenOptions:
        return _settings(tuning, self.context.options)

    def _generated(self, tuning: Tuning) -> Kernel | None:
        try:
            return generate(self.region, self.context.device, self._settings(tuning))
        except CodegenError:
            return None

    def _fastest(self, variants: Sequence[Variant]) -> list[tuple[float, Variant]]:
        """(time, variant) of all, the fastest first; halved again and again, timed ever better."""
        times: dict[str, tuple[float, Variant]] = {}
        left, rounds = list(variants), FIRST_ROUNDS
        while left:
            for number, one in enumerate(left):
                if self.context.expired:
                    break
                self.step(f"{self.name}: {number + 1} of {len(left)} schedules, {rounds} replays")
                try:
                    times[one.key] = self._measure(one, rounds), one
                except MeasureError as error:
                    logger.info("%s with %s: %s", self.name, one.tuning, error)
            left = [one for one in left if one.key in times]
            left.sort(key=lambda one: times[one.key][0])
            if rounds == LAST_ROUNDS or self.context.expired:
                break
            left = left[: max(1, len(left) // 2)]
            rounds = min(2 * rounds + 1, LAST_ROUNDS) if len(left) > 2 else LAST_ROUNDS
        return sorted(times.values(), key=lambda one: (one[0], str(one[1].tuning)))

    def _measure(self, one: Variant, rounds: int) -> float:
        """Looked up where it was measured with as many rounds before."""
        database, device = self.context.database, self.context.device.name
        known = database.get_timing(one.key, device)
        if known is not None and known.meta.get("rounds", 0) >= rounds:
            us = known.us
        else:
            us = self.meter.kernel_us(one.kernel, one.artifact, rounds)
            meta = {"rounds": rounds, "tuning": one.tuning.to_dict(), "gpu": self.meter.name}
            database.put_timing(one.key, device, us, meta)
        self.points[one.key] = one.model_us, us
        return us

    def _agrees(self, default: Variant, us: float, one: Variant) -> bool:
        """Whether a schedule computes what the default one does, but for the order of sums."""
        try:
            found = self.meter.differences(
                (default.kernel, default.artifact), (one.kernel, one.artifact)
            )
        except FusionStitchError as error:
            logger.info("%s with %s: %s", self.name, one.tuning, error)
            return False
        for shape, difference in zip(one.kernel.outputs, found, strict=True):
            if not difference <= DIFFERENCES.get(shape.dtype, OTHER_DIFFERENCE):
                logger.warning(
                    "%s with %s differs by %.1e from the default schedule after %.1f us: this is "
                    "a defect, and it is not used.",
                    self.name,
                    one.tuning,
                    difference,
                    us,
                )
                return False
        return True
