"""What XLA alone was measured to take, and where the time is: lines of explain and report."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.hlo import foreign
from fusionstitch.hlo.brief import count

#: Kernels that are shown, the dearest first.
SHOWN = 8


def told_of(truth: XlaTruth | None) -> Iterator[str]:
    """What XLA's times are scaled to, as a sentence; nothing where they are modelled."""
    if truth is not None and truth.kernels:
        launched = count(sum(one.runs for one in truth.kernels if one.launches), "kernel")
        yield (
            f"XLA alone was measured to take {truth.span_us:.1f} us in {launched}, "
            f"modelled {truth.modelled_us:.1f} us: its times are scaled to that"
        )


def dearest(truth: XlaTruth | None) -> Iterator[str]:
    """Its kernels that take longest in a call, each with where its time is from."""
    kernels = truth.kernels if truth is not None else ()
    for one in sorted(kernels, key=lambda one: -one.runs * one.us)[:SHOWN]:
        runs = f", {one.runs} runs" if one.runs > 1 else ""
        yield (
            f"{foreign.line(one.name)} ({one.emitter}{runs}): {one.runs * one.us:.2f} us "
            f"{one.source}, {one.runs * one.modelled_us:.2f} us modelled"
        )
    if (more := len(kernels) - SHOWN) > 0:
        yield f"and {more} more"
