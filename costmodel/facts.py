"""What code generation tells the planner about the kernel it would make of a pattern."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.work import Work


@dataclass(frozen=True)
class KernelFacts:
    """A kernel before it is emitted. `threads` per block; `shared_bytes` per block; `registers`
    per thread, an estimate; `scope` the widest scope an intermediate crosses ("thread", "warp",
    "block", "grid"); `phases` the work between two grid barriers each; `facts` whatever the report should show."""

    work: Work
    threads: int = 256
    shared_bytes: int = 0
    registers: int = 32
    template: str = ""
    scope: str = ""
    phases: tuple[Work, ...] = ()
    facts: tuple[tuple[str, object], ...] = ()
