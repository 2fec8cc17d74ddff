"""scorer="measured": patterns are run while planning, each once (paper 4.3)."""

from __future__ import annotations

import logging

from codegen.generate import generate
from codegen.region import region
from costmodel.devices import Device
from fusionstitch.core import Builder, Built
from fusionstitch.errors import FusionStitchError
from fusionstitch.measure.meter import Meter, timing_key
from fusionstitch.naming import kernel_name
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.scores import Measure
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.run import xla_us
from fusionstitch.tuning.tuned import Tuned
from hlo.importer import from_proto
from hlo.inline import inline_calls

logger = logging.getLogger(__name__)

#: Replays per kernel.
ROUNDS = 9


def live(
    data: bytes,
    options: Options,
    device: Device,
    builder: Builder,
    meter: Meter,
    database: Database,
    tuned: Tuned,
) -> Measure:
    """Measures the patterns of a module (HloModuleProto bytes), None for what cannot be run.

    Tuned patterns keep their results. The others run with the schedule they would get; times are
    kept in the database, so that the next process plans the same without measuring.
    """
    module = from_proto(inline_calls(data))

    def measure(pattern: Pattern) -> tuple[float, float] | None:
        record = tuned.find(pattern, options)
        if record is not None:
            return record.us, record.xla_us
        name = kernel_name(pattern.ops, pattern.key)
        try:
            part = region(name, pattern.ops, pattern.inputs, pattern.outputs)
            kernel = generate(part, device, tuned.settings(pattern, options))
            [built] = builder([kernel])
            if not isinstance(built, Built):
                return None
            artifact = built.artifact
            key = timing_key(artifact)
            known = database.get_timing(key, device.name)
            if known is None:
                ours = meter.kernel_us(kernel, artifact, ROUNDS)
                meta = {"rounds": ROUNDS, "gpu": meter.name}
                database.put_timing(key, device.name, ours, meta)
            else:
                ours = known.us
            return ours, xla_us(module, pattern, meter, device, database)
        except FusionStitchError as error:
            logger.info("%s is modelled, not measured: %s", name, error)
            return None

    return measure
