"""scorer="measured": patterns are run while planning, each once (paper 4.3)."""

from __future__ import annotations

import functools
import logging

from codegen.generate import CodegenOptions, generate
from codegen.region import region
from costmodel.devices import Device
from fusionstitch.core import Builder, Built
from fusionstitch.errors import FusionStitchError
from fusionstitch.measure.meter import Meter, timing_key
from fusionstitch.naming import kernel_name
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.scores import Measure, is_complex
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.run import xla_us
from fusionstitch.tuning.tuned import Tuned
from hlo.importer import from_proto
from hlo.inline import inline_calls

logger = logging.getLogger(__name__)

#: Replays per kernel.
ROUNDS = 9


def measure_for(
    data: bytes, options: Options, device: Device, builder: Builder, tuned: Tuned
) -> Measure | None:
    """What measures the patterns of a module as `options.scorer` asks; None if nothing is to be.

    Programs of several processes must get the same plan in each, so nothing is measured there.
    """
    if options.scorer not in ("measured", "mixed"):
        return tuned.times(options)
    import jax

    if jax.process_count() > 1:
        logger.warning("Nothing is measured while compiling a program of several processes.")
        return tuned.times(options)
    return live(data, options, device, builder, _meter(device), _database(), tuned)


@functools.cache
def _database() -> Database:
    return Database()


@functools.cache
def _meter(device: Device) -> Meter:
    from fusionstitch.measure import gpu

    return gpu.meters(device)[0]


def live(
    data: bytes,
    options: Options,
    device: Device,
    builder: Builder,
    meter: Meter,
    database: Database,
    tuned: Tuned,
) -> Measure:
    """Measures patterns of a module (HloModuleProto bytes); None for what is left to the model.

    Tuned patterns keep their results. The others run with the schedule they would get; times are
    kept in the database, so that the next process plans the same without measuring. With
    scorer="mixed" only complex patterns are run.
    """
    module = from_proto(inline_calls(data))

    def measure(pattern: Pattern) -> tuple[float, float] | None:
        record = tuned.find(pattern, options)
        if record is not None:
            return record.us, record.xla_us
        if options.scorer == "mixed" and not is_complex(pattern):
            return None
        try:
            ours = _kernel_us(pattern, options, device, builder, meter, database)
            return ours, xla_us(module, pattern, meter, device, database)
        except FusionStitchError as error:
            logger.info("a pattern is modelled, not measured: %s", error)
            return None

    return measure


def _kernel_us(
    pattern: Pattern,
    options: Options,
    device: Device,
    builder: Builder,
    meter: Meter,
    database: Database,
) -> float:
    name = kernel_name(pattern.ops, pattern.key)
    part = region(name, pattern.ops, pattern.inputs, pattern.outputs)
    kernel = generate(part, device, CodegenOptions(options.numerics, options.sharing))
    [built] = builder([kernel])
    if not isinstance(built, Built):
        raise built
    known = database.get_timing(timing_key(built.artifact), device.name)
    if known is not None:
        return known.us
    us = meter.kernel_us(kernel, built.artifact, ROUNDS)
    meta = {"rounds": ROUNDS, "gpu": meter.name}
    database.put_timing(timing_key(built.artifact), device.name, us, meta)
    return us
