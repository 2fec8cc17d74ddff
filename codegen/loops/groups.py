"""Groups: stages that share their GRID axes and pass values through registers and shared memory.

Merging starts from one group per stage and follows the edges between them. A merge must leave the
group graph acyclic, keep at least one block's worth of shared memory free, and pay: what it saves
in barriers and scratch traffic must outweigh the parallelism it gives up.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.loops.axes import GroupAxes
from fusionstitch.codegen.loops.stages import NOTHING, Stage, Stream, form_of
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.estimate import boundary_us

#: Threads a tile can count on while no schedule has set the size of its block.
BLOCK_THREADS = 512
#: Neighbouring elements a block should read together: a line of memory, or a sector of it where
#: lines would leave most of the device idle and what is read is likely to be in L2.
COALESCED, SECTOR = 32, 8
#: Columns that a block sums down its rows in registers: fewer would leave lanes of a warp idle,
#: more would not fit.
LEAST_COLUMNS, MOST_COLUMNS = 32, 8192
#: Blocks per SM from which on more of them do not help.
FULL_WAVES = 8
#: Earlier readers of an input that a stage may join.
MOST_SIBLINGS = 4
#: Multiply-adds from which a dot deserves tiles of its own.
TILED_WORK = 1 << 20
#: Stages of one group: longer chains would take long to analyse and seldom fit.
MOST_STAGES = 64
#: Forms of groups whose figures are remembered, at about two kilobytes each.
MOST_FORMS = 1 << 13


@dataclass(frozen=True, slots=True)
class Figures:
    """What the axes of a group come to: tiles and least points per tile (see `Group`), elements per
    grid point and summed into each result by stage, bytes of shared memory, modelled microseconds.
    """

    tiles: int
    least_points: int
    sizes: tuple[tuple[int, int], ...]
    shared_bytes: int
    us: float


@dataclass(frozen=True)
class Spread:
    """What was decided of a group's axes instead of the defaults.

    Attributes:
        axes: with what was split
        grid: the axes spread over blocks
        held: the rows and the columns of a lone dot's tile (codegen/dots/groups.py)
        streamed: whether those columns are walked block by block (codegen/dots/streams.py)
    """

    axes: GroupAxes
    grid: tuple[int, ...]
    held: tuple[int, int] | None = None
    streamed: bool = False


@dataclass(frozen=True, eq=False)
class Group:
    """Stages in topological order, their axes, and the axes spread over blocks.

    Axes are worked out when they are first asked for: most groups are only tried. `leading` are
    those of the first stages, where they are known already.
    """

    stages: tuple[Stage, ...]
    device: Device
    spread: Spread | None = None
    leading: GroupAxes | None = None

    @staticmethod
    def of(stages: Iterable[Stage], device: Device) -> Group:
        """The group of some stages."""
        return Group(tuple(sorted(stages, key=lambda s: s.op.id)), device)

    @staticmethod
    def merged(left: Group, right: Group) -> Group:
        """The stages of two groups as one."""
        if left.stages[0].op.id > right.stages[0].op.id:
            left, right = right, left
        found = Group.of((*left.stages, *right.stages), left.device)
        behind = left.stages[-1].op.id < right.stages[0].op.id
        return replace(found, leading=left._known_axes) if behind else found

    def spread_so(
        self,
        axes: GroupAxes,
        grid: Iterable[int],
        held: tuple[int, int] | None = None,
        streamed: bool = False,
    ) -> Group:
        """The same stages with the axes of `grid` spread over blocks, and those left inside."""
        spread = Spread(axes, tuple(grid), held, streamed)
        return replace(self, spread=spread, leading=None)

    @property
    def held(self) -> tuple[int, int] | None:
        """The rows and the columns of a lone dot's tile, if it has one."""
        return self.spread.held if self.spread else None

    @property
    def streamed(self) -> bool:
        """Whether those columns are walked block by block."""
        return self.spread is not None and self.spread.streamed

    @property
    def _known_axes(self) -> GroupAxes | None:
        return self.__dict__.get("_own_axes")

    @functools.cached_property
    def _own_axes(self) -> GroupAxes:
        """The axes as the reads between stages make them."""
        if self.leading is None:
            return GroupAxes(self.stages)
        return self.leading.followed_by(self.stages[len(self.leading.stages) :])

    @functools.cached_property
    def axes(self) -> GroupAxes:
        """Stages that read one input alike, or compute one value alike, share its axes, unless that
        costs parallelism."""
        if self.spread:
            return self.spread.axes
        axes = self._own_axes
        if self._shares_inputs():
            shared = axes.sharing_inputs()
            if shared.size(shared.grid()) >= axes.size(axes.grid()):
                return shared
        return axes

    @functools.cached_property
    def grid(self) -> list[int]:
        """The axes spread over blocks; the others stay inside."""
        if self.spread:
            return list(self.spread.grid)
        grid = self.axes.grid()
        grid = self._columns_inside(self._coarse(grid) if len(self.stages) > 1 else grid)
        return self._neighbours_inside(grid)

    @functools.cached_property
    def figures(self) -> Figures:
        """Patterns overlap, and layers repeat: groups of one form are measured once."""
        if self.spread:
            return self._measured()
        known, form = _known_figures(self.device), form_of(self.stages)
        if form not in known:
            if len(known) >= MOST_FORMS:
                known.clear()
            known[form] = self._measured()
        return known[form]

    def _measured(self) -> Figures:
        tiles = self.axes.size(self.grid)
        # every stage carries every axis of the grid, and carries it once
        sizes = [(s.op.shape.size // tiles, math.prod(s.inner_extents)) for s in self.stages]
        points = self._least_points(tiles, sizes)
        us = _modelled_us(self.stages, sizes, tiles, points, self.device)
        return Figures(tiles, points, tuple(sizes), _shared_bytes(self.stages, sizes, points), us)

    def _shares_inputs(self) -> bool:
        """True if two stages read one input, or compute one value, or are pieces of one output."""
        seen: set[int] = set()
        for stage in self.stages:
            own = {op.id for op, _ in stage.common} | {output.id for output in stage.joins}
            if seen & own:
                return True
            seen |= own
        return False

    def _coarse(self, grid: list[int]) -> list[int]:
        """With dots inside, the major axes alone if they fill the device: a block then reads an
        operand once for all its rows."""
        if not any(s.op.opcode == "dot" for s in self.stages):
            return grid
        for count in range(1, len(grid)):
            if self.axes.size(grid[:count]) >= FULL_WAVES * self.device.sm_count:
                return grid[:count]
        return grid

    def _columns_inside(self, grid: list[int]) -> list[int]:
        """With column sums inside, the axes left of their columns if those fill the share of the
        device that is theirs: a block then reads whole rows, and its threads carry the sums of
        their columns down them."""
        sums = [s for s in self.stages if s.in_columns]
        columns = {frozenset(self._columns(s)) for s in sums}
        if len(columns) != 1:
            return grid
        (inside,) = columns
        rest = [leaf for leaf in grid if leaf not in inside]
        fits = LEAST_COLUMNS <= self.axes.size(list(inside)) <= MOST_COLUMNS
        filled = self.device.sm_count * min(s.share or 1.0 for s in sums)
        return rest if fits and self.axes.size(rest) >= int(filled) else grid

    def _neighbours_inside(self, grid: list[int]) -> list[int]:
        """Of loops over elements, without minor axes of few elements where others fill the device:
        those lie together in memory, with more of the same block to their left."""
        leaves = self.axes.leaves(self.stages[-1])
        inside = [n for n, leaf in enumerate(leaves) if leaf not in grid]
        if not inside or any(s.is_reduction for s in self.stages):
            return grid
        minor = leaves[max(inside) + 1 :]
        rest = [leaf for leaf in grid if leaf not in minor]
        few = 1 < self.axes.size(minor) < COALESCED
        return rest if few and self.axes.size(rest) >= self.device.sm_count else grid

    def _columns(self, stage: Stage) -> list[int]:
        """The axes of the dims that a reduction keeps after the last it sums over."""
        dims, summed = stage.op.operands[0].dims, max(stage.op.attrs["dimensions"])
        kept = self.axes.dims[stage.number]
        chains = kept[len(kept) - (len(dims) - 1 - summed) :]
        return [x for a in chains for x in self.axes.set.leaves(a) if self.axes.extent(x) != 1]

    @property
    def tiles(self) -> int:
        """Grid points: independent parts of the work, before several are given to one block."""
        return self.figures.tiles

    @property
    def least_points(self) -> int:
        """Grid points a tile must have for its blocks to read whole lines of memory.

        Where a stage loops inside the block but its minor-most axis runs over the grid, one point
        is one column: neighbouring columns belong to the same block.
        """
        return self.figures.least_points

    def _least_points(self, tiles: int, sizes: Sequence[tuple[int, int]]) -> int:
        few = tiles < COALESCED * self.device.sm_count
        for stage, (block, inner) in zip(self.stages, sizes, strict=True):
            if stage.optional:
                continue  # what it stands on is read by the loops that it is part of
            if block * inner > 1 and self.along_grid(stage):
                near = stage.op.shape.size * inner * 4 < self.device.l2_bytes / 4
                return SECTOR if few and near else COALESCED
        return 1

    def along_grid(self, stage: Stage) -> bool:
        """Whether neighbouring elements of what the stage reads are of neighbouring grid points."""
        return self._minor(stage) in self.grid[-1:]

    def _minor(self, stage: Stage) -> int | None:
        """The axis along which neighbouring elements of what the stage reads lie in memory."""
        if stage.op.opcode == "reduce" and not stage.in_columns:
            return None
        leaves = self.axes.leaves(stage)
        return leaves[-1] if leaves else None

    @functools.cached_property
    def _in_block(self) -> dict[Stage, list[int]]:
        inside = set(self.grid)
        return {
            s: [leaf for leaf in self.axes.leaves(s) if leaf not in inside] for s in self.stages
        }

    @functools.cached_property
    def _sizes(self) -> dict[Stage, tuple[int, int]]:
        return dict(zip(self.stages, self.figures.sizes, strict=True))

    def in_block(self, stage: Stage) -> list[int]:
        """The axes of a stage that stay inside a block, in memory order."""
        return self._in_block[stage]

    def block_size(self, stage: Stage) -> int:
        """Elements of a stage per grid point."""
        return self._sizes[stage][0]

    def inner_size(self, stage: Stage) -> int:
        """Elements summed into each result."""
        return self._sizes[stage][1]

    @functools.cached_property
    def in_tiles(self) -> bool:
        """Whether its blocks compute tiles with a halo."""
        return any(annotations_of(stage.op).tile for stage in self.stages)

    @property
    def is_flat(self) -> bool:
        """True if every element is a grid point of its own and nothing is summed."""
        return all(self.block_size(s) == 1 and not s.is_reduction for s in self.stages)


def form_groups(
    stages: Sequence[Stage], device: Device, merge: bool = True, stream: Stream = NOTHING
) -> list[Group]:
    """The groups of a region's stages, greedily merged unless told not to, in topological order."""
    return _Merger(stages, device, stream).run(merge)


def shared_values(stages: Sequence[Stage]) -> list[Stage]:
    """Those of `stages` that another of them reads: what may need shared memory."""
    inside = set(stages)
    return list(dict.fromkeys(p for s in stages for p, _ in s.reads if p in inside))


def shared_bytes(group: Group) -> int:
    """Shared memory the smallest tile of the group needs if nothing is reused."""
    return group.figures.shared_bytes


class _Merger:
    def __init__(self, stages: Sequence[Stage], device: Device, stream: Stream):
        self.device = device
        self.stream = stream
        self.stages = stages
        self.group_of: dict[Stage, Group] = {s: Group.of([s], device) for s in stages}
        self.refused: set[tuple[Group, Group]] = set()
        #: by group, its stages and those of other groups that it waits for, as bitsets of numbers
        self.bits: dict[Group, int] = {}
        self.above: dict[Group, int] = {}

    def run(self, merge: bool) -> list[Group]:
        if merge:
            for stage in self.stages:
                self._enter(stage)
            siblings = self._siblings()
            # sums over the same pairs have one loop, whatever reads them
            for left, right in siblings:
                if left.visits_pairs and right.visits_pairs and not self._waits(right, left):
                    self._try(self.group_of[left], self.group_of[right], linked=False)
            for stage in self.stages:
                apart = self._side_by_side(stage)
                for producer, _ in stage.reads:
                    if self.group_of[producer] not in apart:
                        self._try(self.group_of[producer], self.group_of[stage], linked=True)
            for left, right in siblings:
                self._try(self.group_of[left], self.group_of[right], linked=False)
        return ordered(list(dict.fromkeys(self.group_of[s] for s in self.stages)), self.group_of)

    def _waits(self, stage: Stage, other: Stage) -> bool:
        """Whether the group of a stage waits for that of another."""
        return bool(self.above[self.group_of[stage]] & self.bits[self.group_of[other]])

    def _enter(self, stage: Stage) -> None:
        """Notes what a stage waits for, before it is in any larger group."""
        group = self.group_of[stage]
        above = 0
        for producer, _ in stage.reads:
            before = self.group_of[producer]
            above |= self.bits[before] | self.above[before]
        self.bits[group], self.above[group] = 1 << stage.number, above

    def _side_by_side(self, stage: Stage) -> set[Group]:
        """The groups of few tiles that `stage` reads sums of, where these would wait for each other
        in its block for longer than for a grid barrier, each in blocks of its own."""
        sms = self.device.sm_count
        read = {self.group_of[producer] for producer, _ in stage.reads}
        few = [g for g in read if g.tiles < sms and _loops(g)]
        behind = functools.reduce(operator.or_, (self.above[g] for g in few), 0)
        last = {g for g in few if not self.bits[g] & behind}
        if len(last) < 2:
            return set()
        together = sum(_loops(g) for g in last)
        over_blocks = -(-sum(g.tiles * _loops(g) for g in last) // sms)
        longest = max(over_blocks, *(_loops(g) for g in last))
        waits = (together - longest) * self.device.row_sum_us
        return last if waits > boundary_us(self.device, sms) else set()

    def _siblings(self) -> list[tuple[Stage, Stage]]:
        """Pairs of stages, one soon after the other, that read an input about once per element, or
        compute a special function alike: in one loop they do so once. Pieces of one output that are
        of one shape are likely to."""
        swept = [[o for o in s.swept if o.shape.size * 2 >= s.visits] for s in self.stages]
        specials = [[op for op, _ in s.specials] for s in self.stages]
        pieces = [s.joins for s in self.stages]
        pairs: list[tuple[Stage, Stage]] = []
        for each in (swept, specials, pieces):
            before: dict[int, list[Stage]] = {}
            for stage, ops in zip(self.stages, each, strict=True):
                most = MOST_STAGES if stage.visits_pairs else MOST_SIBLINGS
                for op in ops:
                    others = before.setdefault(op.id, [])
                    pairs += [(other, stage) for other in others[:-most:-1]]
                    others.append(stage)
        return list(dict.fromkeys(pairs))

    def _try(self, left: Group, right: Group, linked: bool) -> None:
        if left is right or (left, right) in self.refused:
            return
        if not self._merged(left, right, linked):
            self.refused.add((left, right))

    def _merged(self, left: Group, right: Group, linked: bool) -> bool:
        """Merges two groups if that is legal and pays; says whether it did."""
        if len(left.stages) + len(right.stages) > MOST_STAGES or self._cyclic(left, right):
            return False
        if not linked and left.tiles != right.tiles:
            return False
        if _parted(left, right) or _parted(right, left):
            return False
        if _strangers(left, right):
            return False
        merged = Group.merged(left, right)
        if merged.tiles == 1 and max(left.tiles, right.tiles) > self.device.sm_count:
            return False
        if not linked and (merged.tiles != left.tiles or not _alike(merged, left, right)):
            return False
        if linked and (self._streams(left) or self._streams(right)):
            self._replace(left, right, merged)  # elements of a stream are never stored
            return True
        if shared_bytes(merged) > self.device.shared_per_block:
            return False
        together, apart = merged.figures.us, left.figures.us + right.figures.us
        if together > apart and together > apart + self._saved_us(left, right):
            return False
        self._replace(left, right, merged)
        return True

    def _streams(self, group: Group) -> bool:
        dots = self.stream.dots
        return bool(dots) and any(s.op.id in dots for s in group.stages)

    def _replace(self, left: Group, right: Group, merged: Group) -> None:
        for stage in merged.stages:
            self.group_of[stage] = merged
        bits = self.bits[merged] = self.bits.pop(left) | self.bits.pop(right)
        before = (self.above.pop(left) | self.above.pop(right)) & ~bits
        for group, above in self.above.items():
            if above & bits:
                self.above[group] = above | bits | before
        self.above[merged] = before

    def _cyclic(self, left: Group, right: Group) -> bool:
        """True if a path between the two groups passes through a third."""
        for start, goal in ((left, right), (right, left)):
            for stage in goal.stages:
                for producer, _ in stage.reads:
                    group = self.group_of[producer]
                    third = group is not start and group is not goal
                    if third and self.above[group] & self.bits[start]:
                        return True
        return False

    def _saved_us(self, left: Group, right: Group) -> float:
        """What a merge saves: the barrier, the scratch traffic, and inputs read twice."""
        inside = set(left.stages)
        crossing = {p for s in right.stages for p, _ in s.reads if p in inside}
        moved = 2 * sum(p.op.shape.bytes for p in crossing)
        loaded = {op for s in left.stages for op in s.swept}
        moved += sum(op.shape.bytes for op in loaded & {op for s in right.stages for op in s.swept})
        barrier = self.device.grid_barrier_us if crossing else 0.0
        return barrier + moved / self.device.l2_bytes_per_s * 1e6


def _modelled_us(
    stages: Sequence[Stage],
    sizes: Sequence[tuple[int, int]],
    tiles: int,
    points: int,
    device: Device,
) -> float:
    """Modelled time of a group: each stage's elements over the threads that work on them."""
    full = device.sm_count * device.memory_threads
    tiles = -(-tiles // points)
    per_us = device.dram_bytes_per_s / 4 / 1e6
    total = 0.0
    for stage, (block, inner) in zip(stages, sizes, strict=True):
        busy = min(tiles * min(points * block * inner, BLOCK_THREADS), full)
        total += stage.op.shape.size * inner / (per_us * busy / full)
    return total


def _shared_bytes(stages: Sequence[Stage], sizes: Sequence[tuple[int, int]], points: int) -> int:
    per_point = {s: block for s, (block, _) in zip(stages, sizes, strict=True)}
    return points * sum(
        per_point[s] * compute_bytes(s.op.dtype)
        for s in shared_values(stages)
        if per_point[s] > 1 or not s.optional
    )


@functools.cache
def _known_figures(device: Device) -> dict[bytes, Figures]:
    return {}


def _parted(left: Group, right: Group) -> bool:
    """Whether `right` adds up sums of columns that `left` has spread over its share of the blocks:
    in one group the columns would take the place of the parts."""
    spread = {s for s in left.stages if s.share is not None}
    return bool(spread) and any(p in spread for stage in right.stages for p, _ in stage.reads)


def _strangers(left: Group, right: Group) -> bool:
    """Whether a dot that deserves tiles of its own and another reduction with results of the same
    dims would meet in one loop, where neither depends on the other: what the reduction sums over
    would take the place of the dot's columns, and leave most of its threads idle."""
    both = [s for s in (*left.stages, *right.stages) if s.is_reduction]
    dots = [s for s in both if s.op.opcode == "dot" and s.visits >= TILED_WORK]
    reductions = [s for s in both if s.op.opcode != "dot"]
    if not (dots and reductions):
        return False
    stages = sorted((*left.stages, *right.stages), key=lambda s: s.number)
    behind: dict[Stage, set[Stage]] = {}
    for stage in stages:
        read = [p for p, _ in stage.reads if p in behind]
        behind[stage] = set(read).union(*(behind[p] for p in read))
    return any(
        dot not in behind[other] and other not in behind[dot] and dot.op.dims == other.op.dims
        for dot in dots
        for other in reductions
    )


def _loops(group: Group) -> int:
    """Sums of a group, which wait for each other."""
    return sum(s.is_reduction for s in group.stages)


def _alike(merged: Group, left: Group, right: Group) -> bool:
    """Siblings gain from one loop only if their loops visit the same elements: those of one group
    those of loops of the other."""
    return len(_loop_axes(merged)) <= max(len(_loop_axes(left)), len(_loop_axes(right)), 1)


def _loop_axes(group: Group) -> set[frozenset[int]]:
    """The axes of each loop inside blocks. What is computed of sums, once per row, has no loop."""
    axes = {frozenset(group.in_block(s) + group.axes.inner_leaves(s)) for s in group.stages}
    return axes - {frozenset()}


def read_by(group: Group, group_of: Mapping[Stage, Group]) -> set[Group]:
    """The other groups whose values the group reads."""
    return {group_of[p] for s in group.stages for p, _ in s.reads} - {group}


def ordered(groups: Sequence[Group], group_of: dict[Stage, Group]) -> list[Group]:
    """Topological order of groups, ties by first stage."""
    done: set[Group] = set()
    result: list[Group] = []
    waiting = sorted(groups, key=lambda g: g.stages[0].op.id)
    while waiting:
        for group in waiting:
            if read_by(group, group_of) <= done:
                break
        done.add(group)
        result.append(group)
        waiting.remove(group)
    return result
