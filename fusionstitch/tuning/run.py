"""Tuning a program: its patterns one after another, in parallel on several GPUs."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from fusionstitch.compiler import core
from fusionstitch.compiler.built import Builder
from fusionstitch.compiler.naming import kernel_name
from fusionstitch.compiler.progress import Step, silent
from fusionstitch.costmodel.devices import Device
from fusionstitch.errors import FusionStitchError, MeasureError
from fusionstitch.hlo.as_xla import as_xla
from fusionstitch.hlo.extract import extract
from fusionstitch.hlo.graph import Module
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.measure.meter import Meter
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.plan import Chosen
from fusionstitch.runtime.cache import Database
from fusionstitch.supported import xla_version
from fusionstitch.tuning import tuned
from fusionstitch.tuning.outcome import Result, TuneReport
from fusionstitch.tuning.record import Entry, Record, record_key, versions
from fusionstitch.tuning.search import Context, Search

logger = logging.getLogger(__name__)

#: The most patterns per plan that the model leaves to XLA by a small margin and that are measured
#: anyway.
MOST_TIES = 8
#: How often measurements may change the plan, after which new patterns are measured.
MOST_PLANS = 6
#: If a default schedule takes this many times as long as XLA, no others are searched.
HOPELESS = 2.0


def tune_module(
    data: bytes,
    options: Options,
    device: Device,
    builder: Builder,
    meters: Sequence[Meter],
    database: Database,
    *,
    budget: float,
    name: str = "",
    step: Step = silent,
    clock: Callable[[], float] = time.monotonic,
) -> TuneReport:
    """Tunes the patterns of a module (HloModuleProto bytes) for about `budget` seconds.

    First it measures patterns with their default schedules, next to XLA's compile of the same ops:
    those that planning chooses, and those left to XLA only because the model calls them a tie. It
    repeats this until the plan no longer changes. Then it searches the schedules of all patterns
    that may win, the plan's own first. If that changes the plan, both steps are repeated. What was
    measured with the present versions is not measured again.

    The kernels of the last plan are built, so that later processes find them in the cache. Raises
    StitchError under fallback="error" if the module cannot be planned.
    """
    start = clock()
    # the plan must be the requested one, not one that measures by itself
    options = options if options.scorer in ("model", "paper") else options.replace(scorer="model")
    context = Context(options, device, builder, database, start + budget, clock)
    run = _Run(data, context, list(meters), step)
    for _ in range(MOST_PLANS):
        run.settle()
        waiting = run.waiting()
        if not waiting or context.expired:
            break
        run.measure(waiting, search=True)
    run.build()
    return TuneReport(
        workload=name or run.name,
        device=device.name,
        gpu=meters[0].name,
        seconds=clock() - start,
        results=tuple(run.all_results()),
        complete=not run.waiting(),
    )


@dataclass(eq=False)
class _Run:
    """One call. `patterns` are the relevant ones by `record_key`, with their occurrences."""

    data: bytes
    context: Context
    meters: list[Meter]
    step: Step
    name: str = ""
    patterns: dict[str, list[Pattern]] = field(default_factory=dict)
    planned: dict[str, float] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # in the form in which it is planned
        self.module: Module = as_xla(from_proto(inline_calls(self.data)), xla_version())
        self.name = self.module.name
        self.versions = versions()

    def settle(self) -> None:
        """Measures default schedules until every pattern of the plan has a time."""
        for _ in range(MOST_PLANS):
            unknown = self.unknown()
            if not unknown:
                break
            self.measure(unknown, search=False)

    def unknown(self) -> list[str]:
        """The patterns of the present plan and its ties that were not measured with these
        versions."""
        context = self.context
        results = tuned.load(context.device, context.database)
        known = results.times(context.options)
        asked: dict[Pattern, None] = {}

        def measure(pattern: Pattern) -> tuple[float, float] | None:
            times = known(pattern) if known else None
            if times is None:
                asked.setdefault(pattern)
            return times

        stitched = core.stitch(
            self.data, context.options, context.device, None, tuned=results, measure=measure
        )
        chosen = [one for plan in stitched.plans for one in plan.chosen]
        self.planned.clear()
        for one in chosen:
            key = record_key(one.pattern.key, context.options)
            self.planned[key] = self.planned.get(key, 0.0) + one.xla_us
        found: dict[str, list[Pattern]] = {}
        for pattern in (*(one.pattern for one in chosen), *self._ties(list(asked), chosen)):
            found.setdefault(record_key(pattern.key, context.options), []).append(pattern)
        self.patterns.update(found)
        measured = self._records()
        return [key for key in found if key not in measured and key not in self.results]

    def waiting(self) -> list[str]:
        """The patterns that may win and whose search is not complete, the plan's most expensive
        ones first."""
        records = self._records()
        found = []
        for key in self.patterns:
            record = records.get(key)
            if record and not record.complete and record.us < HOPELESS * record.xla_us:
                found.append((-self.planned.get(key, 0.0), record.us / record.xla_us, key))
        return [key for *_, key in sorted(found)]

    def _records(self) -> dict[str, Record]:
        """The measurements with these versions."""
        entries = tuned.stored(self.context.device, self.context.database)
        return {e.key: e.record for e in entries if e.versions == self.versions}

    def _ties(self, asked: Sequence[Pattern], chosen: Sequence[Chosen]) -> list[Pattern]:
        """The largest patterns that planning asked about and did not choose, disjoint from each
        other and from all relevant patterns."""
        taken: dict[int | None, int] = {}
        known = [pattern for patterns in self.patterns.values() for pattern in patterns]
        for pattern in (*known, *(one.pattern for one in chosen)):
            graph = pattern.graph.proto_id
            taken[graph] = taken.get(graph, 0) | pattern.bits
        ties: list[Pattern] = []
        for pattern in sorted(asked, key=lambda p: (-p.bits.bit_count(), p.bits)):
            graph = pattern.graph.proto_id
            if len(ties) < MOST_TIES and not taken.get(graph, 0) & pattern.bits:
                ties.append(pattern)
                taken[graph] = taken.get(graph, 0) | pattern.bits
        return ties

    def all_results(self) -> Iterator[Result]:
        """The results of this run, then the known results of the plan's other patterns."""
        yield from self.results.values()
        for key, record in self._records().items():
            if key in self.patterns and key not in self.results:
                patterns = self.patterns[key]
                yield Result(record.name, len(patterns), record)

    def build(self) -> None:
        """Builds the kernels that programs will now get."""
        context = self.context
        self.step("building the kernels of the plan")
        results = tuned.load(context.device, context.database)
        core.stitch(self.data, context.options, context.device, context.builder, tuned=results)

    def measure(self, keys: Sequence[str], search: bool) -> None:
        """Measures each pattern on the next free GPU; a search gets its share of the remaining
        time."""
        free: queue.SimpleQueue[Meter] = queue.SimpleQueue()
        for meter in self.meters:
            free.put(meter)
        left = len(keys)

        def one(key: str) -> None:
            nonlocal left
            meter = free.get()
            try:
                now, end = self.context.clock(), self.context.deadline
                share = (end - now) * min(1.0, len(self.meters) / left) if search else 0.0
                left -= 1
                self._one(key, replace(self.context, deadline=now + share), meter)
            finally:
                free.put(meter)

        with ThreadPoolExecutor(max_workers=len(self.meters)) as pool:
            list(pool.map(one, keys))

    def _one(self, key: str, context: Context, meter: Meter) -> None:
        patterns = self.patterns[key]
        found = Search(patterns[0], context, meter, self.step)
        try:
            record = found.run(self._xla_us(patterns[0], meter))
        except FusionStitchError as error:
            self.results[key] = Result(found.name, len(patterns), None, error=str(error))
            return
        tuned.store([Entry(key, self.versions, record)], context.device.name, context.database)
        points = tuple(found.points.values())
        self.results[key] = Result(found.name, len(patterns), record, points)

    def _xla_us(self, pattern: Pattern, meter: Meter) -> float:
        self.step(f"{kernel_name(pattern.ops, pattern.key)}: XLA")
        return xla_us(self.module, pattern, meter, self.context.device, self.context.database)


def xla_us(
    module: Module, pattern: Pattern, meter: Meter, device: Device, database: Database
) -> float:
    """XLA's microseconds for the ops of a pattern, compiled alone; stored with the present
    versions.

    Raises MeasureError if the pattern cannot be extracted from the module or run.
    """
    key = f"xla-{pattern.key}-{versions()}"
    known = database.get_timing(key, device.name)
    if known is not None:
        return known.us
    name = f"alone_{pattern.key[:8]}"
    try:
        part = extract(module, pattern.graph, pattern.inputs, pattern.outputs, name)
    except FusionStitchError as error:
        raise MeasureError(f"XLA's time for these ops is unknown: {error}") from None
    us = meter.xla_us(part)
    database.put_timing(key, device.name, us, {"gpu": meter.name})
    return us
