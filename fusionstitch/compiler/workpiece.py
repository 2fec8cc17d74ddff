"""A module between planning and writing, as those see it who measure its patterns (`guard/`)."""

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
    """A module at the time when it is planned. `literals` were taken out of it (`hlo/detached.py`);
    `make` gives the kernels of patterns of a module as the program would have them, None for those
    that cannot be built. `again` makes the program once more, by the plans as they are then, which
    rest on that evidence: for who judges them when it is made already."""

    module: Module
    literals: Sequence[bytes]
    make: Callable[[Module, Sequence[Pattern]], Sequence[tuple[Kernel, Artifact] | None]]
    again: Callable[[Evidence], Stitched]


#: Revises the plans of a module's graphs by what is measured of their patterns, which it returns.
Judge = Callable[[Workpiece, Sequence[GraphPlanner]], Evidence]
