"""What the log says of a program that was compiled: a line each at "info", the patterns and reasons
at "debug"."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusionstitch.hlo.brief import count
from fusionstitch.plan.plan import Chosen, Plan

if TYPE_CHECKING:
    from fusionstitch.compiler.core import Stitch, Stitched

#: Source lines named for a pattern.
_LINES = 3


def tell(result: Stitched, logger: logging.Logger) -> None:
    """Logs what became of a program."""
    if not logger.isEnabledFor(logging.INFO):
        return
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in result.timings.items())
    logger.info(
        "%s for %s: %s in %s; %s",
        result.name or "a program",
        result.device.name,
        count(result.stitches, "pattern"),
        count(result.kernels, "kernel"),
        times or "nothing was done",
    )
    for plan in result.plans:
        logger.info(
            "  %s: %s, modelled %.1f us, %.1f us under XLA, %s rejected",
            plan.graph.name,
            count(plan.graph.ops, "op"),
            plan.modelled_us,
            plan.xla_us,
            count(plan.rejected, "candidate"),
        )
        _tell_plan(plan, result.stitches, logger)
    for one in result.fallbacks:
        what = count(one.ops, "op") if one.ops else "the whole program"
        logger.info("  left to XLA: %s: %s", what, one.reason)


def _tell_plan(plan: Plan, stitches: Sequence[Stitch], logger: logging.Logger) -> None:
    if not logger.isEnabledFor(logging.DEBUG):
        return
    kernels = {id(one.chosen): one.kernel.name for one in stitches}
    for chosen in plan.chosen:
        name = kernels.get(id(chosen), "no kernel")
        logger.debug("    %s: %s", name, _chosen(chosen))
    for reason, number in Counter(one.reason for one in plan.rejected).most_common():
        logger.debug("    rejected %d: %s", number, reason)


def _chosen(chosen: Chosen) -> str:
    sources = (op.source for op in chosen.pattern.ops if op.source.file)
    lines = list(dict.fromkeys(f"{source.file}:{source.line}" for source in sources))[:_LINES]
    measured = chosen.measured
    beside = f", measured {measured.ours_us:.2f} us ({measured.xla_us:.2f} us)" if measured else ""
    return (
        f"{count(chosen.pattern.ops, 'op')}, {chosen.facts.scope} scope, modelled "
        f"{chosen.modelled_us:.2f} us ({chosen.xla_us:.2f} us of XLA){beside}"
        + (f", from {', '.join(lines)}" if lines else "")
    )
