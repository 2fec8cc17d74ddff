"""Runs: elements that a thread computes together.

Neighbours of a stencil read much in common. A thread that computes four of a column, say, loads 8
elements of a window of 5 instead of 20, and finds once where they lie. Threads beside each other
stay so along the minor-most dim, so that what they read together does not change.

Where an output may be written over an input, a thread waits for memory at each element: to the
compiler, what it stores could be what it loads next. There the elements of a run are far apart, and
all of them are loaded before any is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fusionstitch.codegen.index_maps.index import Index, substituted, variable
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.codegen.schedule.tuning import PAIRED_ROWS
from fusionstitch.codegen.schedule.walk import ROW, TILE, Run
from fusionstitch.costmodel.devices import WARP

#: Elements of a run.
LENGTHS = (2, 3, 4, 5, 6, 8)
#: Ops of all elements of a run, at most: they are all written out.
MOST_OPS = 400
#: Sums of all rows of pairs that a team goes through at once, and ops of all of them, at most.
PAIRED_SUMS, PAIRED_OPS = 16, 800
#: Instructions of a thread that find where a run lies.
PLACING = 8
#: Of runs far apart: loads of one, at most; its ops, which the text repeats; and how many elements
#: a thread has, at least.
LOADS, FAR_OPS, ROUNDS = 8, 60, 4


def run_of_pairs(group: GroupPlan, nest: NestPlan, block: int) -> Run:
    """The rows of pairs that a team goes through at once: all that it has, if they are few."""
    none, teams = Run(), nest.teams
    if not nest.nest.sums_pairs or nest.nest.in_order or group.ragged or nest.inner == 1:
        return none
    if teams.columns or teams.threads > WARP:
        return none
    at_once = block // teams.threads
    length, rest = divmod(nest.rows, at_once)
    ops = sum(len(stage.inlined) + 1 for stage in nest.nest.stages)
    fits = 1 < length <= PAIRED_ROWS and length * nest.nest.sums_at_once <= PAIRED_SUMS
    return Run(length, at_once) if fits and not rest and length * ops <= PAIRED_OPS else none


def run_of(group: GroupPlan, nest: NestPlan, block: int) -> Run:
    """The run of a loop over the elements of a tile with a halo: that with which its threads are
    done first. Of one over many elements of a grid point that may overwrite its input: the longest.
    None of others."""
    none = Run()
    if not nest.flat or group.points != 1:
        return none
    ops = sum(len(stage.inlined) + 1 for stage in nest.nest.stages)
    if not group.group.in_tiles:
        return _far_apart(nest, block, ops)

    def instructions(run: Run) -> float:
        """Those of a thread, about."""
        rounds = -(-nest.rows // (run.length * block))
        return rounds * (_loads(group, nest, run) + run.length * ops + PLACING)

    possible = (run for run in _possible(group, nest) if run.length * ops <= MOST_OPS)
    return min((none, *possible), key=instructions)


def _far_apart(nest: NestPlan, block: int, ops: int) -> Run:
    """The longest run of elements that lie as far apart as they can."""
    loads = sum(len(stage.loads) for stage in nest.nest.stages)
    rounds = -(-nest.rows // block)
    if rounds < ROUNDS or nest.nest.carries or not any(map(_may_overwrite, nest.nest.stages)):
        return Run()

    def fits(length: int) -> bool:
        apart = nest.rows // length
        whole = nest.rows % length == 0 and length * -(-apart // block) <= rounds + rounds // 8
        return whole and length * loads <= LOADS and length * ops <= FAR_OPS

    length = max(filter(fits, LENGTHS), default=1)
    return Run(length, nest.rows // length)


def _may_overwrite(stage: Stage) -> bool:
    """Whether a stage loads an input that looks like its value."""
    own = stage.op.dims, stage.op.dtype
    return any((op.dims, op.dtype) == own for op, _ in stage.loads)


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
