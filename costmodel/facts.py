"""What the planner learns from code generation about the kernel of a pattern."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.hlo.brief import brief, count

#: What the intermediates of a kernel may cross, the narrowest first.
SCOPES = ("thread", "warp", "block", "cluster", "grid", "loop")


@dataclass(frozen=True)
class KernelFacts:
    """A kernel before it is printed: `cost` is what its statements do, `scope` the widest of
    `SCOPES` that an intermediate crosses, `facts` are whatever the report should show."""

    cost: KernelCost
    scope: str = ""
    facts: tuple[tuple[str, object], ...] = ()

    def __repr__(self) -> str:
        cost = self.cost
        return brief(
            f"KernelFacts: {self.scope} scope, {count(cost.threads, 'thread')} a block, "
            f"{count(cost.shared_bytes, 'byte')} shared, "
            f"{count(cost.registers, 'register')}, {count(cost.phases, 'phase')}"
        )
