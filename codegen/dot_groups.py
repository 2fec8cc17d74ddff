"""Tiles of lone dots: a group that is one dot and what is computed from it element by element.

Its blocks own tiles of the result, so that a warp holds 16 rows by some columns of it in registers
and reads an operand once for all of them, instead of one element per thread. Tiles are divisors of
the dims: an axis that is split has no ragged end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codegen.coalescing import line_costs
from codegen.dot_tile import TENSOR_COLUMNS, TENSOR_DEPTH, TENSOR_ROWS
from codegen.groups import Group
from codegen.stages import Stage
from costmodel.devices import Device

#: Columns of a tile, the widest first.
COLUMNS = (64, 32, 16, 8)
#: Warps per multiprocessor from which on wider tiles do not idle the device.
BUSY_WARPS = 4
#: Summed elements of a dot that few warps may walk alone; longer ones are shared by lanes.
LONG_DEPTH = 256
#: Lanes that share a result of a dot without tiles.
LINE_LANES = 8
#: Share of a tile that may lie beyond the end of an axis.
WASTE = 0.15


def tile_dots(groups: Iterable[Group], device: Device) -> None:
    """Gives every lone dot of enough rows and columns tiles of its own."""
    for group in groups:
        dot = _lone_dot(group)
        if dot is not None and not _shared_by_lanes(dot, device):
            _tile(group, dot, device)


def _lone_dot(group: Group) -> Stage | None:
    """The dot of a group in which all stages have its dims, each of which may be spread."""
    dots = [s for s in group.stages if s.is_reduction]
    if len(dots) != 1 or dots[0].op.opcode != "dot":
        return None
    axes = set(group.axes.grid())
    whole = all(set(group.axes.leaves(s)) == axes for s in group.stages)
    return dots[0] if whole and group.inner_size(dots[0]) >= TENSOR_DEPTH else None


def _shared_by_lanes(dot: Stage, device: Device) -> bool:
    """True if lanes that share a result read memory better than others, and all of them fit on the
    device at once: 100x256 by 256x256, contracted along the rows of both, took 3.6 us so and 8.6 us
    in tiles on an H200."""
    along_row, along_inner = line_costs(dot)
    lanes = dot.op.shape.size * LINE_LANES
    return along_inner < along_row and lanes <= device.sm_count * device.max_threads_per_sm


def _tile(group: Group, dot: Stage, device: Device) -> None:
    rows, columns = (minor_axis(group, side) for side in free_dims(group, dot))
    if rows is None or columns is None:
        return
    height = _part(group.axes.extent(rows), TENSOR_ROWS, (TENSOR_ROWS,))
    warps = dot.op.shape.size // group.axes.extent(columns) // TENSOR_ROWS
    width = None
    for size in COLUMNS:
        found = _part(group.axes.extent(columns), TENSOR_COLUMNS, (size,))
        if found is not None:
            width = found
            if warps * group.axes.extent(columns) // found >= BUSY_WARPS * device.sm_count:
                break
    if height is None or width is None:
        return
    most = warps * group.axes.extent(columns) // width
    if most < device.sm_count and group.inner_size(dot) > LONG_DEPTH:
        return
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
    """The part of an axis that a tile takes: a wanted one, else the smallest divisor of at least
    `unit` of which little lies beyond whole units."""
    for size in wanted:
        if extent % size == 0:
            return size
    for size in range(max(wanted), extent + 1):
        if extent % size == 0 and -size % unit <= WASTE * size:
            return size
    return extent if unit <= extent <= max(COLUMNS) else None


def split(group: Group, leaf: int, minor: int) -> int:
    """Splits an axis unless `minor` is all of it; the axis of that extent."""
    if group.axes.extent(leaf) == minor:
        return leaf
    group.axes.set.split(leaf, minor)
    return group.axes.set.leaves(leaf)[-1]
