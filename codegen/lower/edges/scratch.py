"""Values of other groups: global memory, after a barrier of the grid. Those that are outputs lie
there already, others in the kernel's scratch.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import Expr
from fusionstitch.codegen.ir.statements import Store
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.edges.edge import Edge, Here, in_group
from fusionstitch.codegen.lower.known import AtDepth
from fusionstitch.hlo.graph import Op


def _carries(here: Here, op: Op) -> bool:
    return op.id in here.whole and in_group(here, op) is None


def _read(here: Here, op: Op, index: Indices) -> AtDepth:
    return here.elements.loaded(op, _buffer(here, op), index), here.writer.ordered_depth


def _buffer(here: Here, op: Op) -> str:
    return here.memory.buffer(op)


def _store(here: Here, stage: Stage, value: Expr, condition: Expr | None) -> Sequence[Store]:
    buffer = here.memory.scratch.get(stage.op.id)
    if stage.optional or buffer is None:
        return ()
    return here.stored_to([buffer], stage, value, condition)


SCRATCH = Edge("scratch", "grid", _carries, _read, _buffer, _store)
