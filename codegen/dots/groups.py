"""Tiles of lone dots: a group of dots of one shape and what is computed from them by element.

Its blocks own tiles of the result, instead of one element per thread. So a warp has 16 rows by some
columns of it in registers, and reads an operand once for all of them. Tiles are divisors of the
dims: an axis that is split has no ragged end.
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


def tile_dots(groups: Iterable[Group], device: Device) -> list[Group]:
    """The groups, in which every lone dot of enough rows and columns has tiles of its own."""
    return [_tiled(group, device) or group for group in groups]


def _tiled(group: Group, device: Device) -> Group | None:
    """A group whose dot has tiles; None where it has none, or is better off without."""
    dot = max(_lone_dots(group), key=group.inner_size, default=None)
    if dot is None:
        return None
    if device.own_blocks > 1 and (found := _tile_of_block(group, dot, device)):
        return found
    return None if _shared_by_lanes(dot, device) else _tile(group, dot, device)


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


def _tile_of_block(group: Group, dot: Stage, device: Device) -> Group | None:
    """Each of a cluster's blocks gets one tile of a dot of few rows: all rows, and its share of the
    columns. It then reads only its own part of an operand, each element once for all rows, and the
    same part in every iteration. None if the dot has many rows."""
    rows, columns = (minor_axis(group, side) for side in free_dims(group, dot))
    if rows is None or columns is None:
        return None
    height, width = group.axes.extent(rows), group.axes.extent(columns)
    if height * width < dot.op.shape.size or height > MOST_ROWS or width % device.own_blocks:
        return None
    return _with_dot_axes(group, rows, height, columns, width // device.own_blocks)


def _tile(group: Group, dot: Stage, device: Device) -> Group | None:
    rows, columns = (minor_axis(group, side) for side in free_dims(group, dot))
    if rows is None or columns is None:
        return None
    height = _part(group.axes.extent(rows), TENSOR_ROWS, (TENSOR_ROWS,))
    if height is None:
        return None
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
        return None
    most = warps * group.axes.extent(columns) // width
    if most < FEW_TILES * device.sm_count and group.inner_size(dot) > LONG_DEPTH:
        return None
    return _with_dot_axes(group, rows, height, columns, width)


def _with_dot_axes(group: Group, rows: int, height: int, columns: int, width: int) -> Group:
    """A group with tiles of `height` by `width` results."""
    axes = group.axes.copied()
    pair = axes.part(rows, height), axes.part(columns, width)
    return group.spread_so(axes, (leaf for leaf in axes.grid() if leaf not in pair), pair)


def free_dims(group: Group, dot: Stage) -> tuple[Sequence[int], Sequence[int]]:
    """The axes of a dot's result that come from its left and from its right operand alone."""
    dims = group.axes.dims[dot.number]
    batch = len(dot.op.attrs["lhs_batch"])
    left = dot.op.operands[0].shape.rank - len(dot.inner)
    return dims[batch:left], dims[left:]


def long_axes(group: Group, dims: Sequence[int]) -> list[int]:
    """The atomic axes of some dims that are longer than one."""
    leaves = (leaf for axis in dims for leaf in group.axes.set.leaves(axis))
    return [leaf for leaf in leaves if group.axes.extent(leaf) > 1]


def minor_axis(group: Group, dims: Sequence[int]) -> int | None:
    """The minor-most of these."""
    return next(reversed(long_axes(group, dims)), None)


def _part(extent: int, unit: int, sizes: Sequence[int]) -> int | None:
    """The part of an axis that a tile takes: a wanted one, else a divisor of at least `unit`, or
    little less, of which little lies beyond whole units: of all these the smallest."""
    for size in (*sizes, *range(unit - 1, unit * LEAST_FILLED // 4, -1)):
        if extent % size == 0:
            return size
    for size in range(max(sizes), extent + 1):
        if extent % size == 0 and -size % unit <= WASTE * size:
            return size
    return extent if unit <= extent <= WHOLE_AXIS else None
