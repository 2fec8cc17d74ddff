"""A module between planning and writing, as seen by the code that measures its patterns
(`guard/`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.hlo.graph import Module
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.findings import Evidence
from fusionstitch.runtime.artifact import Artifact


@dataclass(frozen=True, eq=False)
class Workpiece:
    """A module while it is planned.

    `literals` were detached from it (`hlo/detached.py`). `make` returns the kernels of patterns of
    a module as the program would have them, None for those that cannot be built. `again` makes the
    program again from the current plans and the given evidence, for judging after it was made.
    """

    module: Module
    literals: Sequence[bytes]
    make: Callable[[Module, Sequence[Pattern]], Sequence[tuple[Kernel, Artifact] | None]]
    again: Callable[[Evidence], Stitched]


#: Revises the plans of graphs by measurements of their patterns, and returns these.
Judge = Callable[[Workpiece, Sequence[GraphPlanner]], Evidence]
