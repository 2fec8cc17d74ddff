"""Tuning a program: its patterns one after the other, several at a time on several GPUs."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from costmodel.devices import Device
from fusionstitch import core
from fusionstitch.core import Builder
from fusionstitch.errors import FusionStitchError, MeasureError
from fusionstitch.measure.meter import Meter
from fusionstitch.naming import kernel_name
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.plan import Chosen
from fusionstitch.progress import Step, silent
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning import tuned
from fusionstitch.tuning.outcome import Result, TuneReport
from fusionstitch.tuning.record import Entry, record_key, versions
from fusionstitch.tuning.search import Context, Search
from hlo.extract import extract
from hlo.graph import Module
from hlo.importer import from_proto
from hlo.inline import inline_calls

logger = logging.getLogger(__name__)

#: A verdict changes the plan, and new patterns are tuned in turn, this often.
MOST_PLANS = 8


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
    """Tunes the patterns of a module (HloModuleProto bytes) for at most about `budget` seconds.

    The patterns are those that planning chooses; where XLA wins one, the next plan does without
    it, and what is new in that plan is tuned too. What is known with the present versions is not
    measured again. Raises StitchError under fallback="error" if the module cannot be planned.
    """
    start = clock()
    # what is planned must be what was asked for, not what measures by itself
    options = options if options.scorer in ("model", "paper") else options.replace(scorer="model")
    context = Context(options, device, builder, database, start + budget, clock)
    run = _Run(data, context, list(meters), step)
    results: dict[str, Result] = {}
    for _ in range(MOST_PLANS):
        waiting = run.waiting(results)
        if not waiting:
            break
        results.update(run.tune(waiting))
        if context.expired:
            break
    unfinished = any(r.record is not None and not r.record.complete for r in results.values())
    return TuneReport(
        workload=name or run.name,
        device=device.name,
        gpu=meters[0].name,
        seconds=clock() - start,
        results=tuple(results.values()),
        complete=not unfinished and not run.waiting(results),
    )


@dataclass(eq=False)
class _Run:
    data: bytes
    context: Context
    meters: list[Meter]
    step: Step
    name: str = ""

    def __post_init__(self) -> None:
        self.module: Module = from_proto(inline_calls(self.data))
        self.name = self.module.name
        self.versions = versions()

    def waiting(self, done: Mapping[str, Result]) -> dict[str, list[Chosen]]:
        """The patterns of the present plan that have yet to be tuned, the most costly first."""
        context, database = self.context, self.context.database
        results = tuned.load(context.device, database)
        finished = {
            e.key
            for e in tuned.stored(context.device, database)
            if e.versions == self.versions and e.record.complete
        }
        stitched = core.stitch(self.data, context.options, context.device, None, tuned=results)
        found: dict[str, list[Chosen]] = {}
        for plan in stitched.plans:
            for chosen in plan.chosen:
                key = record_key(chosen.pattern.key, context.options)
                if key not in finished and key not in done:
                    found.setdefault(key, []).append(chosen)
        cost = {key: sum(one.xla_us for one in chosen) for key, chosen in found.items()}
        return {key: found[key] for key in sorted(found, key=lambda key: (-cost[key], key))}

    def tune(self, waiting: Mapping[str, list[Chosen]]) -> dict[str, Result]:
        """Each pattern on the next free GPU; the time left is shared by the patterns left."""
        free: queue.SimpleQueue[Meter] = queue.SimpleQueue()
        for meter in self.meters:
            free.put(meter)
        left = len(waiting)

        def one(key: str) -> Result:
            nonlocal left
            meter = free.get()
            try:
                clock, deadline = self.context.clock, self.context.deadline
                share = (deadline - clock()) * min(1.0, len(self.meters) / left)
                left -= 1
                context = replace(self.context, deadline=min(deadline, clock() + share))
                return self._one(key, waiting[key], context, meter)
            finally:
                free.put(meter)

        with ThreadPoolExecutor(max_workers=len(self.meters)) as pool:
            return dict(zip(waiting, pool.map(one, waiting), strict=True))

    def _one(self, key: str, chosen: list[Chosen], context: Context, meter: Meter) -> Result:
        pattern = chosen[0].pattern
        search = Search(pattern, context, meter, self.step)
        try:
            record = search.run(self._xla_us(pattern, meter))
        except FusionStitchError as error:
            return Result(search.name, len(chosen), None, error=str(error))
        tuned.store([Entry(key, self.versions, record)], context.device.name, context.database)
        return Result(search.name, len(chosen), record, tuple(search.points.values()))

    def _xla_us(self, pattern: Pattern, meter: Meter) -> float:
        self.step(f"{kernel_name(pattern.ops, pattern.key)}: XLA")
        return xla_us(self.module, pattern, meter, self.context.device, self.context.database)


def xla_us(
    module: Module, pattern: Pattern, meter: Meter, device: Device, database: Database
) -> float:
    """XLA's time for the ops of a pattern, compiled alone; kept under the versions in use.

    Raises MeasureError if the pattern cannot be taken out of the module or run.
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
