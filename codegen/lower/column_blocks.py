"""The columns' operands of a streamed nest in shared memory (device functions: cuda/fragments.cuh).

The threads of a block copy the operands of the next block of columns there; each warp multiplies
its 16 rows with what lies there. Neighbouring elements share a word, and a lane reads several words
at once.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import ExitStack

from fusionstitch.codegen.dots.streams import Layout, layouts_of
from fusionstitch.codegen.index_maps.index import Index, render, variable
from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Expr,
    Integer,
    Name,
    all_of,
    element,
    infix,
    pointer_at,
)
from fusionstitch.codegen.ir.intrinsics import STORE_PACKED
from fusionstitch.codegen.ir.statements import Assign, Call, Shared
from fusionstitch.codegen.ir.types import INT, stored
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.dot_operands import NONE, read
from fusionstitch.codegen.lower.dot_tensor import side_of_rows
from fusionstitch.codegen.lower.tile_rows import TileRows
from fusionstitch.codegen.memory.exchange_scratch import ExchangeBuffer


class ColumnBlocks:
    """Where the columns' operands of the current block lie, by dot."""

    def __init__(self, rows: TileRows):
        self.rows, self.columns = rows, rows.tile.columns
        blocks = -(-rows.plan.inner // self.columns)
        rows.column_block = variable(rows.writer.name("block"), blocks)
        rows.digits.bind_column(rows.column)
        self.layouts = layouts_of(rows.group.group, rows.nest)
        self.arrays = {s: self._shared_array(s, layout) for s, layout in self.layouts.items()}

    def _shared_array(self, dot: Stage, layout: Layout) -> str:
        rows = self.rows
        source = dot.op.operands[1 - side_of_rows(rows, dot)]
        name = rows.writer.name(f"{rows.label(source)}_block")
        allocation = rows.access.memory.exchanges[ExchangeBuffer(rows.plan, (dot,))]
        size = self.columns * layout.stride
        rows.writer.add(Shared(stored(layout.element), name, allocation.offset, size))
        return name

    def copy(self, results: Container[Stage]) -> None:
        """Copies what the dots read along the next columns to shared memory: those that give
        elements, and of the others `results`."""
        writer = self.rows.writer
        writer.note(f"// the next {self.columns} columns")
        for dot, array in self.arrays.items():
            if dot in results or dot in self.rows.nest.products:
                self._copy(dot, self.layouts[dot], array)

    def _copy(self, dot: Stage, layout: Layout, array: str) -> None:
        rows, writer, units = self.rows, self.rows.writer, layout.row // layout.lot
        count = self.columns * units
        rounds = variable(writer.name("round"), -(-count // rows.block))
        with ExitStack() as opened:
            opened.enter_context(rows.loop(rounds, rows.walk.copies[dot]))
            item = variable(writer.name("i"), count)
            name = render(item)
            later = infix("+", Integer(rounds * rows.block), THREAD)
            writer.let(INT, name, later if rounds.terms else THREAD)
            writer.declare(name)
            if count % rows.block:
                opened.enter_context(rows.guarded(infix("<", Name(name), count)))
            column, unit = item // units, item % units
            side = 1 - side_of_rows(rows, dot)
            number = rows.column_block * self.columns + column
            part = operand_words(rows, dot, side, unit, layout.lot, number)
            to = pointer_at(Name(array), column * layout.stride + unit * layout.lot)
            given = stored(layout.element), layout.lot
            writer.add(Call(STORE_PACKED, given, (to, Name(part))))


def operand_words(
    rows: TileRows, dot: Stage, side: int, unit: Index, width: int, column: Index | None
) -> str:
    """Computes `width` neighbouring elements of an operand of a dot, the `unit`-th lot of those
    that lie together, at a column (None: of the rows); zeros beyond them and beyond the last
    column."""
    writer, size, leaves = rows.writer, *_along(rows, dot)
    beyond = _Beyond(rows)
    if column is not None:
        column = beyond.within(column, rows.plan.inner, "column")
    outside = unit.hi * width + width > size
    ragged = outside and size % width != 0
    if outside and not ragged:
        unit = beyond.within(unit, size // width, "unit")
    filled = NONE if beyond.checks or ragged else None
    name = rows.array(dot.op.operands[side], "_part", width, filled)
    beyond.declare()
    with rows.guarded(all_of(beyond.checks)):
        if column is not None:
            rows.digits.bind_column(column)
        lane = variable(writer.name("v"), width)
        with rows.access.elements.vector_loop(lane):
            inner = _Beyond(rows)
            position = unit * width + lane
            if ragged:
                position = inner.within(position, size, "place")
            inner.declare()
            rows.digits.bind(leaves, position)
            with rows.guarded(all_of(inner.checks)):
                source, at = read(rows, dot, side)
                writer.add(Assign(element(name, lane), rows.values.value(source, at)))
    return name


def _along(rows: TileRows, dot: Stage) -> tuple[int, Sequence[int]]:
    """What lies together of a dot's columns' operand: its extent and axes."""
    if dot in rows.nest.products:
        return rows.group.group.inner_size(dot), rows.axes.inner_leaves(dot)
    leaves = rows.free_leaves(dot)
    return rows.axes.size(leaves), leaves


class _Beyond:
    """Numbers that may lie beyond a limit: their variables and the checks that they do not."""

    def __init__(self, rows: TileRows):
        self.writer = rows.writer
        self.checks: list[Expr] = []
        self._numbers: list[tuple[str, Index]] = []

    def within(self, index: Index, limit: int, hint: str) -> Index:
        """`index` as a number below `limit`, with the check of that where it is needed."""
        if index.hi < limit:
            return index
        name = self.writer.name(hint)
        self._numbers.append((name, index))
        self.checks.append(infix("<", Name(name), limit))
        return variable(name, limit)

    def declare(self) -> None:
        """Declares the variables in the current frame."""
        for name, index in self._numbers:
            self.writer.let(INT, name, Integer(index))
            self.writer.declare(name)
