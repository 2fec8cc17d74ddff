"""The default choice for a kernel, from its groups and the device alone: one region, one schedule.

Choices of the autotuner (`tuning.py`) replace some of the defaults.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.dots.streams import stream_tile
from fusionstitch.codegen.dots.tile import TENSOR_ROWS, Tile, choose_tile
from fusionstitch.codegen.loops.coalescing import line_costs
from fusionstitch.codegen.loops.groups import COALESCED, Group, shared_bytes
from fusionstitch.codegen.loops.nests import Nest, Role, form_nests
from fusionstitch.codegen.loops.phases import Overwrites, phases
from fusionstitch.codegen.rewrite.extents import reduced_size
from fusionstitch.codegen.schedule import bins, sorts
from fusionstitch.codegen.schedule.choice import (
    CARRYING_THREADS,
    LONG_ROW,
    Choice,
    GroupChoice,
    LoopChoice,
    elements,
    holds_rows_and_sums,
)
from fusionstitch.codegen.schedule.clusters import (
    cluster_of,
    element_bytes,
    longest_row,
)
from fusionstitch.codegen.schedule.schedule import (
    RESIDENT_THREADS,
    VECTOR_ELEMENTS,
    Teams,
    mostly_busy,
    vector_elements,
)
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning, power_of_two, team_in
from fusionstitch.costmodel.devices import WARP, Device

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
#: Threads per row of a register tile: a team of eight or so works on two rows or more.
TILED_LANES = 4
#: Neighbouring threads that read a whole line of memory, 16 bytes each.
LINE_LANES = 8
#: Blocks that have the rows they scan in the shared memory of a multiprocessor.
SCANNING_BLOCKS = 4
#: Rows of pairs that a team gets to go through at once, and the sums of one for which registers
#: suffice.
FEW_ROWS, MOST_SUMS = 4, 4
#: Threads that share a row of pairs, and threads of a multiprocessor that hide the latency of its
#: arithmetic.
PAIRED_TEAM, FILLING_THREADS = 16, 1024
#: Blocks that sum columns per multiprocessor.
CARRIERS_PER_SM = 2
#: Elements of a row from which on it takes most of the registers of an SM. Too few blocks are then
#: left to hide each other's latency, so each walks several rows, if it has registers for the bytes
#: of two. On an H200 softmax took 145 us so for 4096 rows of 32768 bf16, 163 a block a row; 288 and
#: 262 for f32, of which only one fits; 162 and 134 for rows of 16384 bf16.
FULL_ROW, TWO_ROWS_BYTES = 16_384, 1 << 17
#: Share of the resident blocks that must have work for blocks to stay and walk several rows each.
PERSISTENT_SHARE = 0.9


def chosen(
    groups: Sequence[Group],
    device: Device,
    tuning: Tuning = DEFAULT,
    overwrites: Overwrites | None = None,
) -> Choice:
    """The choice for a kernel made of `groups` (in topological order)."""
    group_of = {s: g for g in groups for s in g.stages}
    nests = {g: form_nests(g) for g in groups}
    cluster, block = cluster_of(groups, nests, device, tuning)
    block = block or tuning.block or default_block(groups, nests)
    found: list[tuple[GroupChoice, ...]] = []
    for phase in phases(groups, group_of, overwrites or {}):
        kinds = Counter(kind(g, nests[g]) for g in phase)
        alike = {g: kinds[kind(g, nests[g])] for g in phase}
        found.append(
            tuple(
                group_choice(g, nests[g], block, device, tuning, alike[g], cluster) for g in phase
            )
        )
    if not tuning.block and len(groups) == 1:
        busy = _busy_threads(found[0][0], block)
        if busy < block:
            block = busy
            found = [(group_choice(groups[0], nests[groups[0]], block, device, tuning),)]
    return Choice(block, tuple(found), cluster, tuning=tuning)


def _busy_threads(choice: GroupChoice, block: int) -> int:
    """Threads per block that the register tiles of a kernel of one group keep busy, in warps."""
    group, points = choice.group, choice.points
    busy = [
        -(-points * _size(group, loop.nest.rows) // tile.team_rows) * tile.team * tile.filled
        for loop in choice.loops
        if (tile := loop.tile) is not None
    ]
    return max(LEAST_THREADS, -(-max(busy) // 32) * 32) if busy else block


def _size(group: Group, leaves: Sequence[int]) -> int:
    return group.axes.size(leaves)


def _block_of(group: Group, nests: Sequence[Nest]) -> int:
    """Threads per block for the long rows of a group, or the default if it has none."""
    block, most = 0, group.device.max_threads_per_block
    if group.in_tiles and not group.is_flat:
        return _tile_block(group)
    for nest in nests:
        rows, inner = _size(group, nest.rows), _size(group, nest.inner)
        if own := nest.with_role(Role.BINS):
            return bins.block_of(own[0].op)
        if own := nest.with_role(Role.SORT):
            return sorts.block_of(own[0].op)
        if nest.with_role(Role.CARRY):
            holds = holds_rows_and_sums(group, nest)
            team = max(DEFAULT_BLOCK, _register_team(nest, inner, most))
            block = max(block, team if holds else SUMMING_BLOCK)
        elif rows == 1 and inner >= LONG_ROW and not strided(nest):
            block = max(block, _threads_of_row(group, nest, inner, most))
    return DEFAULT_BLOCK if block < LEAST_ROW_BLOCK else block


def _tile_block(group: Group) -> int:
    """Threads per block for tiles with a halo: more where a multiprocessor holds but one."""
    alone = 2 * shared_bytes(group) > group.device.shared_per_sm
    return SUMMING_BLOCK if alone else DEFAULT_BLOCK


def _row_team(row: int, most: int, per_thread: int = PER_THREAD) -> int:
    """Threads that share a row of so many elements, `most` of them at most."""
    if row < LONG_ROW:
        return min(WARP, power_of_two(row))
    return min(most, max(WARP, power_of_two(row // per_thread)))


def _register_team(nest: Nest, row: int, most: int) -> int:
    """Threads that keep a row and carry sums of its columns, two vectors of each input a thread:
    more leave too few rows under way, fewer too few registers. Layer norm both ways of 16384 rows
    of 1024 f32 took 76 us with 128 threads on an H200, 83 with 64."""
    return min(CARRYING_THREADS, _row_team(row, most, 2 * vector_elements(nest)))


def strided(nest: Nest) -> bool:
    """True if the nest's reductions run over other than the minor-most dim of what they read, and
    lanes do not carry them."""
    for stage in nest.stages:
        if stage.op.opcode == "reduce" and nest.role[stage] is not Role.CARRY:
            return stage.in_columns
    return False


def pairs(nest: Nest) -> bool:
    """True if the nest sums over pairs, of which the rows of a block read most together."""
    sums = [s for s in nest.stages if s.op.opcode == "reduce"]
    return bool(sums) and all(s.visits_pairs for s in sums)


def in_columns(nest: Nest) -> bool:
    """Whether the rows of a nest may lie along the lanes, because these then read neighbours: for
    a sum over other than the minor-most dim, or for the dot that it begins with."""
    first = nest.stages[0]
    if strided(nest) or nest.tiled or first.op.opcode != "dot":
        return strided(nest)
    along_row, along_inner = line_costs(first)
    return along_row < along_inner


def kind(group: Group, nests: Sequence[Nest]) -> Hashable:
    """Equal for groups of a phase that fill the device together."""
    if group.is_flat:
        return "elements"
    if any(nest.tiled for nest in nests):
        return group
    return "columns" if all(strided(nest) for nest in nests) else "rows"


def _along_inner(nest: Nest) -> bool:
    """True if a dot reads memory better with neighbouring threads along the summed dim."""
    if reduced_size(nest.stages[0].op) < LINE_LANES:
        return False
    along_row, along_inner = line_costs(nest.stages[0])
    return along_inner < along_row


def default_block(groups: Sequence[Group], nests: Mapping[Group, Sequence[Nest]]) -> int:
    """Threads per block for the group that most elements are visited in."""
    heaviest = max(groups, key=elements)  # the first of equals
    return _block_of(heaviest, nests[heaviest])


def group_choice(
    group: Group,
    nests: Sequence[Nest],
    block: int,
    device: Device,
    tuning: Tuning = DEFAULT,
    alike: int = 1,
    cluster: int = 1,
) -> GroupChoice:
    """The choice for a group in a phase with so many `alike`, itself counted, that fill the device
    together; `cluster` blocks share its rows."""
    carries = any(nest.with_role(Role.CARRY) for nest in nests)
    has_bins = any(nest.with_role(Role.BINS) for nest in nests)
    points = 1
    if not (carries or has_bins or group.streamed or cluster > 1):
        points = tuning.points(points_of(group, nests, block, device, alike))
    points = points if group.is_flat else min(points, group.tiles)
    loops = []
    for nest in nests:
        tile = _tile(group, nest, points, block) if nest.tiled else None
        if nest.in_order:
            teams = Teams(1)
        elif has_bins:
            teams = Teams(block)
        elif sorted_ := nest.with_role(Role.SORT):
            teams = Teams(sorts.team_of(sorted_[0].op, block))
        elif tile is not None:
            teams = Teams(tile.team)
        elif cluster > 1:
            teams = Teams(cluster * block)
        else:
            inner = _size(group, nest.inner)
            default = teams_of(group, nest, points, block, device)
            teams = _tuned(default, inner, block, tuning)
        loops.append(LoopChoice(nest, teams, tile))
    return GroupChoice(group, points, tuple(loops))


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


def points_of(group: Group, nests: Sequence[Nest], block: int, device: Device, alike: int) -> int:
    """Grid points per tile: enough to fill a block, few enough to fill the device."""
    if group.dot_axes is not None and group.axes.extent(group.dot_axes[0]) % TENSOR_ROWS:
        return 1  # rows of different tiles must not meet in a warp
    least = group.least_points
    if least == 1 and all(_size(group, n.rows) * _lanes(n, group, block) == 1 for n in nests):
        least = COALESCED  # rows lie along the lanes: give a warp neighbours
    # elementwise tiles leave each thread a vector of elements
    target = block if any(n.inner for n in nests) else block * VECTOR_ELEMENTS
    target *= max((_paired_rows(group, n) for n in nests), default=1)
    longest = max((_size(group, n.inner) for n in nests if n.with_role(Role.REDUCE)), default=0)
    if FULL_ROW < longest <= longest_row(device) and _holds_two_rows(group, nests, longest):
        return _rows_per_block(group.tiles, block, device)
    if group.in_tiles and not group.is_flat:
        return 1
    # loops over the totals of a scan are short, and all others wait for them
    scans = any(annotations_of(stage.op).once for stage in group.stages)
    # and a sort takes longer than all loops over what it sorted
    fills = all if scans or any(n.with_role(Role.SORT) for n in nests) else any
    limit = device.shared_per_sm // SCANNING_BLOCKS if scans else math.inf
    points = 1
    tiles_each = 1 if device.own_blocks else 2
    busy_tiles = 0 if device.holds_one_block else tiles_each * device.sm_count // alike
    while points < group.tiles:
        filled = fills(
            points * _size(group, n.rows) * _lanes(n, group, block) >= target for n in nests
        )
        busy = group.tiles // (points * 2) >= busy_tiles
        fits = 2 * points * shared_bytes(group) <= limit
        if points >= least and (filled or not busy or not fits):
            break
        points *= 2
    if group.is_flat:
        return points
    if scans and group.tiles % points:  # the last tile would have other rows
        near = [n for n in range(points // 2 + 1, 2 * points) if group.tiles % n == 0]
        points = min(near, key=lambda n: abs(n - points), default=points)
    return min(points, group.tiles)


def _holds_two_rows(group: Group, nests: Sequence[Nest], row: int) -> bool:
    """Whether a block has the registers for a long row and for the next one on its way."""
    bytes_each = max(element_bytes(group, n) for n in nests if n.with_role(Role.REDUCE))
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
    if own := nest.with_role(Role.SORT):
        return sorts.team_of(own[0].op, block)
    if nest.tiled:
        return TILED_LANES if group.dot_axes is None else WARP // TENSOR_ROWS
    if not nest.inner or strided(nest):
        return 1
    if nest.stages[0].op.opcode == "dot":
        return min(LINE_LANES, power_of_two(inner)) if _along_inner(nest) else 1
    if inner >= LONG_ROW:
        return _long_team(group, nest, inner, block)
    return min(32, power_of_two(inner))


def _long_team(group: Group, nest: Nest, row: int, block: int) -> int:
    """Threads that share a long row in a block that may be larger for the sake of other groups."""
    return team_in(block, _threads_of_row(group, nest, row, block))


def _threads_of_row(group: Group, nest: Nest, row: int, most: int) -> int:
    """Threads that share a long row: many, but where rows read the same, which a block had better
    read for many of them, no more than fill the device."""
    if group.in_tiles:
        return most
    team = max(LEAST_ROW_BLOCK, _row_team(row, most))
    if not pairs(nest):
        return team
    filled = _filling(group, nest) * _paired_rows(group, nest)
    return min(team, max(PAIRED_TEAM, power_of_two(max(1, filled))))


def _filling(group: Group, nest: Nest) -> int:
    """Threads for each of the rows of pairs that fill the device."""
    return group.device.sm_count * FILLING_THREADS // (group.tiles * _size(group, nest.rows))


def _paired_rows(group: Group, nest: Nest) -> int:
    """Rows of pairs that a team goes through at once (`runs.py`): several where a warp each would
    be more than fill the device."""
    if not nest.sums_pairs or group.device.own_blocks or nest.sums_at_once > MOST_SUMS:
        return 1
    if group.tiles * _size(group, nest.rows) % (DEFAULT_BLOCK // WARP * FEW_ROWS):
        return 1  # the last tile would have other rows
    return min(FEW_ROWS, power_of_two(max(1, WARP // max(1, _filling(group, nest)))))


def teams_of(group: Group, nest: Nest, points: int, block: int, device: Device) -> Teams:
    """The threads that share a row of a nest without a register tile."""
    rows, inner = points * _size(group, nest.rows), _size(group, nest.inner)
    if inner == 1:
        return Teams(1)
    if nest.with_role(Role.CARRY):
        return _carrying_team(nest, inner, block)
    if strided(nest):
        if rows >= block or inner <= 4:
            return Teams(1)
        columns = min(block // 2, max(1, power_of_two(rows + 1) // 2))
        return Teams(block // columns, columns)
    if nest.stages[0].op.opcode == "dot" and not _along_inner(nest):
        threads = block if device.holds_one_block else device.sm_count * DEFAULT_BLOCK
        target = threads // max(1, group.tiles * _size(group, nest.rows))
        spare = block // max(1, rows)
        threads = min(32, power_of_two(max(1, min(target, spare))), power_of_two(inner) // 4)
        return Teams(max(1, threads))
    if inner >= LONG_ROW and _size(group, nest.rows) * 32 < block:
        spare = min(block // power_of_two(rows), inner // vector_elements(nest))
        long = _long_team(group, nest, inner, block)
        return Teams(long if pairs(nest) else max(long, power_of_two(spare + 1) // 2))
    if nest.stages[0].op.opcode == "dot":
        spare = power_of_two(block // rows) if rows < block else 1
        return Teams(min(32, power_of_two(inner), max(LINE_LANES, spare)))
    return Teams(min(32, power_of_two(inner)))


def _carrying_team(nest: Nest, columns: int, block: int) -> Teams:
    """A row's threads where sums of columns are carried from row to row: as many as have something
    to do in most of their steps."""
    if nest.with_role(Role.REDUCE):
        return Teams(team_in(block, _register_team(nest, columns, block)))
    width = vector_elements(nest)
    team = min(block, power_of_two(-(-columns // width)))
    while team > WARP and not mostly_busy(columns // width, team):
        team //= 2
    return Teams(team)
