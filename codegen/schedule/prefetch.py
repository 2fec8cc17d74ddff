"""Inputs that a block reads late: announced when it starts, they are in L2 by then.

A block of register tiles is too large for many to be resident, and it waits for its loads in turn:
scores first, what they weigh after an exponential, then what the results are joined with.
"""

from __future__ import annotations

import math

from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import GroupPlan
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: Bytes of a tile's part of an input that are worth announcing.
LEAST_BYTES, MOST_BYTES = 512, 16_384
#: Tiles per multiprocessor from which on blocks follow each other.
MANY_TILES = 16


def late_inputs(group: GroupPlan) -> tuple[tuple[Op, int], ...]:
    """The inputs that no dot of the first rows reads, each with the elements per tile that lie
    together: those of tile t start at t times as many."""
    first, device = group.nests[0], group.group.device
    many = group.tiles >= MANY_TILES * device.sm_count
    if first.tile is None or first.tile.columns or group.points != 1 or not many:
        return ()
    early = {op for stage in first.nest.products for op, _ in stage.loads}
    found: dict[Op, int] = {}
    for stage in group.group.stages:
        for op, index in stage.loads:
            elements = op.shape.size // group.tiles
            size = elements * ITEM_BYTES[op.dtype]
            fits = LEAST_BYTES <= size <= MOST_BYTES and op not in early
            if fits and _leads_with_grid(group, stage, op, index):
                found[op] = elements
    return tuple(found.items())


def _leads_with_grid(group: GroupPlan, stage: Stage, op: Op, index: Indices) -> bool:
    """True if the leading dims of an input are the axes spread over blocks, in their order."""
    axes = group.group.axes
    grid = [leaf for leaf in group.group.grid if axes.extent(leaf) > 1]
    leading: list[int] = []
    for at, extent in zip(index, op.dims, strict=True):
        if leading == grid:
            break
        if extent == 1:
            continue
        if at not in stage.dims:
            return False
        leading += axes.set.leaves(axes.dims[stage.number][stage.dims.index(at)])
    return leading == grid and op.shape.size % math.prod(map(axes.extent, grid)) == 0
