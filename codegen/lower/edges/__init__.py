"""The edges that there are: a file and an entry each.

A value comes to a nest by the first one that carries it; what none carries is computed where it is
read. A stage's value is stored by all of them that have somewhere to store it, in this order.
"""

from __future__ import annotations

from fusionstitch.codegen.lower.edges import (
    iteration,
    launch,
    registers,
    scratch,
    shared_memory,
)
from fusionstitch.codegen.lower.edges.edge import Edge, Here
from fusionstitch.hlo.graph import Op

EDGES: tuple[Edge, ...] = (
    iteration.ITERATION,
    launch.LAUNCH,
    scratch.SCRATCH,
    shared_memory.SHARED_MEMORY,
    registers.REGISTERS,
)


def edge_of(here: Here, op: Op) -> Edge | None:
    """The edge by which the value of an op comes to a nest."""
    return next((edge for edge in EDGES if edge.carries(here, op)), None)
