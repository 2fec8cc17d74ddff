"""Log messages about a compiled program: a line each at "info", patterns and reasons at "debug"."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.hlo.brief import count
from fusionstitch.plan.plan import Chosen, Plan

#: The most source lines listed for a pattern.
_LINES = 3


@dataclass(frozen=True)
class Summary:
    """What is logged about a program: seconds of its passes, its plans, the kernel names by
    identity of the chosen pattern, and what was left to XLA with the reasons."""

    name: str
    device: str
    seconds: Mapping[str, float]
    plans: Sequence[Plan]
    kernels: Mapping[int, str]
    left: Sequence[tuple[Sequence[str], str]]


def log_summary(program: Summary, logger: logging.Logger) -> None:
    """Logs the result for a program."""
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in program.seconds.items())
    logger.info(
        "%s for %s: %s in %s; %s",
        program.name or "a program",
        program.device,
        count(program.kernels, "pattern"),
        count(set(program.kernels.values()), "kernel"),
        times or "nothing was done",
    )
    for plan in program.plans:
        logger.info(
            "  %s: %s, modelled %.1f us, %.1f us under XLA, %s rejected",
            plan.graph.name,
            count(plan.graph.ops, "op"),
            plan.modelled_us,
            plan.xla_us,
            count(plan.rejected, "candidate"),
        )
        if logger.isEnabledFor(logging.DEBUG):
            _log_plan(plan, program.kernels, logger)
    for ops, reason in program.left:
        what = count(ops, "op") if ops else "the whole program"
        logger.info("  left to XLA: %s: %s", what, reason)


def _log_plan(plan: Plan, kernels: Mapping[int, str], logger: logging.Logger) -> None:
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
