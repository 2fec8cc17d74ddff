"""Runs: elements of a tile that a thread computes together, one after the other along a dim.

Neighbours of a stencil read much in common. A thread that computes four of a column, say, loads 8
elements of a window of 5 instead of 20, and finds once where they lie. Threads beside each other
stay so along the minor-most dim, so that what they read together does not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fusionstitch.codegen.index_maps.index import Index, substituted, variable
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.codegen.schedule.walk import ROW, TILE, Run
from fusionstitch.costmodel.devices import WARP

#: Elements of a run.
LENGTHS = (2, 3, 4, 5, 6, 8)
#: Ops of all elements of a run, at most: they are all written out.
MOST_OPS = 400
#: Instructions of a thread that find where a run lies.
PLACING = 8


def run_of(group: GroupPlan, nest: NestPlan, block: int) -> Run:
    """The run of a loop over the elements of a tile with a halo: that with which its threads are
    done first; none for other loops."""
    none = Run()
    if not nest.flat or group.points != 1 or not group.group.in_tiles:
        return none
    ops = sum(len(stage.inlined) + 1 for stage in nest.nest.stages)

    def instructions(run: Run) -> float:
        """Those of a thread, about."""
        rounds = -(-nest.rows // (run.length * block))
        return rounds * (_loads(group, nest, run) + run.length * ops + PLACING)

    possible = (run for run in _possible(group, nest) if run.length * ops <= MOST_OPS)
    return min((none, *possible), key=instructions)


def _possible(group: GroupPlan, nest: NestPlan) -> Iterator[Run]:
    """The runs along dims of a loop whose neighbours are another warp's."""
    extents = [n for n in map(group.group.axes.extent, nest.nest.rows) if n > 1]
    for at, extent in enumerate(extents[:-1]):
        apart = math.prod(extents[at + 1 :])
        for length in LENGTHS:
            if extent % length == 0 and apart >= WARP:
                yield Run(length, apart)


def _loads(group: GroupPlan, nest: NestPlan, run: Run) -> int:
    """Elements that a run reads, of other loops and of inputs."""
    digits = Digits(group.group, nest.nest, group.points)
    row = variable(ROW, nest.rows // run.length)
    seen: set[tuple[int, tuple[Index, ...]]] = set()
    for number in range(run.length):
        digits.bind_rows(run.row_of(row, number), variable(TILE, group.tiles))
        for stage in nest.nest.stages:
            seen.update(_reads(stage, digits))
    return len(seen)


def _reads(stage: Stage, digits: Digits) -> Iterator[tuple[int, tuple[Index, ...]]]:
    """What a stage reads where `digits` are."""
    own = zip(stage.dims, digits.index(stage), strict=True)
    values = {v: here for i, here in own for v in i.variables}
    read = [(producer.op, index) for producer, index in stage.reads]
    for op, index in (*read, *stage.loads):
        yield op.id, tuple(substituted(i, values) for i in index)
