"""What code generation tells the planner about the kernel it would make of a pattern."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.costmodel.account import Account
from fusionstitch.hlo.brief import brief, count

#: What the intermediates of a kernel may cross, the narrowest first.
SCOPES = ("thread", "warp", "block", "cluster", "grid", "loop")


@dataclass(frozen=True)
class KernelFacts:
    """A kernel before it is printed: `account` is what its statements do, `scope` the widest of
    `SCOPES` that an intermediate crosses, `facts` are whatever the report should show."""

    account: Account
    scope: str = ""
    facts: tuple[tuple[str, object], ...] = ()

    def __repr__(self) -> str:
        account = self.account
        return brief(
            f"KernelFacts: {self.scope} scope, {count(account.threads, 'thread')} a block, "
            f"{count(account.shared_bytes, 'byte')} shared, "
            f"{count(account.registers, 'register')}, {count(account.phases, 'phase')}"
        )
