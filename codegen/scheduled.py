"""A region with every decision taken."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.memory.storage import SharedLayout
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.graph import Graph


@dataclass(frozen=True, eq=False)
class Scheduled:
    """What is left is printing it."""

    graph: Graph
    plan: KernelPlan
    layout: SharedLayout
    facts: KernelFacts
