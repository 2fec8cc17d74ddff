"""A kernel before it is verified and printed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fusionstitch.codegen.assembly import Written, assembled, ops_after_rewriting
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.passes import LOWERED
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.lower.program import written
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.costmodel.kernel_time import cost_us

#: The fact of a kernel that is launched otherwise than by default: its modelled microseconds and
#: the default's.
COMPARED = "compared_us"


@dataclass(frozen=True, eq=False)
class Draft:
    """What a schedule became under `options` for a `device`. `default_us` is what the default one
    would take by the cost estimate, if this one is another."""

    scheduled: Scheduled
    written: Written
    options: CodegenOptions
    device: Device
    default_us: float | None = None

    @classmethod
    def of(
        cls, scheduled: Scheduled, options: CodegenOptions, device: Device, watch: Watch = NOBODY
    ) -> Draft:
        """The draft of a schedule. Raises CodegenError."""
        first = written(scheduled, options.numerics)
        watch.lowered(first.lowered, LOWERED, "what the schedule became")
        return cls(scheduled, first.passed(watch, check=options.check), options, device)

    @property
    def template(self) -> str:
        """The template that makes this kernel."""
        return self.scheduled.template

    @property
    def numbered_template(self) -> str:
        """The same for equal regions, whatever the names of their ops are."""
        return self.scheduled.numbered_template

    @property
    def lowered(self) -> Lowered:
        """Its statements, after all passes."""
        return self.written.lowered

    @cached_property
    def cost(self) -> KernelCost:
        """What its statements do."""
        return self.written.cost(self.device)

    @property
    def facts(self) -> KernelFacts:
        """What it would do."""
        return KernelFacts(self.cost, self.scheduled.scope, self.scheduled.facts)

    def kernel(self) -> Kernel:
        """The kernel. Raises CodegenError if the device cannot launch it."""
        own = self.scheduled
        facts = (*own.facts, ("scope", own.scope))
        if self.default_us is not None:
            facts += ((COMPARED, (cost_us(self.cost, self.device), self.default_us)),)
        summary = f"{ops_after_rewriting(own.graph)} ops after rewriting, {own.scope} scope."
        return assembled(own.graph, self.written, own.template, summary, facts, self.device)
