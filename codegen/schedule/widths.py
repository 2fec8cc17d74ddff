"""How many neighbouring elements a thread of a nest reads and writes at once."""

from __future__ import annotations

from collections.abc import Iterator, Set

from fusionstitch.codegen.index_maps.index import Index, Var, linearize, substituted, variable
from fusionstitch.codegen.index_maps.maps import Indices, in_range
from fusionstitch.codegen.index_maps.vectors import ACCESS_BYTES, aligned_base
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.pieces import Piece
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan, mostly_busy
from fusionstitch.codegen.schedule.walk import ELEMENT, ROW, TILE, UNIT
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: Ops of all elements of a vector, at most: they are written out, and longer code than this is no
#: longer near multiprocessors. A step of pendulums, 554 ops, took 1.3 ms on an H200 in vectors of
#: four, half of it without an instruction to issue.
MOST_OPS = 1600
#: Elements that lie so near each other share lines of memory. For each input that is read in
#: vectors so many others may be read by neighbouring threads a vector apart.
NEAR, STRIDED = 8, 2


def vector_width(plan: KernelPlan, group: GroupPlan, nest: NestPlan, written: Set[int]) -> int:
    """Elements per access: the most for which every store and some load is one vector. `written`
    are the ids of the ops whose values go to global memory."""
    if nest.flat:
        if group.tiles * nest.rows < plan.full:
            return 1
    elif nest.teams.threads == 1 or nest.teams.columns or nest.inner == 1:
        return 1
    role = nest.nest.role
    along = [s for s in nest.nest.stages if role[s] is not Role.ROW]
    stored = {s for s in along if role[s] is Role.SWEEP and s.op.id in written}
    sizes = [ITEM_BYTES[s.op.dtype] for s in along if s in stored]
    sizes += [ITEM_BYTES[op.dtype] for s in along for op, at in s.loads if _moves_with(s, at)]
    widest = plan.tuning.vector_bytes or ACCESS_BYTES
    width = max(1, widest // max(sizes, default=widest))
    ops = sum(len(stage.inlined) + 1 for stage in nest.nest.stages)
    while nest.flat and width > 1 and width * ops > MOST_OPS:
        width //= 2
    while width > 1 and not (
        _divides(width, group, nest, plan.block) and _are_vectors(width, group, nest, along, stored)
    ):
        width //= 2
    return width


def _moves_with(stage: Stage, index: Indices) -> bool:
    """Whether a stage's neighboring elements along its last axis read at different indices."""
    last = next((i for i in reversed((*stage.dims, *stage.inner)) if i.terms), Index())
    return any(last.variables & i.variables for i in index)


def _divides(width: int, group: GroupPlan, nest: NestPlan, block: int) -> bool:
    """Whether rows, or flat tiles, are whole vectors, and threads mostly busy with them."""
    if nest.flat and nest.has_points(group):
        whole = group.points % width == 0 and group.grid_points % width == 0
        return whole and (mostly_busy(nest.rows // width, block) or group.points < block)
    if nest.flat:  # the elements of one grid point
        own = group.points == 1 and not group.group.in_tiles and nest.rows % width == 0
        return own and mostly_busy(nest.rows // width, block)
    return nest.inner % width == 0 and mostly_busy(nest.inner // width, nest.teams.threads)


def _are_vectors(
    width: int, group: GroupPlan, nest: NestPlan, along: list[Stage], stored: Set[Stage]
) -> bool:
    """Whether all of what is stored, and some of what is loaded, lies in whole vectors, and no more
    is loaded of which neighbouring threads had rather read neighbouring elements."""
    digits, lane = Digits(group.group, nest.nest, group.points), Var(ELEMENT, width)
    tile, element = variable(TILE, group.tiles), Index(((lane, 1),))
    if nest.flat:
        row = variable(ROW, nest.rows // width) * width + element
        digits.bind_rows(row, tile * group.points + row if nest.has_points(group) else tile)
    else:
        row = variable(ROW, nest.rows)
        digits.bind_rows(row, tile * group.points + digits.point_of(row))
        digits.bind_column(variable(UNIT, nest.inner // width) * width + element)
    loaded = strided = 0
    for stage in along:
        if stage in stored:
            address = linearize(digits.index(stage), stage.op.dims)
            if aligned_base(address, lane, width) is None:
                return False
        pieces = (cut for cut in stage.cuts if isinstance(cut, Piece))
        joined = (piece.address(digits.index(stage), stage.op)[0] for piece in pieces)
        if any(aligned_base(address, lane, width) is None for address in joined):
            return False  # threads a vector apart would store far from each other
        for op, at in _inputs(stage, digits):
            address = linearize(at, op.dims)
            if aligned_base(address, lane, width) is not None:
                loaded += in_range(op, at)
            elif 0 < _step(address, lane) <= NEAR:
                strided += 1
    return loaded > 0 and strided <= STRIDED * loaded


def _step(address: Index, lane: Var) -> int:
    """How far apart a thread's neighbouring elements lie, where that is always the same."""
    return next((step for term, step in address.terms if term == lane), 0)


def _inputs(stage: Stage, digits: Digits) -> Iterator[tuple[Op, Indices]]:
    """The inputs of a stage where `digits` are."""
    own = zip(
        (*stage.dims, *stage.inner), (*digits.index(stage), *digits.inner(stage)), strict=True
    )
    values = {v: here for i, here in own for v in i.variables}
    known: dict[Index, Index] = {}
    for op, index in stage.loads:
        for i in index:
            if i not in known:
                known[i] = substituted(i, values)
        yield op, tuple(known[i] for i in index)
