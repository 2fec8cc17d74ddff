"""The planner's door to code generation: what the kernel of a pattern would be."""

from __future__ import annotations

import logging

from codegen.generate import CodegenOptions, inspect
from codegen.region import region
from costmodel.devices import Device
from costmodel.facts import KernelFacts
from fusionstitch.errors import reason
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.plan import Plan
from fusionstitch.plan.planner import plan
from hlo.graph import Graph
from hlo.verdict import Verdict, forbid

logger = logging.getLogger(__name__)


def plan_graph(graph: Graph, device: Device, options: Options, in_loop: bool = False) -> Plan:
    """The plan of one graph, with what code generation says about each pattern asked for."""
    settings = CodegenOptions(options.numerics, options.sharing)

    def ask(pattern: Pattern) -> KernelFacts | Verdict:
        part = region("inspected", pattern.ops, pattern.inputs, pattern.outputs)
        try:
            return inspect(part, device, settings)
        except Exception as error:  # a defect in one pattern must not cost the others
            logger.debug("inspecting a pattern failed", exc_info=True)
            return forbid(reason(error))

    return plan(graph, device, options, ask, in_loop=in_loop)
