"""Groups as functions of their own: what these are given, and how they are called.

Which groups are is decided in the schedule, because there are others of their kind; a pass makes
one function of those that are alike (`ir/passes/sharing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.ir.expressions import SHARED, Expr, Name, number
from fusionstitch.codegen.ir.statements import Body, Shared
from fusionstitch.codegen.ir.types import IndexType, PointerTo, Raw, Record, Scalar, Type, stored
from fusionstitch.codegen.ir.walk import every
from fusionstitch.codegen.lower.context import Locations
from fusionstitch.codegen.schedule.likeness import is_flat
from fusionstitch.codegen.schedule.schedule import GroupPlan
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Signature:
    """What a group reads, in order of first use, and what it writes: (op, buffer). A `flat` one
    has a parameter for how many grid points there are."""

    loads: tuple[tuple[Op, str], ...]
    stores: tuple[tuple[Op, str], ...]
    flat: bool

    def parameters(self, int_: IndexType, body: Body) -> tuple[tuple[Type, str], ...]:
        """Types and names: the tile, the grid points there are, where shared memory begins for a
        body that has arrays there, the pointers."""
        reads = [(PointerTo(t, constant=True), f"in_{i}") for i, t in _types(self.loads)]
        writes = [(PointerTo(t), f"out_{i}") for i, t in _types(self.stores)]
        points = [(int_, "points")] if self.flat else []
        shared = [(PointerTo(Raw.BYTE), SHARED.name)] if _has_arrays(body) else []
        return ((int_, "tile"), *points, *shared, *reads, *writes)

    def arguments(self, group: GroupPlan, body: Body) -> tuple[Expr, ...]:
        """The arguments of a call for a group, after the tile."""
        points = [number(group.grid_points)] if self.flat else []
        shared = [SHARED] if _has_arrays(body) else []
        names = (Name(name) for _, name in (*self.loads, *self.stores))
        return (*points, *shared, *names)


def signature(group: GroupPlan, memory: Locations) -> Signature:
    """The signature of a group whose values lie in `memory`."""
    stages = group.group.stages
    loads = {op.id: (op, memory.buffer(op)) for stage in stages for op, _ in stage.loads}
    for stage in stages:
        for producer, _ in stage.reads:
            if producer not in stages:
                loads[producer.op.id] = producer.op, memory.buffer(producer.op)
    written = [s.op for s in stages if not s.optional]
    written += [cut.output for s in stages for cut in s.cuts]
    stores = [(op, name) for op in written for name in memory.written(op)]
    return Signature(tuple(loads.values()), tuple(stores), is_flat(group))


def _has_arrays(body: Body) -> bool:
    """Whether statements have arrays in shared memory."""
    return any(isinstance(one, Shared) for one in every(body))


def _types(buffers: Sequence[tuple[Op, str]]) -> Iterator[tuple[int, Scalar | Record]]:
    """The types of what the buffers hold, numbered."""
    return enumerate(stored(op.dtype) for op, _ in buffers)
