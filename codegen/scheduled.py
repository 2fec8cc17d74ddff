"""A region with every decision taken."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.memory.storage import SharedLayout
from fusionstitch.codegen.schedule.printed import printed
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
    #: sums that were split before, by what templates call them, and into how many parts
    splits: tuple[tuple[str, int], ...] = ()

    @property
    def template(self) -> str:
        """All decisions as text: a region that is given it gets this very kernel."""
        return str(printed(self.graph, self.plan, self.splits))
