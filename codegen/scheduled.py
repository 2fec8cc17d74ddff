"""A region with every decision taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusionstitch.codegen.memory.storage import SharedLayout
from fusionstitch.codegen.schedule.named_splits import named
from fusionstitch.codegen.schedule.printed import printed
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.split import Splits
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.graph import Graph


@dataclass(frozen=True, eq=False)
class Scheduled:
    """What is left is printing it."""

    graph: Graph
    plan: KernelPlan
    layout: SharedLayout
    facts: KernelFacts
    #: what was split to make the region, and the region before that
    splits: Splits = field(default_factory=dict)
    before: Graph | None = None

    @property
    def template(self) -> str:
        """All decisions as text: a region that is given it gets this very kernel."""
        splits = named(self.before, self.splits) if self.before else ()
        return str(printed(self.graph, self.plan, splits))
