"""Values of another nest of the group: shared memory, after a barrier of the block. Their tile has
those of its grid points.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.index_maps.index import Index, delinearize, linearize
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import Expr, Integer, Load, Name
from fusionstitch.codegen.ir.statements import Store
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.edges.edge import Edge, Here, in_group
from fusionstitch.codegen.lower.known import AtDepth
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op


def _carries(here: Here, op: Op) -> bool:
    stage = in_group(here, op)
    return stage is not None and stage not in here.nest.level and stage in here.memory.shared


def _read(here: Here, op: Op, index: Indices) -> AtDepth:
    stage = here.whole[op.id]
    digits: list[Index] = [here.digits.point]
    extents = [here.group.points]
    for axis, position in zip(here.axes.dims[stage.number], index, strict=True):
        leaves = [x for x in here.axes.set.leaves(axis) if here.axes.extent(x) != 1]
        positions = delinearize(position, [here.axes.extent(x) for x in leaves])
        for leaf, digit in zip(leaves, positions, strict=True):
            if leaf not in here.group.group.grid:
                digits.append(digit)
                extents.append(here.axes.extent(leaf))
            elif digit != here.digits.of[leaf]:
                raise CodegenError(f"{op.name} is read from another tile.")
    shared = Load(Name(here.shared_names[stage]), Integer(linearize(digits, extents)))
    return shared, here.writer.ordered_depth


def _store(here: Here, stage: Stage, value: Expr, condition: Expr | None) -> Sequence[Store]:
    if stage not in here.memory.shared:
        return ()
    leaves = here.group.group.in_block(stage)
    digits = [here.digits.point, *(here.digits.of[leaf] for leaf in leaves)]
    address = linearize(digits, [here.group.points, *map(here.axes.extent, leaves)])
    return [Store(here.shared_names[stage], Integer(address), value)]


SHARED_MEMORY = Edge("shared memory", "block", _carries, _read, store=_store)
