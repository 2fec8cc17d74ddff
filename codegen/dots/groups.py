"""Tiles of lone dots: a group of dots of one shape and what is computed from them by element.

Its blocks own tiles of the result, so that a warp holds 16 rows by some columns of it in registers
and reads an operand once for all of them, instead of one element per thread. Tiles are divisors of
the dims: an axis that is split has no ragged end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusionstitch.codegen.dots.tile import MOST_ROWS, TENSOR_COLUMNS, TENSOR_DEPTH, TENSOR_ROWS
from fusionstitch.codegen.loops.coalescing import line_costs
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import dot_flops

#: Columns of a tile, the widest first.
COLUMNS = (32, 16, 8)
#: Share of the multiprocessors that must have a tile: wider ones read operands less often.
BUSY_SHARE = 0.5
#: The same for sums of dots of so many summed elements in all: long walks had better be many.
DEEP_SHARE, DEEP = 0.9, 1024
#: Summed elements of a dot that the warps of a few tiles may walk, and the tiles per
#: multiprocessor that are few; longer dots are shared by lanes.
LONG_DEPTH, FEW_TILES = 256, 1 / 8
#: Lanes that share a result of a dot without tiles.
LINE_LANES = 8
#: Multiply-adds up to which that pays: nothing is read once for several results.
SHARED_ADDS = 1 << 23
#: An axis up to which a tile may take all of it, however much lies beyond.
WHOLE_AXIS = 64
#: Share of a tile that may lie beyond the end of an axis.
WASTE = 0.4
#: Quarters of a unit that a tile smaller than one must fill.
LEAST_FILLED = 3


def tile_dots(groups: Iterable[Group], device: Device) -> None:
    """Gives every lone dot of enough rows and columns tiles of its own."""
    for group in groups:
        dots = _lone_dots(group)
        dot = max(dots, key=group.inner_size, default=None)
        if dot is None or (device.holds_its_blocks and _tile_of_block(group, dot, device)):
            continue
        if not _shared_by_lanes(dot, device):
            _tile(group, dot, device)


def _lone_dots(group: Group) -> list[Stage]:
    """The dots of a group in which all stages have their dims, each of which may be spread."""
    dots = [s for s in group.stages if s.is_reduction]
    axes = set(group.axes.grid())
    whole = all(set(group.axes.leaves(s)) == axes for s in group.stages)
    deep = all(s.op.opcode == "dot" and group.inner_size(s) >= TENSOR_DEPTH for s in dots)
    return dots if whole and deep else []


def _shared_by_lanes(dot: Stage, device: Device) -> bool:
    """True if lanes that share a result read memory better than others, and all of them fit on the
    device at once: 100x256 by 256x256, contracted along the rows of both, took 3.6 us so and 8.6 us
    in tiles on an H200."""
    along_row, along_inner = line_costs(dot)
    lanes = dot.op.shape.size * LINE_LANES
    if dot_flops(dot.op) > 2 * SHARED_ADDS:
        return False
    return along_inner < along_row and lanes <= device.sm_count * device.max_threads_per_sm


def _tile_of_block(group: Group, dot: Stage, device: Device) -> bool:
    """Gives each of a cluster's blocks one tile of a dot of few rows, all of them by its share of
    the columns: it then reads its own part of an operand alone, each element once for all rows, and
    the same in every iteration. Whether the dot is such a one."""
    rows, columns = (minor_axis(group, side) for side in free_dims(group, dot))
    if rows is None or columns is None or device.holds_one_block:
        return False
    height, width = group.axes.extent(rows), group.axes.extent(columns)
    if height * width < dot.op.shape.size or height > MOST_ROWS or width % device.sm_count:
        return False
    _hold(group, rows, height, columns, width // device.sm_count)
    return True


def _tile(group: Group, dot: Stage, device: Device) -> None:
    rows, columns = (minor_axis(group, side) for side in free_dims(group, dot))
    if rows is None or columns is None:
        return
    height = _part(group.axes.extent(rows), TENSOR_ROWS, (TENSOR_ROWS,))
    if height is None:
        return
    bands = dot.op.shape.size // group.axes.extent(columns) // height
    warps = bands * -(-height // TENSOR_ROWS)
    width = None
    depth = sum(group.inner_size(s) for s in group.stages if s.is_reduction)
    share = DEEP_SHARE if depth > DEEP else BUSY_SHARE
    for size in COLUMNS:
        found = _part(group.axes.extent(columns), TENSOR_COLUMNS, (size,))
        if found is not None:
            width = found
            if warps * group.axes.extent(columns) // found >= share * device.sm_count:
                break
    if width is None:
        return
    most = warps * group.axes.extent(columns) // width
    if most < FEW_TILES * device.sm_count and group.inner_size(dot) > LONG_DEPTH:
        return
    _hold(group, rows, height, columns, width)


def _hold(group: Group, rows: int, height: int, columns: int, width: int) -> None:
    """Makes tiles of `height` by `width` results."""
    group.held = (split(group, rows, height), split(group, columns, width))
    group.axes.refresh()
    group.spread([leaf for leaf in group.axes.grid() if leaf not in group.held])


def free_dims(group: Group, dot: Stage) -> tuple[Sequence[int], Sequence[int]]:
    """The axes of a dot's result that come from its left and from its right operand alone."""
    dims = group.axes.dims[dot.number]
    batch = len(dot.op.attrs["lhs_batch"])
    left = dot.op.operands[0].shape.rank - len(dot.inner)
    return dims[batch:left], dims[left:]


def minor_axis(group: Group, dims: Sequence[int]) -> int | None:
    """The minor-most atomic axis of some dims that is longer than one."""
    leaves = [leaf for axis in dims for leaf in group.axes.set.leaves(axis)]
    return next((leaf for leaf in reversed(leaves) if group.axes.extent(leaf) > 1), None)


def _part(extent: int, unit: int, wanted: Sequence[int]) -> int | None:
    """The part of an axis that a tile takes: a wanted one, else a divisor of at least `unit`, or
    little less, of which little lies beyond whole units: of all these the smallest."""
    for size in (*wanted, *range(unit - 1, unit * LEAST_FILLED // 4, -1)):
        if extent % size == 0:
            return size
    for size in range(max(wanted), extent + 1):
        if extent % size == 0 and -size % unit <= WASTE * size:
            return size
    return extent if unit <= extent <= WHOLE_AXIS else None


def split(group: Group, leaf: int, minor: int) -> int:
    """Splits an axis unless `minor` is all of it; the axis of that extent."""
    if group.axes.extent(leaf) == minor:
        return leaf
    group.axes.set.split(leaf, minor)
    return group.axes.set.leaves(leaf)[-1]
