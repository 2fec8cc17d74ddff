"""The schedule of a kernel: phases of groups, tiles over blocks, teams of threads over rows.

It holds what was decided (`choice.py`) and what follows from that. `Teams` is the mapping of one
nest: how many threads share a row, and how they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.dots.tile import Tile
from fusionstitch.codegen.index_maps.vectors import ACCESS_BYTES
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest, Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.codegen.schedule.walk import ONE_BY_ONE, Walk
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: Elements per thread of a purely elementwise tile.
VECTOR_ELEMENTS = 4
#: Barriers that a block may have.
BLOCK_BARRIERS = 16
#: Threads per SM of launches that stay resident: with launch bounds they leave each 64 registers.
RESIDENT_THREADS = 1024


def slot_bytes(dtype: str, blocks: int = 1) -> int:
    """Shared memory in which the warps of a block join one reduction (fs_slot of the device
    header), and as much again where several blocks do."""
    return 32 * max(8, compute_bytes(dtype)) * (2 if blocks > 1 else 1)


@dataclass(frozen=True)
class Teams:
    """`threads` threads work on a row; strided teams are `columns` apart in thread number.

    threads == 1: a thread owns a row. threads <= 32: neighbouring lanes, joined by shuffles. More:
    neighbouring warps, the whole block, or a cluster of blocks, joined through shared memory. With
    columns > 0 the rows lie along the lanes (coalesced column reductions) and a team is every
    columns-th thread.
    """

    threads: int
    columns: int = 0

    @property
    def joins_warps(self) -> bool:
        """True if the partial results of a row lie in several warps."""
        return self.threads > 32 and not self.columns

    @property
    def goes_alone(self) -> bool:
        """True if no warp has threads of two teams: none need wait for another team's."""
        return (self.threads == 1 or self.threads % 32 == 0) and not self.columns


@dataclass(frozen=True, eq=False)
class NestPlan:
    """A nest with its extents per tile and the threads that work on each row.

    With a register `tile` a team works on `tile.rows` rows at once. `walk` is how a thread goes
    along them (codegen/schedule/walking.py).
    """

    nest: Nest
    rows: int
    inner: int
    teams: Teams
    tile: Tile | None = None
    walk: Walk = ONE_BY_ONE

    @property
    def flat(self) -> bool:
        """Whether a row is one element, and each is a thread's own."""
        return self.inner == 1 and self.teams.threads == 1

    def has_points(self, group: GroupPlan) -> bool:
        """Whether each of its rows is a grid point of the tile."""
        return self.rows == group.points

    def joins_in_teams(self, block: int) -> bool:
        """Whether parts of a block of so many threads join what their warps have, each by itself,
        at barriers of their own."""
        joins = self.teams.joins_warps and bool(self.nest.with_role(Role.REDUCE))
        return joins and self.teams.threads < block

    def whole_tiles(self, group: GroupPlan) -> bool:
        """Whether a register tile never has a row beyond the last."""
        assert self.tile is not None
        rows = self.tile.team_rows
        whole = self.rows // group.points % rows == 0
        return whole or (not group.ragged and self.rows % rows == 0)

    def most_per_thread(self) -> int:
        """Elements of a row that a thread of a team may visit. Vectors leave a quarter idle."""
        threads = self.teams.threads
        return max(-(-self.inner // threads), 4 * self.inner // (3 * threads))

    def repeats(self, block: int, ragged: bool) -> bool:
        """True if teams without a row of their own repeat another's, so that lanes stay together.

        What they compute is dropped, but they read what the row's own team may be overwriting.
        """
        threads = self.teams.threads
        if self.tile is not None:
            block //= self.tile.shares
            teams = -(-self.rows // self.tile.team_rows)
            uneven = ragged or self.rows % self.tile.team_rows != 0
            return uneven or (threads < 32 and teams % (block // threads) != 0)
        if self.teams.goes_alone or (threads >= block and not self.teams.columns):
            return False
        return ragged or self.rows % (block // threads) != 0


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """`points` grid points per tile; the tiles of a phase are numbered through its groups.

    Values of the stages `shared` lie in shared memory. Its `late` inputs are brought to L2 when a
    tile begins, so many elements of each (codegen/schedule/prefetch.py). A group that reads an
    input `again` gives each block one stretch of it, as a loop that sums rows does; a `backward`
    one walks that from the end. Those of one `function` are calls of it, as far as they have the
    same statements (codegen/schedule/outlining.py).
    """

    group: Group
    nests: tuple[NestPlan, ...]
    points: int
    tiles: int
    shared: frozenset[Stage] = frozenset()
    first_tile: int = 0
    late: tuple[tuple[Op, int], ...] = ()
    again: bool = False
    backward: bool = False
    function: int | None = None

    @property
    def grid_points(self) -> int:
        return self.group.tiles

    @property
    def ragged(self) -> bool:
        """True if the last tile has fewer grid points than the others."""
        return self.grid_points % self.points != 0


@dataclass(frozen=True, eq=False)
class KernelPlan:
    """The schedule of a kernel: threads per block, groups by phase (with a grid barrier between
    phases), and blocks. In clusters, `cluster` blocks work on each tile.

    `full` is the number of threads that fill the device, `resident` the threads per SM that a
    launch with resident blocks relies on. `blocks_per_sm` is the same in blocks, or what the launch
    bounds request otherwise (0: any). `registers` is how many a multiprocessor has.
    """

    block: int
    phases: tuple[tuple[GroupPlan, ...], ...]
    grid: int
    full: int
    resident: int
    registers: int
    blocks_per_sm: int = 0
    tuning: Tuning = DEFAULT
    cluster: int = 1

    @property
    def cooperative(self) -> bool:
        return len(self.phases) > 1

    @property
    def barriers(self) -> int:
        """Barriers that a block takes: all there are where teams have their own, since a compiler
        does not know which of them these are."""
        nests = (nest for group in self.groups for nest in group.nests)
        return BLOCK_BARRIERS if any(nest.joins_in_teams(self.block) for nest in nests) else 1

    @property
    def groups(self) -> list[GroupPlan]:
        return [group for phase in self.phases for group in phase]

    def tuned(self, tuning: Tuning) -> KernelPlan:
        """The same with other choices of the tuner for what is left to be worked out."""
        return replace(self, tuning=tuning)

    def loops(self, phase: Sequence[GroupPlan]) -> bool:
        """Whether a block may take several tiles of a phase."""
        return sum(group.tiles for group in phase) > self.grid


def vector_elements(nest: Nest) -> int:
    """Elements of the widest vector in which a nest can read all its inputs."""
    sizes = [ITEM_BYTES[op.dtype] for stage in nest.stages for op in stage.swept]
    return ACCESS_BYTES // max(sizes, default=ACCESS_BYTES // VECTOR_ELEMENTS)


def mostly_busy(units: int, threads: int) -> bool:
    """True if the threads of a team all have something to do in most of their steps."""
    return 4 * units >= 3 * threads * -(-units // threads)
