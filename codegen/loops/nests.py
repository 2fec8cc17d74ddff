"""Nests: the parallel loops inside a block, each a loop over rows with sweeps along each row.

Stages with the same rows and the same inner axes share a nest (warp composition). A reduction's
result stays in the registers of the team of threads that owns the row, and the next sweep uses it.
A reduction over the rows themselves may join the nest: each thread carries the sums of its columns
from row to row. Different nests pass values through shared memory after a barrier (block
composition).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.loops.dot_nests import gives_elements, shape_of_reader, sums_columns
from fusionstitch.codegen.loops.groups import LEAST_COLUMNS, MOST_COLUMNS, Group
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.rewrite.extents import is_short
from fusionstitch.codegen.rewrite.monoids import in_order
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op

#: Sweeps of at most this many elements per thread are unrolled and keep values for the next one.
CACHE_STEPS = 32


class Role(enum.Enum):
    """How a stage is computed in its nest."""

    REDUCE = "reduce"  # accumulated along a sweep, its result known to the row's whole team
    SWEEP = "sweep"  # one element per step of a sweep
    ROW = "row"  # one element per row
    CARRY = "carry"  # accumulated from row to row, one value per column, known after the last row
    DOT = "dot"  # accumulated along a sweep for several results per row (dot_nests.py)
    RESULT = "result"  # one element per row and result of such a dot
    BINS = "bins"  # accumulated in what the data says of several elements (lower/bins.py)
    SORT = "sort"  # all elements of a row at once, put in order (lower/sorts.py)


#: The roles of ops that have a nest to themselves.
OWN_ROLES = {"bins": Role.BINS, "sort-rows": Role.SORT}


@dataclass(frozen=True, eq=False)
class Nest:
    """Rows and inner axes (atomic axes of the group), and the stages by sweep level."""

    rows: tuple[int, ...]
    inner: tuple[int, ...]
    stages: tuple[Stage, ...] = ()
    level: Mapping[Stage, int] = field(default_factory=dict)
    role: Mapping[Stage, Role] = field(default_factory=dict)

    def followed_by(self, stage: Stage, level: int, role: Role) -> Nest:
        """The nest with one more stage."""
        levels, roles = {**self.level, stage: level}, {**self.role, stage: role}
        return Nest(self.rows, self.inner, (*self.stages, stage), levels, roles)

    @property
    def levels(self) -> int:
        return 1 + max(self.level.values())

    def at(self, level: int) -> list[Stage]:
        return [s for s in self.stages if self.level[s] == level]

    def with_role(self, role: Role) -> list[Stage]:
        return [s for s in self.stages if self.role[s] is role]

    @property
    def own_role(self) -> Role | None:
        """The role of its only stage, if the threads work on that in a way of their own."""
        return next((role for role in self.role.values() if role in OWN_ROLES.values()), None)

    @property
    def carries(self) -> bool:
        """Whether threads carry sums of columns from row to row."""
        return bool(self.with_role(Role.CARRY))

    @property
    def products(self) -> list[Stage]:
        """The dots whose results are the elements of the rows, held in registers."""
        return [s for s in self.stages if s.is_reduction and self.role[s] is Role.SWEEP]

    @property
    def sums_pairs(self) -> bool:
        """Whether sums over pairs are all that happens along its rows."""
        sums = self.with_role(Role.REDUCE)
        alone = len(sums) + len(self.with_role(Role.ROW)) == len(self.stages)
        return bool(sums) and alone and all(s.visits_pairs for s in sums)

    @property
    def sums_at_once(self) -> int:
        """The sums of the sweep that has most of them."""
        sums = Counter(self.level[stage] for stage in self.with_role(Role.REDUCE))
        return max(sums.values(), default=0)

    @property
    def in_order(self) -> bool:
        """Whether one thread must walk each row: where its elements are joined in order, and where
        they are so few that other loops sum them inline, and both sums must be the same."""
        return any(in_order(s.op) or _is_repeated(s.op) for s in self.stages)

    @property
    def tiled(self) -> bool:
        """Whether the nest needs a register tile (codegen/dots/tile.py)."""
        return bool(self.products) or Role.DOT in self.role.values()


def form_nests(group: Group, tiled: bool = True) -> list[Nest]:
    """The nests of a group in execution order; every stage is in exactly one.

    `tiled` nests may hold dots with what reads them; without, a dot has a loop of its own.
    """
    nests: list[Nest] = []
    home: dict[Stage, int] = {}
    for stage in group.stages:
        first = max((home[p] for p, _ in stage.reads if p in home), default=0)
        for number in range(first, len(nests)):
            joined = join(group, nests[number], stage, tiled)
            if joined is not None:
                nests[number] = nests[number].followed_by(stage, *joined)
                home[stage] = number
                break
        else:
            nest = new_nest(group, stage, tiled)
            level_role = join(group, nest, stage, tiled)
            if level_role is None:
                raise CodegenError(f"{stage.op.name} does not fit the rows that its group walks.")
            home[stage] = len(nests)
            nests.append(nest.followed_by(stage, *level_role))
    return nests


def new_nest(group: Group, stage: Stage, tiled: bool) -> Nest:
    """The rows and inner axes of a loop that begins with `stage`, which is not in it yet."""
    own = tuple(group.in_block(stage))
    if group.dot_axes is not None:
        row, column = group.dot_axes
        return Nest((row,), (column,))
    if stage.op.opcode == "bins":  # all its updates, and of each what lies side by side
        *_, width = group.axes.dims[stage.number]
        beside = [x for x in group.axes.set.leaves(width) if group.axes.extent(x) != 1]
        return Nest((), (*group.axes.inner_leaves(stage), *beside))
    if stage.op.opcode == "sort-rows":
        columns = group.axes.set.leaves(group.axes.dims[stage.number][1])
        rows = tuple(x for x in own if x not in columns)
        return Nest(rows, tuple(group.axes.inner_leaves(stage)))
    if tiled and (shape := shape_of_reader(group, stage)) is not None:
        return Nest(*shape)
    if stage.is_reduction:
        summed = tuple(group.axes.inner_leaves(stage))
        return Nest(summed, own) if _carries(group, stage) else Nest(own, summed)
    # take the shape of a reduction that can join later; tiles with a halo are gone through in runs
    number = group.stages.index(stage)
    for n, other in enumerate(() if group.in_tiles else group.stages):
        if other.is_reduction and other.op.opcode == "reduce":
            if n < number and other.in_columns:
                continue  # its rows would keep neighbours apart
            rows = tuple(group.in_block(other))
            inner = tuple(group.axes.inner_leaves(other))
            if sorted(rows + inner) == sorted(own) and inner:
                return Nest(rows, inner)
    return Nest(own, ())


def join(group: Group, nest: Nest, stage: Stage, tiled: bool) -> tuple[int, Role] | None:
    """The level and role of `stage` in `nest`, or None if it needs another loop."""
    own_role = OWN_ROLES.get(stage.op.opcode)
    if own_role or nest.own_role:
        return None if own_role is None or nest.stages else (0, own_role)
    own = tuple(group.in_block(stage))
    ordered = any(in_order(s.op) for s in nest.stages)
    if nest.stages and stage.is_reduction and in_order(stage.op) != ordered:
        return None
    if stage.is_reduction:
        summed = tuple(group.axes.inner_leaves(stage))
        if (own, summed) == (nest.rows, nest.inner):
            role = Role.REDUCE
        elif (summed, own) == (nest.rows, nest.inner) and _carries(group, stage):
            if nest.tiled:
                return None
            role = Role.CARRY
        elif nest.with_role(Role.CARRY):
            return None
        elif tiled and gives_elements(group, nest.rows, nest.inner, stage):
            role = Role.SWEEP
        elif tiled and _adds_results(group, nest, stage):
            role = Role.DOT
        else:
            return None
    elif own == nest.rows and nest.inner:
        role = Role.ROW
    elif _beside(group, nest, own):
        role = Role.RESULT
    elif sorted(own) == sorted(nest.rows + nest.inner):
        role = Role.SWEEP
    else:
        return None
    level = 0
    if role is Role.RESULT:  # it is computed once one of those dots is summed
        level = 1 + min(nest.level[dot] for dot in _beside(group, nest, own))
    for number, (producer, _) in enumerate(stage.reads):
        if producer not in nest.level:
            continue
        if not set(group.in_block(producer)) <= group.axes.carried[stage.number, number]:
            return None
        made = nest.role[producer]
        if made is Role.SWEEP and role in (Role.ROW, Role.RESULT):
            return None
        if made is Role.CARRY:
            return None
        if made in (Role.DOT, Role.RESULT) and role is not Role.RESULT:
            return None
        finished = made in (Role.REDUCE, Role.DOT)  # its sweep must be over
        level = max(level, nest.level[producer] + (1 if finished else 0))
    return level, role


def result_axes(group: Group, nest: Nest, stage: Stage) -> list[int]:
    """The axes of a stage's results per row, a dot's or those computed from one. Results are
    numbered along them, so all that have the same axes have them in one order, the first dot's."""
    first = _beside(group, nest, tuple(group.in_block(stage)))[0]
    return [x for x in group.in_block(first) if x not in nest.rows]


def _carries(group: Group, stage: Stage) -> bool:
    """True if threads along the kept dims of a reduction read memory better than along the summed
    ones, and a block can hold all of its sums."""
    if in_order(stage.op) or _is_repeated(stage.op) or not stage.in_columns:
        return False
    return LEAST_COLUMNS <= group.block_size(stage) <= MOST_COLUMNS


def _is_repeated(op: Op) -> bool:
    return is_short(op) and annotations_of(op).alike


def _adds_results(group: Group, nest: Nest, stage: Stage) -> bool:
    """Whether a dot can be summed in the loop of what it weighs its values with."""
    ready = bool(nest.products) or not any(s.in_columns for s in nest.stages)
    return ready and sums_columns(group, nest.rows, nest.inner, stage)


def _beside(group: Group, nest: Nest, own: tuple[int, ...]) -> list[Stage]:
    """The dots along the columns that have results of these axes."""
    return [s for s in nest.with_role(Role.DOT) if sorted(group.in_block(s)) == sorted(own)]
