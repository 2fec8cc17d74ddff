"""The planner's door to code generation: what the kernel of a pattern would be."""

from __future__ import annotations

import logging
from dataclasses import replace

from codegen.generate import inspect
from codegen.region import region
from codegen.tuning import DEFAULT
from costmodel.devices import Device
from costmodel.facts import SCOPES, KernelFacts
from fusionstitch.errors import reason
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.patterns.recompute import recomputed
from fusionstitch.plan.checker import verify_times
from fusionstitch.plan.plan import Plan
from fusionstitch.plan.planner import plan
from fusionstitch.plan.scores import Measure
from fusionstitch.runtime.apart import check
from fusionstitch.tuning.tuned import NOTHING, Tuned
from hlo.graph import Graph
from hlo.verdict import Verdict, forbid

logger = logging.getLogger(__name__)


def plan_graph(
    graph: Graph,
    device: Device,
    options: Options,
    in_loop: bool = False,
    tuned: Tuned = NOTHING,
    measure: Measure | None = None,
) -> Plan:
    """The plan of one graph, with what code generation says about each pattern asked for; or that
    of the graph with copies of what lies between dots, where the copies are worth it.

    `tuned` are known schedules, `measure` gives known times.
    """
    widest = SCOPES.index(options.scope)

    def ask(pattern: Pattern) -> KernelFacts | Verdict:
        check()
        part = region("inspected", pattern.ops, pattern.inputs, pattern.outputs)
        settings = tuned.settings(pattern, options)
        try:
            found = inspect(part, device, settings)
            if isinstance(found, Verdict) and settings.tuning != DEFAULT:
                found = inspect(part, device, replace(settings, tuning=DEFAULT))
        except Exception as error:  # a defect in one pattern must not cost the others
            logger.debug("inspecting a pattern failed", exc_info=True)
            return forbid(reason(error))
        if isinstance(found, KernelFacts) and SCOPES.index(found.scope) > widest:
            return forbid("Its values cross a wider scope than Options.scope.", scope=found.scope)
        return found

    found = plan(graph, device, options, ask, measure=measure, in_loop=in_loop)
    try:
        other = recomputed(graph, device)
    except Exception:  # the plan there is stays
        logger.warning("recomputing between dots failed", exc_info=True)
        other = None
    if other is not None:
        again = plan(
            other.graph,
            device,
            options,
            ask,
            measure=measure,
            in_loop=in_loop,
            offered=other.families,
        )
        if again.modelled_us < min(found.modelled_us, found.xla_us, again.xla_us):
            found = again.instead_of(graph, found.xla_us)
            verify_times(found)
    return found
