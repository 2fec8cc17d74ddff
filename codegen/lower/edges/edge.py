"""Edges: how a value gets from the stage that computes it to where it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import Expr
from fusionstitch.codegen.ir.statements import Store
from fusionstitch.codegen.loops.axes import GroupAxes
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.nests import Nest
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.context import Locations
from fusionstitch.codegen.lower.known import AtDepth
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.lower.vector_access import VectorAccess
from fusionstitch.codegen.schedule.schedule import GroupPlan
from fusionstitch.hlo.graph import Op


class Here(Protocol):
    """Where a nest stands that reads and stores values."""

    memory: Locations
    group: GroupPlan
    nest: Nest
    axes: GroupAxes
    digits: Digits
    values: Values
    writer: Writer
    elements: VectorAccess
    #: the names of the arrays in shared memory, by what lies in them
    shared_names: Mapping[Stage, str]
    #: the stages that the loops of the group read whole, by op id
    whole: Mapping[int, Stage]

    def stored_to(
        self, buffers: Sequence[str], stage: Stage, value: Expr, condition: Expr | None
    ) -> list[Store]:
        """What stores the element of a stage to such buffers, where `condition` holds. A vector is
        stored after the loop over its elements."""


@dataclass(frozen=True)
class Edge:
    """A way of values.

    Attributes:
        name: what it is called
        scope: who may read what comes this way: of `costmodel/facts.py: SCOPES`, or the next launch
        carries: whether the value of an op comes this way to a nest
        read: how the nest reads an element, and the depth from which on it may; None: computes it
        buffer: the buffer of global memory that it lies in ('': in none)
        store: what stores an element of a stage for who reads it so, where a condition holds
    """

    name: str
    scope: str
    carries: Callable[[Here, Op], bool]
    read: Callable[[Here, Op, Indices], AtDepth | None]
    buffer: Callable[[Here, Op], str] = lambda here, op: ""
    store: Callable[[Here, Stage, Expr, Expr | None], Sequence[Store]] = (
        lambda here, stage, value, condition: ()
    )


def in_group(here: Here, op: Op) -> Stage | None:
    """The stage of the nest's own group that computes an op for others to read, if one does."""
    stage = here.whole.get(op.id)
    return stage if stage in here.group.group.stages else None
