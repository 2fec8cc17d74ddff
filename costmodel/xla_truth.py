"""How long XLA takes for a program, as measured, dealt to the kernels that it launches.

The model knows neither what the clock and the caches do nor every kernel of XLA's: where it says
140 us, a program may take 1,290. What was measured is the whole, from which one factor follows for
what all kernels take beyond their floors.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.xla_final import Emitter, FinalKernel, FinalOp, final_kernels
from fusionstitch.hlo.brief import brief, count, listed
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.text import text_to_proto

logger = logging.getLogger(__name__)

#: Where a time of XLA's comes from.
MODELLED, SCALED, MEASURED = "modelled", "scaled", "measured"


@dataclass(frozen=True)
class XlaTruth:
    """A program under XLA alone, as measured.

    Attributes:
        span_us: from the first kernel's start to the last one's end on the device, one call
        kernels: what is launched, whose times add up to that; none where the compiled module could
            not be read
    """

    span_us: float
    kernels: tuple[FinalKernel, ...] = ()

    def __post_init__(self) -> None:
        listed(self, "kernels")

    def __repr__(self) -> str:
        return brief(f"XlaTruth: {self.span_us:.1f} us in {count(self.kernels, 'kernel')}")

    @property
    def modelled_us(self) -> float:
        """What the model says of the same kernels."""
        return sum(one.runs * one.modelled_us for one in self.kernels)

    def measured(self, times: Mapping[str, float]) -> XlaTruth:
        """The same, where one run of some kernels, by their names, was measured as well (in us):
        the others share what these leave of the span."""
        known = tuple(
            replace(one, us=times[one.name], source=MEASURED) if one.name in times else one
            for one in self.kernels
        )
        return XlaTruth(self.span_us, scaled(known, self.span_us))


def to_plain(truth: XlaTruth) -> dict[str, Any]:
    """A truth as JSON knows it, for who keeps it with a program."""
    return dataclasses.asdict(truth)


def from_plain(plain: Mapping[str, Any]) -> XlaTruth:
    """What `to_plain` was given; raises KeyError, TypeError or ValueError for anything else."""

    def kernel(row: Mapping[str, Any]) -> FinalKernel:
        ops = tuple(FinalOp(**{**op, "dims": tuple(op["dims"])}) for op in row["ops"])
        return FinalKernel(**{**row, "emitter": Emitter(row["emitter"]), "ops": ops})

    return XlaTruth(float(plain["span_us"]), tuple(map(kernel, plain["kernels"])))


def truth_of(compiled_text: str, span_us: float, device: Device) -> XlaTruth:
    """What is known of a program under XLA that took `span_us` on the device: `compiled_text` is
    the HLO text of its executable (`jax.stages.Compiled.as_text()`).

    Never raises for a module that cannot be read or modelled: then the span alone is known, as for
    an empty text.
    """
    if not compiled_text:
        return XlaTruth(span_us)
    try:
        module = from_proto(text_to_proto(compiled_text, compiled=True))
        kernels = final_kernels(module, device)
    except Exception:  # an unknown word of XLA's must not cost the program its plan
        logger.warning("XLA's compiled module was not read", exc_info=True)
        return XlaTruth(span_us)
    return XlaTruth(span_us, scaled(kernels, span_us))


def kernels_us(span_us: float, device: Device) -> float:
    """What kernels took of a span between two events, in microseconds: at least a launch."""
    return max(span_us - device.event_us, min(span_us, device.launch_us))


def scaled(kernels: Sequence[FinalKernel], span_us: float) -> tuple[FinalKernel, ...]:
    """The kernels with times that add up to `span_us`; those measured stay.

    Each takes its floor, and of what the model says beyond that, by the factor of its emitter, the
    share that all have in common: a launch is known to take what it takes, so a program that is
    slower than modelled is slow where there is work. Where even the floors, or the measured ones,
    take longer than the span (kernels run side by side), they are shortened alike.
    """
    free = [one for one in kernels if one.source != MEASURED]
    left = span_us - sum(one.runs * one.us for one in kernels if one.source == MEASURED)
    floors = sum(one.runs * one.floor_us for one in free)
    beyond = sum(one.runs * _beyond(one) for one in free)
    stretch = max(0.0, left) / floors if floors > left or not beyond else 1.0
    share = max(0.0, left - floors) / beyond if beyond else 0.0
    return tuple(
        one
        if one.source == MEASURED
        else replace(one, us=one.floor_us * stretch + share * _beyond(one), source=SCALED)
        for one in kernels
    )


def _beyond(kernel: FinalKernel) -> float:
    """What a kernel is modelled to take beyond its floor, as other programs' kernels did."""
    return factors().get(kernel.emitter, 1.0) * max(0.0, kernel.modelled_us - kernel.floor_us)


@functools.cache
def factors() -> Mapping[str, float]:
    """By emitter, how many times as long as modelled its kernels take beyond their floors; none
    where none were measured.

    The file says on what, how and when (`benchmarks/fit_xla.py` writes it).
    """
    file = resources.files("fusionstitch.costmodel") / "emitters.json"
    found: dict[str, float] = json.loads(file.read_text("utf-8"))["factors"]
    return found
