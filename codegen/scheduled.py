"""A region with every decision taken."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.memory.storage import SharedLayout
from fusionstitch.codegen.schedule.named_splits import named
from fusionstitch.codegen.schedule.printed import printed
from fusionstitch.codegen.schedule.renamed import numbered
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.split import Splits
from fusionstitch.codegen.schedule.template import Template
from fusionstitch.hlo.graph import Graph


@dataclass(frozen=True, eq=False)
class Scheduled:
    """What is left is writing it down."""

    graph: Graph
    plan: KernelPlan
    layout: SharedLayout
    #: what was split to make the region, whether concatenates were sunk, the tiles with halos, and
    #: the region before that
    splits: Splits = field(default_factory=dict)
    sunk: bool = False
    halo: tuple[int, ...] = ()
    before: Graph | None = None

    def from_that_of(self, other: Scheduled) -> Scheduled:
        """The same, where its region was made as that of another schedule."""
        own = replace(self, splits=other.splits, sunk=other.sunk, halo=other.halo)
        return replace(own, before=other.before)

    @property
    def template(self) -> str:
        """All decisions as text: a region that is given it gets this very kernel."""
        return str(self._printed)

    @property
    def numbered_template(self) -> str:
        """The same for equal regions, whatever the names of their ops are."""
        return str(numbered(self._printed, self.graph, self.before or self.graph))

    @property
    def _printed(self) -> Template:
        splits = named(self.before, self.splits) if self.before else ()
        return printed(self.graph, self.plan, splits, self.sunk, self.halo)

    @property
    def scope(self) -> str:
        """The widest of `SCOPES` that an intermediate crosses."""
        if self.plan.cooperative:
            return "grid"
        if self.plan.cluster > 1:
            return "cluster"
        if self.layout.offsets:
            return "block"
        joined = any(
            nest.teams.threads > 1 and Role.REDUCE in nest.nest.role.values()
            for group in self.plan.groups
            for nest in group.nests
        )
        return "warp" if joined else "thread"

    @property
    def facts(self) -> tuple[tuple[str, object], ...]:
        """What the report shows of it (Table 4 of the paper, and the groups)."""
        plans = self.layout.plans
        return (
            ("unshared_bytes", self.layout.unshared),
            ("shared_requests", sum(plan.requests for plan in plans)),
            ("shared_allocations", sum(plan.buffers for plan in plans)),
            ("groups", len(self.plan.groups)),
        )
