"""The schedule of a kernel: phases of groups, tiles over blocks, teams of threads over rows.

All extents are decided here, from the stages and the device alone, so that one region has one
schedule. `Teams` is the mapping of one nest: how many threads share a row, and how they lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fusionstitch.codegen.dots.streams import stream_tile
from fusionstitch.codegen.dots.tile import TENSOR_ROWS, WARP, Tile, choose_tile
from fusionstitch.codegen.loops.coalescing import line_costs
from fusionstitch.codegen.loops.groups import COALESCED, Group
from fusionstitch.codegen.loops.nests import Nest, Place, form_nests
from fusionstitch.codegen.loops.phases import Overwrites, phases
from fusionstitch.codegen.loops.stages import Stage, is_strided, reduced_size
from fusionstitch.codegen.places.vectors import ACCESS_BYTES
from fusionstitch.codegen.schedule.clusters import (
    LONGEST_KEPT,
    MOST_THREADS,
    cluster_of,
    element_bytes,
)
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning, power_of_two, team_in
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import L2_SHARE
from fusionstitch.hlo.graph import ITEM_BYTES

#: A row at least this long is given to the whole block.
LONG_ROW = 512
#: Elements of a long row per thread.
PER_THREAD = 16
DEFAULT_BLOCK = 256
#: The least threads of a block that works on one long row at a time.
LEAST_ROW_BLOCK = 128
#: Threads of a block that sums columns: fewer, larger blocks leave fewer partial sums. Batch norm
#: of 65536 x 256 floats took 126 us with 512 on an H200, 131 us with 256.
SUMMING_BLOCK = 512
#: The smallest block that a kernel of register tiles shrinks to.
LEAST_THREADS = 32
#: Elements per thread of a purely elementwise tile.
VECTOR_ELEMENTS = 4
#: Threads per row of a register tile: a team of eight or so works on two rows or more.
TILED_LANES = 4
#: Neighbouring threads that read a whole line of memory, 16 bytes each.
LINE_LANES = 8
#: Threads per SM of launches that stay resident: with launch bounds they leave each 64 registers.
RESIDENT_THREADS = 1024
#: The same where each keeps part of a long row, of the next one, and sums of its columns: half as
#: many have the registers for it. An H200 took 42 us for layer norm forward and backward of 16384
#: rows of 1024 bf16, where twice as many threads with half as much each took 47 us.
CARRYING_THREADS = 512
#: Blocks that sum columns per multiprocessor.
CARRIERS_PER_SM = 2
#: Elements of a row from which on a block keeps it in most of the registers of an SM: too few
#: blocks are left to hide latency behind each other, so that each walks several rows, where it has
#: registers for bytes of two. On an H200 softmax took 145 us so for 4096 rows of 32768 bf16, 163 a
#: block a row; 288 and 262 for f32, of which only one fits; 162 and 134 for rows of 16384 bf16.
FULL_ROW, TWO_ROWS_BYTES = 16_384, 1 << 17
#: Share of the resident blocks that must have work for blocks to stay and walk several rows each.
PERSISTENT_SHARE = 0.9


class FixedByTemplate(Protocol):
    """What `codegen/schedule/templated.py` hands over."""

    groups: set[Group]
    teams: dict[Stage, Teams]
    block: int | None


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


@dataclass(eq=False)
class NestPlan:
    """A nest with its extents per tile and the threads that work on each row.

    With a register `tile` a team works on `tile.rows` rows at once.
    """

    nest: Nest
    rows: int
    inner: int
    teams: Teams
    tile: Tile | None = None

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


@dataclass(eq=False)
class GroupPlan:
    """`points` grid points per tile; the tiles of a phase are numbered through its groups.

    A group that reads an input `again` gives each block one stretch of it, as a loop that sums rows
    does; a `backward` one walks that from the end.
    """

    group: Group
    nests: list[NestPlan]
    points: int
    tiles: int
    first_tile: int = 0
    again: bool = False
    backward: bool = False

    @property
    def grid_points(self) -> int:
        return self.group.tiles

    @property
    def ragged(self) -> bool:
        """True if the last tile has fewer grid points than the others."""
        return self.grid_points % self.points != 0


@dataclass(eq=False)
class KernelPlan:
    """Threads per block, groups by phase (a grid barrier between phases), blocks, or clusters of
    them: each tile is then the work of `cluster` blocks.

    `full` counts the threads that keep the device busy, `resident` those of each SM that a launch
    whose blocks stay counts on; `blocks_per_sm` is how many blocks that are, or the launch bounds
    otherwise ask for (0: any).
    """

    block: int
    phases: list[list[GroupPlan]]
    grid: int
    full: int
    resident: int = RESIDENT_THREADS
    blocks_per_sm: int = 0
    tuning: Tuning = DEFAULT
    cluster: int = 1

    @property
    def cooperative(self) -> bool:
        return len(self.phases) > 1

    @property
    def groups(self) -> list[GroupPlan]:
        return [group for phase in self.phases for group in phase]

    def loops(self, phase: Sequence[GroupPlan]) -> bool:
        """Whether a block may take several tiles of a phase."""
        return sum(group.tiles for group in phase) > self.grid


def schedule(
    groups: Sequence[Group],
    device: Device,
    fixed: FixedByTemplate | None = None,
    tuning: Tuning = DEFAULT,
    overwrites: Overwrites | None = None,
) -> KernelPlan:
    """The schedule of a kernel made of `groups` (in topological order).

    `fixed` are a template's decisions, `tuning` the autotuner's; the rest follows from the groups
    and the device.
    """
    group_of = {s: g for g in groups for s in g.stages}
    nests = {g: form_nests(g, tiled=fixed is None) for g in groups}
    heaviest = max(groups, key=_elements)  # the first of equals
    cluster, block = cluster_of(groups, nests, device, tuning) if fixed is None else (1, 0)
    block = block or tuning.block or _wanted_block(heaviest, nests[heaviest])
    if fixed is not None:
        block = fixed.block or DEFAULT_BLOCK
    plans: list[list[GroupPlan]] = []
    for phase in phases(groups, group_of, overwrites or {}):
        kinds = Counter(_kind(g, nests[g]) for g in phase)
        plans.append([])
        for g in phase:
            alike = kinds[_kind(g, nests[g])]
            plans[-1].append(_plan_group(g, nests[g], block, device, fixed, tuning, alike, cluster))
    if fixed is None and not tuning.block and (busy := _busy_threads(plans)) < block:
        block = busy
        plans = [[_plan_group(groups[0], nests[groups[0]], block, device, None, tuning)]]
    _alternate(plans, device)
    most = max(_number_tiles(p) for p in plans)
    resident = RESIDENT_THREADS
    if any(_keeps_and_carries(heaviest, nest) for nest in nests[heaviest]):
        resident = max(block, CARRYING_THREADS)
    full = device.sm_count * RESIDENT_THREADS
    return KernelPlan(block, plans, most, full, resident, tuning=tuning, cluster=cluster)


def _alternate(phases: Sequence[Sequence[GroupPlan]], device: Device) -> None:
    """Turns the walk around where an earlier phase went through the same large input: what it read
    last is still in L2."""
    latest: dict[int, bool] = {}
    for phase in phases:
        read: dict[int, bool] = {}
        for plan in phase:
            large = {
                op.id
                for stage in plan.group.stages
                for op, _ in stage.loads
                if op.shape.bytes > device.l2_bytes * L2_SHARE
            }
            again = [latest[i] for i in sorted(large) if i in latest]
            plan.again = bool(again)
            plan.backward = plan.again and not again[0]
            read.update((i, plan.backward) for i in large)
        latest.update(read)


def _busy_threads(plans: Sequence[Sequence[GroupPlan]]) -> int:
    """Threads per block that the register tiles of a kernel of one group keep busy, in warps."""
    groups = [group for phase in plans for group in phase]
    busy = [
        -(-nest.rows // nest.tile.team_rows) * nest.tile.team * nest.tile.filled
        for nest in groups[0].nests
        if nest.tile is not None
    ]
    if len(groups) > 1 or not busy:
        return MOST_THREADS
    return max(LEAST_THREADS, -(-max(busy) // 32) * 32)


def _size(group: Group, leaves: Sequence[int]) -> int:
    return group.axes.size(leaves)


def _wanted_block(group: Group, nests: Sequence[Nest]) -> int:
    """Threads per block for the long rows of a group, or the default if it has none."""
    block = 0
    for nest in nests:
        rows, inner = _size(group, nest.rows), _size(group, nest.inner)
        if nest.placed(Place.CARRY):
            keeps = _keeps_and_carries(group, nest)
            team = max(DEFAULT_BLOCK, _keeping_team(nest, inner))
            block = max(block, team if keeps else SUMMING_BLOCK)
        elif rows == 1 and inner >= LONG_ROW and not _strided(nest):
            block = max(block, _row_team(inner), LEAST_ROW_BLOCK)
    return block or DEFAULT_BLOCK


def _keeps_and_carries(group: Group, nest: Nest) -> bool:
    """True if threads keep parts of long rows while they carry sums of their columns."""
    both = nest.placed(Place.CARRY) and nest.placed(Place.REDUCE)
    return bool(both) and _size(group, nest.inner) >= LONG_ROW


def _row_team(row: int, per_thread: int = PER_THREAD) -> int:
    """Threads that share a row of so many elements."""
    if row < LONG_ROW:
        return min(WARP, power_of_two(row))
    return min(MOST_THREADS, max(WARP, power_of_two(row // per_thread)))


def _keeping_team(nest: Nest, row: int) -> int:
    """Threads that keep a row and carry sums of its columns, two vectors of each input a thread:
    more leave too few rows under way, fewer too few registers. Layer norm both ways of 16384 rows
    of 1024 f32 took 76 us with 128 threads on an H200, 83 with 64."""
    return min(CARRYING_THREADS, _row_team(row, 2 * vector_elements(nest)))


def _elements(group: Group) -> int:
    """Elements that the loops of a group visit."""
    return sum(s.op.shape.size * group.inner_size(s) for s in group.stages)


def _strided(nest: Nest) -> bool:
    """True if the nest's reductions run over other than the minor-most dim of what they read, and
    lanes do not carry them."""
    for stage in nest.stages:
        if stage.op.opcode == "reduce" and nest.place[stage] is not Place.CARRY:
            return is_strided(stage.op)
    return False


def _kind(group: Group, nests: Sequence[Nest]) -> Hashable:
    """Equal for groups of a phase that fill the device together."""
    if group.is_flat:
        return "elements"
    if any(nest.tiled for nest in nests):
        return group
    return "columns" if all(_strided(nest) for nest in nests) else "rows"


def _along_inner(nest: Nest) -> bool:
    """True if a dot reads memory better with neighbouring threads along the summed dim."""
    if reduced_size(nest.stages[0].op) < LINE_LANES:
        return False
    along_row, along_inner = line_costs(nest.stages[0])
    return along_inner < along_row


def _plan_group(
    group: Group,
    nests: list[Nest],
    block: int,
    device: Device,
    fixed: FixedByTemplate | None,
    tuning: Tuning,
    alike: int = 1,
    cluster: int = 1,
) -> GroupPlan:
    """The plan of a group in a phase with so many `alike`, itself counted, that fill the device
    together; `cluster` blocks share its rows."""
    given = fixed is not None and group in fixed.groups
    carries = any(nest.placed(Place.CARRY) for nest in nests)
    fixed_points = given or carries or group.streamed or cluster > 1
    points = 1 if fixed_points else tuning.points(_points(group, nests, block, device, alike))
    points = points if group.is_flat else min(points, group.tiles)
    plans = []
    for nest in nests:
        rows, inner = points * _size(group, nest.rows), _size(group, nest.inner)
        teams = _tuned(_teams(nest, rows, inner, block, group, device), inner, block, tuning)
        if fixed is not None:
            given_to = [s for s in nest.stages if nest.place[s] is not Place.CARRY]
            teams = next((fixed.teams[s] for s in given_to if s in fixed.teams), teams)
        tile = _tile(group, nest, points, block) if nest.tiled else None
        if nest.in_order:
            teams = Teams(1)
        elif tile is not None:
            teams = Teams(tile.team)
        elif cluster > 1:
            teams = Teams(cluster * block)
        plans.append(NestPlan(nest, rows, inner, teams, tile))
    return GroupPlan(group, plans, points, -(-group.tiles // points))


def _tile(group: Group, nest: Nest, points: int, block: int) -> Tile:
    if group.streamed:
        return stream_tile(group, nest)
    return choose_tile(group, nest, points, block)


def _tuned(teams: Teams, inner: int, block: int, tuning: Tuning) -> Teams:
    """The autotuner's threads per row, where it chose any."""
    if teams.columns:
        columns = min(tuning.columns or teams.columns, block // 2)
        return Teams(block // columns, columns)
    return Teams(tuning.threads(teams.threads, block)) if inner > 1 else teams


def _points(group: Group, nests: Sequence[Nest], block: int, device: Device, alike: int) -> int:
    """Grid points per tile: enough to fill a block, few enough to fill the device."""
    if group.held is not None and group.axes.extent(group.held[0]) % TENSOR_ROWS:
        return 1  # rows of different tiles must not meet in a warp
    least = group.least_points
    if least == 1 and all(_size(group, n.rows) * _lanes(n, group, block) == 1 for n in nests):
        least = COALESCED  # rows lie along the lanes: give a warp neighbours
    # elementwise tiles leave each thread a vector of elements
    target = block if any(n.inner for n in nests) else block * VECTOR_ELEMENTS
    longest = max((_size(group, n.inner) for n in nests if n.placed(Place.REDUCE)), default=0)
    if FULL_ROW < longest <= LONGEST_KEPT and _keeps_two(group, nests, longest):
        return _rows_per_block(group.tiles, block, device)
    points = 1
    busy_tiles = 2 * device.sm_count // alike
    while points < group.tiles:
        filled = any(
            points * _size(group, n.rows) * _lanes(n, group, block) >= target for n in nests
        )
        busy = group.tiles // (points * 2) >= busy_tiles
        if filled or not (busy or points < least):
            break
        points *= 2
    return points if group.is_flat else min(points, group.tiles)


def _keeps_two(group: Group, nests: Sequence[Nest], row: int) -> bool:
    """Whether a block has the registers for a long row and for the next one on its way."""
    bytes_each = max(element_bytes(group, n) for n in nests if n.placed(Place.REDUCE))
    return 2 * row * bytes_each <= TWO_ROWS_BYTES


def _rows_per_block(rows: int, block: int, device: Device) -> int:
    """Long rows that each block walks so that all blocks are resident at once, or 1."""
    blocks = device.sm_count * (RESIDENT_THREADS // block)
    each = -(-rows // blocks)
    while rows % each:
        each += 1
    return each if rows // each >= PERSISTENT_SHARE * blocks else 1


def _lanes(nest: Nest, group: Group, block: int) -> int:
    """Threads one row of the nest keeps busy."""
    inner = _size(group, nest.inner)
    if nest.in_order:
        return 1
    if nest.tiled:
        return TILED_LANES if group.held is None else WARP // TENSOR_ROWS
    if not nest.inner or _strided(nest):
        return 1
    if nest.stages[0].op.opcode == "dot":
        return min(LINE_LANES, power_of_two(inner)) if _along_inner(nest) else 1
    return _long_team(inner, block) if inner >= LONG_ROW else min(32, power_of_two(inner))


def _long_team(row: int, block: int) -> int:
    """Threads that share a long row in a block that may be larger for the sake of other groups."""
    return team_in(block, max(LEAST_ROW_BLOCK, _row_team(row)))


def _teams(nest: Nest, rows: int, inner: int, block: int, group: Group, device: Device) -> Teams:
    if inner == 1:
        return Teams(1)
    if nest.placed(Place.CARRY):
        return _carrying_team(nest, inner, block)
    if _strided(nest):
        if rows >= block or inner <= 4:
            return Teams(1)
        columns = min(block // 2, max(1, power_of_two(rows + 1) // 2))
        return Teams(block // columns, columns)
    if nest.stages[0].op.opcode == "dot" and not _along_inner(nest):
        wanted = device.sm_count * DEFAULT_BLOCK // max(1, group.tiles * _size(group, nest.rows))
        spare = block // max(1, rows)
        threads = min(32, power_of_two(max(1, min(wanted, spare))), power_of_two(inner) // 4)
        return Teams(max(1, threads))
    if inner >= LONG_ROW and _size(group, nest.rows) * 32 < block:
        spare = min(block // power_of_two(rows), inner // vector_elements(nest))
        return Teams(max(_long_team(inner, block), power_of_two(spare + 1) // 2))
    if nest.stages[0].op.opcode == "dot":
        spare = power_of_two(block // rows) if rows < block else 1
        return Teams(min(32, power_of_two(inner), max(LINE_LANES, spare)))
    return Teams(min(32, power_of_two(inner)))


def _carrying_team(nest: Nest, columns: int, block: int) -> Teams:
    """A row's threads where sums of columns are carried from row to row: as many as have something
    to do in most of their steps."""
    if nest.placed(Place.REDUCE):
        return Teams(team_in(block, _keeping_team(nest, columns)))
    width = vector_elements(nest)
    team = min(block, power_of_two(-(-columns // width)))
    while team > WARP and not mostly_busy(columns // width, team):
        team //= 2
    return Teams(team)


def vector_elements(nest: Nest) -> int:
    """Elements of the widest vector in which a nest can read all its inputs."""
    sizes = [ITEM_BYTES[op.dtype] for stage in nest.stages for op in stage.swept]
    return ACCESS_BYTES // max(sizes, default=ACCESS_BYTES // VECTOR_ELEMENTS)


def mostly_busy(units: int, threads: int) -> bool:
    """True if the threads of a team all have something to do in most of their steps."""
    return 4 * units >= 3 * threads * -(-units // threads)


def _number_tiles(plans: list[GroupPlan]) -> int:
    """Numbers the tiles of a phase; returns how many there are."""
    first = 0
    for plan in plans:
        plan.first_tile = first
        first += plan.tiles
    return first
