"""Nests that are streamed: which groups, the passes along their columns, and the blocks of these.

A nest whose rows are too long for registers walks its columns block by block (`chains.py`). In one
pass its levels run together as far as their sums may be rescaled while the extrema that they wait
for still change (codegen/dots/online.py). The next level begins another pass, for which the
elements are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.dots.groups import WASTE, free_dims, long_axes
from fusionstitch.codegen.dots.online import Running, degree
from fusionstitch.codegen.dots.tile import (
    TENSOR_COLUMNS,
    TENSOR_LANES,
    TENSOR_ROWS,
    Tile,
    results_per_row,
    suits_tensor,
)
from fusionstitch.codegen.index_maps.vectors import ACCESS_BYTES
from fusionstitch.codegen.loops.axes import GroupAxes
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest, Role, form_nests
from fusionstitch.codegen.loops.once import BLOCK_ROWS
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.text.types import TF32, c_type
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.deciding import EXTREMA
from fusionstitch.hlo.errors import CodegenError

#: Columns of a block: threads wait once for each of these. More of them where one product of
#: elements of 16 bits has a depth of a power of two and so many columns: these take 0.72 to 0.91 of
#: the time then, others up to three times as long (benchmarks/streamed.py).
COLUMNS, MORE_COLUMNS, LEAST_FOR_MORE = 32, 64, 128
#: Registers of a tile from which on a thread has too few for all else.
MOST_REGISTERS = 192
#: Registers of a tile up to which two blocks of all their rows fit on a multiprocessor, and from
#: which on two blocks of half the rows have no more warps than one of all, and load each column
#: twice as often.
BALANCED_REGISTERS, WIDE_REGISTERS = 112, 170
#: Registers per thread that a walk takes beside what it holds, by element type: those of floats
#: with all bits are taken apart for each product.
WORKING_REGISTERS = {"bf16": 46, "f16": 46, TF32: 60, "f32": 84}
#: Blocks per multiprocessor below which blocks get fewer rows.
LEAST_BLOCKS = 2


@dataclass(frozen=True)
class Layout:
    """How the columns' operand of a dot lies in shared memory: `row` elements of type `element`
    per column, `stride` apart, read `width` at a time and written `lot` at a time."""

    element: str
    width: int
    row: int
    stride: int
    lot: int

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return item_bytes(self.element)

    def bytes_of(self, columns: int) -> int:
        """Bytes of so many columns."""
        return columns * self.stride * self.item

    @property
    def words(self) -> int:
        """32-bit words of an access."""
        return self.width * self.item // 4


def item_bytes(element: str) -> int:
    """Bytes of an element of an operand."""
    return c_type(element).bytes


# ---- which groups --------------------------------------------------------------------------------


def stream_rows(groups: Sequence[Group], stream: Stream, device: Device) -> list[Group]:
    """The groups, of which those that hold the dots of a stream walk their columns block by block.

    Raises CodegenError if the dots of a chain, and what lies between them, do not fit one loop, and
    if something else could run beside it: few of its blocks would fit on a multiprocessor.
    """
    dots = {s for group in groups for s in group.stages if s.op.id in stream.dots}
    found: list[Group] = []
    for group in groups:
        if dots and not any(dots & _touched(s) for s in group.stages) and not _feeds(group, dots):
            raise CodegenError("What does not depend on a streamed chain has a better kernel.")
        sums = [s for s in group.stages if s.op.id in stream.sums]
        products = [s for s in group.stages if s.op.id in stream.products]
        if not (sums or products):
            found.append(group)
            continue
        streamed = _streamed(group, sums, products, device) if sums and products else None
        if streamed is None:
            raise CodegenError("A chain of dots does not fit one walk along its columns.")
        found.append(streamed)
    return found


def _touched(stage: Stage) -> set[Stage]:
    """A stage and those it reads."""
    return {stage, *(producer for producer, _ in stage.reads)}


def _feeds(group: Group, dots: set[Stage]) -> bool:
    """Whether one of `dots` reads what a group computes."""
    return any(producer in group.stages for dot in dots for producer, _ in dot.reads)


def _streamed(
    group: Group, sums: Sequence[Stage], products: Sequence[Stage], device: Device
) -> Group | None:
    columns = group.axes.inner_leaves(sums[0])
    sides = [_row_axis(group, side) for side in free_dims(group, products[0])]
    rows = [axis for axis in sides if axis is not None and axis not in columns]
    if len(columns) != 1 or len(rows) != 1 or rows[0] not in group.axes.grid():
        return None
    whole = _with_dot_axes(group, group.axes, rows[0], columns[0])
    nests = form_nests(whole)
    if len(nests) != 1 or not _fits(whole, nests[0], {*sums, *products}):
        return None
    tiles = group.axes.size(group.axes.grid())
    tile = stream_tile(whole, nests[0])
    if tile.registers > MOST_REGISTERS:
        return None
    balanced = tile.registers <= BALANCED_REGISTERS
    wide = tile.columns == MORE_COLUMNS and tile.registers > WIDE_REGISTERS
    most = BLOCK_ROWS if balanced or wide else BLOCK_ROWS // 2
    part = _part(group.axes.extent(rows[0]), most, tiles, device)
    axes = group.axes.copied()
    return _with_dot_axes(group, axes, axes.part(rows[0], part), columns[0])


def _row_axis(group: Group, dims: Sequence[int]) -> int | None:
    """The axis of some dims whose neighbors are rows of a tile."""
    return rows_among(long_axes(group, dims), group.axes.extent)


def rows_among(axes: Sequence[int], extent: Callable[[int], int]) -> int | None:
    """Which of some axes longer than one, in order, has the rows of a tile: the minor-most, unless
    that is too short, as that of the queries which share a key is."""
    if not axes or extent(axes[-1]) >= TENSOR_ROWS:
        return axes[-1] if axes else None
    return max(axes, key=extent)


def takes_stream(group: Group, nest: Nest, stream: Stream) -> bool:
    """Whether all dots of a nest belong to a stream and fit its walk on tensor cores."""
    dots = {s for s in nest.stages if s.op.opcode == "dot"}
    known = all(s.op.id in stream.dots for s in dots)
    return bool(dots) and known and _fits(group, nest, dots)


def _with_dot_axes(group: Group, axes: GroupAxes, rows: int, columns: int) -> Group:
    grid = (leaf for leaf in axes.grid() if leaf != rows)
    return group.spread_so(axes, grid, (rows, columns), streamed=True)


def _fits(group: Group, nest: Nest, dots: set[Stage]) -> bool:
    """Whether all dots are in the nest's loop, on tensor cores."""
    placed = {*nest.products, *nest.with_role(Role.DOT)}
    return dots <= placed and not nest.with_role(Role.CARRY) and suits_tensor(group, nest)


def _part(extent: int, most: int, tiles: int, device: Device) -> int:
    """The part of the rows that a block takes: as many as `most`, few enough to fill the device, of
    which little lies beyond whole units; all of them if there is none."""
    best = extent
    for part in range(1, min(extent, most) + 1):
        if extent % part or -part % TENSOR_ROWS > WASTE * part:
            continue
        if best == extent or tiles // part >= LEAST_BLOCKS * device.sm_count:
            best = part
    return best


# ---- passes --------------------------------------------------------------------------------------


def passes(nest: Nest) -> list[list[int]]:
    """The levels of a nest by pass."""
    found: list[list[int]] = [[0]]
    for level in range(1, nest.levels):
        levels = [*found[-1], level]
        running = running_in(nest, levels)
        waits = any(
            degree(s.op, s.dims, s.inner, running) is None
            for s in nest.at(level)
            if s not in nest.products and nest.role[s] not in (Role.ROW, Role.RESULT)
        )
        if waits:
            found.append([level])
        else:
            found[-1].append(level)
    return found


def running_in(nest: Nest, levels: Sequence[int]) -> Running:
    """What is known inside a pass over `levels`."""
    first, others = levels[0], set(levels)
    inside = [s for s in nest.stages if nest.level[s] in others and s not in nest.products]
    extrema = {
        s.op.id
        for s in inside
        if nest.role[s] is Role.REDUCE
        and s.op.attrs.get("reducer") in EXTREMA
        and nest.level[s] == first
    }
    late = {
        s.op.id
        for s in inside
        if nest.role[s] in (Role.REDUCE, Role.DOT)
        or (nest.role[s] in (Role.ROW, Role.RESULT) and nest.level[s] > first)
    }
    whole = {p.op.id for s in nest.stages for p, _ in s.reads}
    return Running(frozenset(extrema), frozenset(late - extrema), frozenset(whole))


# ---- tiles ---------------------------------------------------------------------------------------


def stream_tile(group: Group, nest: Nest) -> Tile:
    """The register tile of a streamed nest: 16 rows to a warp, a block of columns at a time. The
    operands of its rows are read again for each block where there are no registers for them."""
    products, sums = nest.products, nest.with_role(Role.DOT)
    layouts = layouts_of(group, nest)
    results = sum(results_per_row(group, nest, s) // 2 for s in sums)
    words = [layouts[stage].row * layouts[stage].item // 4 // TENSOR_LANES for stage in products]
    held = 2 * sum(words)
    columns = MORE_COLUMNS if _takes_more(group, nest) else COLUMNS
    working = max(WORKING_REGISTERS[x.element] for x in layouts.values())
    registers = results + held + len(products) * columns // 2 + working
    rereads = registers > MOST_REGISTERS
    if rereads:
        registers += 2 * max(layouts[stage].words for stage in products) - held
    return Tile(
        rows=2,
        lanes=TENSOR_LANES,
        steps=columns // TENSOR_LANES,
        tensor=True,
        reason=f"16 rows a warp on tensor cores, {columns} columns at a time",
        registers=registers,
        columns=columns,
        shared=sum(x.bytes_of(columns) for x in layouts.values()),
        rereads=rereads,
    )


def _takes_more(group: Group, nest: Nest) -> bool:
    """Whether blocks have `MORE_COLUMNS`."""
    if len(nest.products) != 1:
        return False
    [product] = nest.products
    narrow = item_bytes(element_of(product)) == 2
    return narrow and suits_more(group.inner_size(product), group.axes.size(nest.inner))


def suits_more(depth: int, columns: int) -> bool:
    """Whether one product of so many summed elements of 16 bits has `MORE_COLUMNS` at a time."""
    return columns >= LEAST_FOR_MORE and depth & (depth - 1) == 0


def layouts_of(group: Group, nest: Nest) -> dict[Stage, Layout]:
    """How the columns' operand of each dot lies."""
    dots = (s for s in nest.stages if s in nest.products or nest.role[s] is Role.DOT)
    return {stage: layout_of(group, nest, stage) for stage in dots}


def layout_of(group: Group, nest: Nest, stage: Stage) -> Layout:
    """The layout of the columns' operand of a dot. Lane 4 g + t of a warp reads, of a product,
    neighbours that are summed over, at column g; of a sum along the columns, neighbouring results
    at column 2 t. The strides keep the lanes of an access in different banks."""
    element = element_of(stage)
    item = item_bytes(element)
    if stage in nest.products:
        unit, size = TENSOR_LANES, group.inner_size(stage)
    else:
        unit, size = TENSOR_COLUMNS, results_per_row(group, nest, stage)
    least = max(1, 8 // item // (2 if unit == TENSOR_COLUMNS else 1))
    widths = [w for w in (8, 4, 2, 1) if least <= w <= ACCESS_BYTES // item]
    width = min(widths, key=lambda w: -(-size // (unit * w)) * unit * w)
    row = -(-size // (unit * width)) * unit * width
    access = width * item
    step, rest = (8 * access, 4 * access) if unit == TENSOR_LANES else (32, 16)
    stride = row * item
    stride += (rest - stride) % step
    lot = width if element == "f32" else _lot(width, size, stride // item, item)
    return Layout(element, width, row, stride // item, lot)


def _lot(width: int, size: int, stride: int, item: int) -> int:
    """How many of `size` elements of a column a thread copies at a time, at least `width`: as many
    as an access has, if that divides columns and what lies between them. (Not floats with all
    bits, whose products leave no registers for that.)"""
    lot = width
    while 2 * lot * item <= ACCESS_BYTES and size % (2 * lot) == 0 == stride % (2 * lot):
        lot *= 2
    return lot


def element_of(dot: Stage) -> str:
    """The element type in which tensor cores read a dot's operands."""
    types = {o.dtype for o in dot.op.operands}
    if annotations_of(dot.op).tf32:
        return TF32
    return types.pop() if len(types) == 1 and types <= WORKING_REGISTERS.keys() else "f32"
