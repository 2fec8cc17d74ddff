"""The search for one pattern: neighbourhoods of a schedule by successive halving.

The model orders each neighbourhood (`codegen/search/neighbours.py`) and decides what is compiled;
measurements decide the rest. Every time is stored in the database when it is measured, and looked
up before measuring again, so an interrupted search continues where it stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fusionstitch.codegen.generate import (
    CodegenOptions,
    Planned,
    compared,
    draft,
    neighbours,
)
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.search.descent import descend
from fusionstitch.compiler.built import Builder, Built
from fusionstitch.compiler.naming import kernel_name
from fusionstitch.compiler.progress import Step, silent
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.errors import CodegenError, FusionStitchError, MeasureError
from fusionstitch.hlo.graph import Graph
from fusionstitch.measure.meter import Meter, timing_key
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.record import Record

logger = logging.getLogger(__name__)

#: The most schedules of a neighborhood that are compiled and measured: the best by the model.
WIDTH = 24
#: Replays per measurement while there are many schedules, and for the last ones.
FIRST_ROUNDS, LAST_ROUNDS = 5, 25
#: By what share a schedule must be faster to become the best one.
NOISE = 0.01
#: Largest relative L2 difference from the default schedule's results, by type.
DIFFERENCES = {"f32": 1e-4, "f64": 1e-4}
OTHER_DIFFERENCE = 2e-2


@dataclass(frozen=True)
class Variant:
    """One built schedule of the pattern. `template` is "" for the default one."""

    draft: Planned
    template: str
    kernel: Kernel
    artifact: Artifact
    model_us: float

    @property
    def key(self) -> str:
        """The key of its time."""
        return timing_key(self.artifact)


@dataclass(frozen=True, eq=False)
class Context:
    """What the searches of one run share. Times are in seconds of `clock`."""

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
    _seen: set[str] = field(default_factory=set)
    _default: str = ""
    #: whether there was too little time for all drafts
    _is_cut: bool = False

    def __post_init__(self) -> None:
        pattern = self.pattern
        self.name = kernel_name(pattern.ops, pattern.key)
        self.region: Graph = region(self.name, pattern.ops, pattern.inputs, pattern.outputs)

    def run(self, xla_us: float) -> Record:
        """The best schedule found by the deadline, next to XLA's time for the same ops.

        Raises MeasureError if not even the default schedule can be built and run.
        """
        device, options = self.context.device, self.options
        try:
            first = compared(draft(self.region, device, options), device)
        except CodegenError as error:
            raise MeasureError(f"{self.name}: {error}") from None
        self._default = first.template
        start = self._variants([first])
        if not start:
            raise MeasureError(f"{self.name}: the default schedule cannot be built.")
        default = start[0]
        default_us = self._measure(default, LAST_ROUNDS)

        def near(one: Variant) -> Iterator[tuple[float, Variant]]:
            if self.context.expired:
                return
            found = self._fastest(self._variants(neighbours(one.draft)))
            agreeing = (each for each in found if self._agrees(default, *each))
            if (fastest := next(agreeing, None)) is not None:
                yield fastest

        best_us, best = descend(default, default_us, near, worth=1 - NOISE)
        return Record(
            template=best.template and best.draft.numbered_template,
            us=best_us,
            default_us=default_us,
            xla_us=xla_us,
            model_us=best.model_us,
            tried=len(self.points),
            complete=not (self._is_cut or self.context.expired),
            name=self.name,
            gpu=self.meter.name,
        )

    def _variants(self, drafts: Iterable[Planned]) -> list[Variant]:
        """The best of them by the model, built, without those that give the same kernel.

        Drafts take at most half of the remaining time, so that some can also be measured. After the
        deadline only the first one is built.
        """
        clock, deadline = self.context.clock, self.context.deadline
        half = (clock() + deadline) / 2
        ranked: list[tuple[float, int, Planned]] = []
        for number, one in enumerate(drafts):
            if number and clock() >= half:
                self._is_cut = True
                break
            ranked.append((cost_us(one.cost, self.context.device), number, one))
        ranked.sort(key=lambda one: one[:2])
        written: dict[Kernel, tuple[float, Planned]] = {}
        for us, _, one in ranked:
            if len(written) == WIDTH or (written and self.context.expired):
                break
            with suppress(CodegenError):
                written.setdefault(one.kernel(), (us, one))
        self.step(f"{self.name}: building {len(written)} schedules")
        made = []
        for kernel, built in zip(written, self.context.builder(list(written)), strict=True):
            if isinstance(built, Built):
                us, one = written[kernel]
                made.append(Variant(one, self._template(one), kernel, built.artifact, us))
        new = [one for one in made if one.key not in self._seen]
        self._seen.update(one.key for one in new)
        return new

    @property
    def options(self) -> CodegenOptions:
        """The options of the default schedule."""
        return CodegenOptions(self.context.options.numerics, self.context.options.sharing)

    def _template(self, one: Planned) -> str:
        return "" if one.template == self._default else one.template

    def _fastest(self, variants: Sequence[Variant]) -> list[tuple[float, Variant]]:
        """(time, variant) of all, the fastest first; halved repeatedly, with ever more replays."""
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
                    logger.info("%s cannot be measured: %s\n%s", self.name, error, one.template)
            left = [one for one in left if one.key in times]
            left.sort(key=lambda one: times[one.key][0])
            if rounds == LAST_ROUNDS or self.context.expired:
                break
            left = left[: max(1, len(left) // 2)]
            rounds = min(2 * rounds + 1, LAST_ROUNDS) if len(left) > 2 else LAST_ROUNDS
        return sorted(times.values(), key=lambda one: (one[0], one[1].template))

    def _measure(self, one: Variant, rounds: int) -> float:
        """Uses a stored time that was measured with as many rounds."""
        database, device = self.context.database, self.context.device.name
        known = database.get_timing(one.key, device)
        if known is not None and known.meta.get("rounds", 0) >= rounds:
            us = known.us
        else:
            us = self.meter.kernel_us(one.kernel, one.artifact, rounds)
            meta = {"rounds": rounds, "template": one.template, "gpu": self.meter.name}
            database.put_timing(one.key, device, us, meta)
        self.points[one.key] = one.model_us, us
        return us

    def _agrees(self, default: Variant, us: float, one: Variant) -> bool:
        """Whether a schedule's results equal the default one's, up to the order of sums."""
        try:
            found = self.meter.differences(
                (default.kernel, default.artifact), (one.kernel, one.artifact)
            )
        except FusionStitchError as error:
            logger.info("%s cannot be compared: %s\n%s", self.name, error, one.template)
            return False
        for shape, difference in zip(one.kernel.outputs, found, strict=True):
            if not difference <= DIFFERENCES.get(shape.dtype, OTHER_DIFFERENCE):
                logger.warning(
                    "%s differs by %.1e from its default schedule, in %.1f us: this is a defect, "
                    "and it is not used.\n%s",
                    self.name,
                    difference,
                    us,
                    one.template,
                )
                return False
        return True
