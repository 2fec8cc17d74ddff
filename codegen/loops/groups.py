"""Groups: stages that share their GRID axes and pass values through registers and shared memory.

What a group's axes come to: which of them are spread over blocks, what stays inside of a block, and
the time that this would take. Which stages become one group is in `merging.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.loops.axes import GroupAxes
from fusionstitch.codegen.loops.stages import Stage, form_of
from fusionstitch.codegen.rewrite.extents import OWN_LOOP
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.costmodel.devices import Device

#: Threads a tile can count on while no schedule has set the size of its block.
BLOCK_THREADS = 512
#: Neighboring elements that a block should read together: a line of memory. It is only a sector
#: where lines would leave most of the device idle and what is read is likely to be in L2.
COALESCED, SECTOR = 32, 8
#: Columns that a block sums down its rows in registers: fewer would leave lanes of a warp idle,
#: more would not fit.
LEAST_COLUMNS, MOST_COLUMNS = 32, 8192
#: Blocks per SM from which on more of them do not help.
FULL_WAVES = 8
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
    dot_axes: tuple[int, int] | None = None
    streamed: bool = False


@dataclass(frozen=True, eq=False)
class Group:
    """Stages in topological order, their axes, and the axes spread over blocks.

    Axes are computed when they are first needed: most groups are only tried. `leading` are those of
    the first stages, where they are known already.
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
        follows = left.stages[-1].op.id < right.stages[0].op.id
        return replace(found, leading=left._known_axes) if follows else found

    def spread_so(
        self,
        axes: GroupAxes,
        grid: Iterable[int],
        dot_axes: tuple[int, int] | None = None,
        streamed: bool = False,
    ) -> Group:
        """The same stages with the axes of `grid` spread over blocks, and those left inside."""
        spread = Spread(axes, tuple(grid), dot_axes, streamed)
        return replace(self, spread=spread, leading=None)

    @property
    def dot_axes(self) -> tuple[int, int] | None:
        """The rows and the columns of a lone dot's tile, if it has one."""
        return self.spread.dot_axes if self.spread else None

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
        grid = self.possible_grid(self.axes)
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

    def possible_grid(self, axes: GroupAxes) -> list[int]:
        """The axes that may be spread over blocks. Of bins and sorted rows, the rows alone: a block
        has all elements of one."""
        grid = axes.grid()
        for stage in self.stages:
            if stage.op.opcode in OWN_LOOP:
                rows, *_ = axes.dims[stage.number]
                return [leaf for leaf in grid if leaf in axes.set.leaves(rows)]
        return grid

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
        """If the group has column sums, the grid without their columns, if that fills the group's
        share of the device. A block then reads whole rows, and its threads carry the sums of their
        columns from row to row."""
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
        kept_dims = self.axes.dims[stage.number]
        chains = kept_dims[len(kept_dims) - (len(dims) - 1 - summed) :]
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
        leaves = [leaf for leaf in self.axes.leaves(stage) if self.axes.extent(leaf) > 1]
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


def shared_values(stages: Sequence[Stage]) -> list[Stage]:
    """Those of `stages` that another of them reads: what may need shared memory."""
    inside = set(stages)
    return list(dict.fromkeys(p for s in stages for p, _ in s.reads if p in inside))


def shared_bytes(group: Group) -> int:
    """Shared memory the smallest tile of the group needs if nothing is reused."""
    return group.figures.shared_bytes


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


def read_by(group: Group, group_of: Mapping[Stage, Group]) -> set[Group]:
    """The other groups whose values the group reads."""
    return {group_of[p] for s in group.stages for p, _ in s.reads} - {group}
