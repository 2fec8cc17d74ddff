"""Inputs and outputs of the kernel: global memory, after a launch."""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import Expr
from fusionstitch.codegen.ir.statements import Store
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.edges.edge import Edge, Here
from fusionstitch.codegen.lower.known import AtDepth
from fusionstitch.hlo.graph import Op


def _carries(here: Here, op: Op) -> bool:
    return op.opcode == "parameter" and annotations_of(op).counts is None


def _read(here: Here, op: Op, index: Indices) -> AtDepth:
    # inputs hold still: a load that does not depend on the row may precede the loop
    return here.elements.loaded(op, _buffer(here, op), index), here.values.depth_of(op, index)


def _buffer(here: Here, op: Op) -> str:
    return here.memory.buffer(op)


def _store(here: Here, stage: Stage, value: Expr, condition: Expr | None) -> Sequence[Store]:
    if stage.optional:  # a copy beside the stage that others have
        return ()
    return here.stored_to(here.memory.outputs.get(stage.op.id, ()), stage, value, condition)


LAUNCH = Edge("input or output", "launch", _carries, _read, _buffer, _store)
