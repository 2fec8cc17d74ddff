"""Dots of a streamed nest: words of rows, in registers, by words of columns in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fusionstitch.codegen.dots.streams import item_bytes
from fusionstitch.codegen.dots.tile import TENSOR_COLUMNS, TENSOR_DEPTH, TENSOR_GROUPS
from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import Name, Number, pointer_at
from fusionstitch.codegen.ir.intrinsics import MMA_ACROSS, MMA_ALONG, PACK
from fusionstitch.codegen.ir.statements import Array, Call
from fusionstitch.codegen.ir.types import WORD, stored
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.column_blocks import ColumnBlocks, operand_words
from fusionstitch.codegen.lower.dot_operands import read
from fusionstitch.codegen.lower.dot_tensor import side_of_rows
from fusionstitch.codegen.lower.sums import zero_of
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.lower.tile_rows import TileRows

#: Columns of one step of a sweep: those that one instruction sums along, two lots of eight.
STEP_COLUMNS = 2 * TENSOR_COLUMNS


@dataclass(frozen=True)
class WordElements:
    """Elements of the rows in a block of columns; `words` are the rows' operands by dot, of those
    that are not read again for each block."""

    rows: TileRows
    blocks: ColumnBlocks
    words: Mapping[Stage, str]

    def start(self, dot: Stage) -> Number | None:
        return zero_of(dot.op)

    def add(self, dot: Stage, index: Indices, name: str, started: bool) -> None:
        rows, tile = self.rows, self.rows.tile
        layout = self.blocks.layouts[dot]
        blocks = layout.row // layout.width // tile.lanes
        block = variable(rows.writer.name("k"), blocks)
        lot = variable(rows.writer.name("n"), tile.columns // TENSOR_COLUMNS)
        with ExitStack() as opened:
            opened.enter_context(rows.loop(block, rows.walk.depth[dot]))
            if dot in self.words:
                words, upper = self.words[dot], block * layout.words
                lower = upper + blocks * layout.words
            else:
                words, upper = _row_words(rows, self.blocks, dot, block), Index()
                lower = upper + layout.words
            opened.enter_context(rows.loop(lot))
            column = (lot * TENSOR_COLUMNS + rows.four) * layout.stride
            offset = column + (block * tile.lanes + rows.member) * layout.width
            arguments = (
                pointer_at(Name(name), lot * 2),
                pointer_at(Name(name), lot * 2 + tile.steps),
                pointer_at(Name(words), upper),
                pointer_at(Name(words), lower),
                pointer_at(Name(self.blocks.arrays[dot]), offset),
            )
            rows.writer.add(Call(MMA_ALONG, (stored(layout.element), layout.words), arguments))


def row_words(rows: TileRows, blocks: ColumnBlocks) -> dict[Stage, str]:
    """The rows' operands of the dots that give elements: words in registers, the same for all
    columns; none where these are read again for each block."""
    if rows.tile.rereads:
        return {}
    found = {}
    for dot in rows.nest.products:
        layout = blocks.layouts[dot]
        block = variable(rows.writer.name("k"), layout.row // layout.width // rows.tile.lanes)
        found[dot] = _row_words(rows, blocks, dot, block)
    return found


def _row_words(rows: TileRows, blocks: ColumnBlocks, dot: Stage, block: Index) -> str:
    """Those of a dot: all that `block` counts, or in a loop over these, the current ones."""
    writer, side, layout = rows.writer, side_of_rows(rows, dot), blocks.layouts[dot]
    whole = not rows.tile.rereads
    words = (block.hi + 1 if whole else 1) * layout.words
    name = writer.name(f"{rows.label(dot.op.operands[side])}_words")
    writer.add(Array(WORD, name, rows.tile.rows * words))
    with ExitStack() as opened:
        opened.enter_context(rows.rows())
        if whole:
            opened.enter_context(rows.loop(block))
        unit = block * rows.tile.lanes + rows.member
        part = operand_words(rows, dot, side, unit, layout.width, None)
        to = pointer_at(Name(name), rows.row * words + (block * layout.words if whole else 0))
        writer.add(Call(PACK, (stored(layout.element), layout.width), (to, Name(part))))
    return name


@dataclass(frozen=True)
class WordSums:
    """Sums along the columns of a block: those of a step in one instruction."""

    rows: TileRows
    blocks: ColumnBlocks

    def size(self, dot: Stage) -> int:
        return self.blocks.layouts[dot].row // self.rows.tile.lanes

    def add_column(self, results: Mapping[Stage, str], weights: dict[Key, str]) -> None:
        """Nothing column by column."""

    def add_step(self, results: Mapping[Stage, str], weights: Mapping[Key, str]) -> None:
        rows = self.rows
        packed: dict[tuple[str, str], str] = {}
        for dot, partial in results.items():
            kind = self.blocks.layouts[dot].element
            rows.digits.bind_column(rows.column)
            rows.bind_results(dot)
            weight = weights[read(rows, dot, side_of_rows(rows, dot))]
            words = packed.get((weight, kind))
            if words is None:
                words = packed[weight, kind] = self._packed(weight, kind)
            self._add_across(dot, partial, words)

    def _packed(self, weight: str, dtype: str) -> str:
        """What a dot along the columns weighs with, as words: those of a row together."""
        writer, tile = self.rows.writer, self.rows.tile
        name = writer.name(f"{weight}_words")
        count = tile.pairs * tile.rows
        words = count * item_bytes(dtype) // 4
        writer.add(Array(WORD, name, words))
        writer.add(Call(PACK, (stored(dtype), count), (Name(name), Name(weight))))
        return name

    def _add_across(self, dot: Stage, partial: str, words: str) -> None:
        rows, layout, sums = self.rows, self.blocks.layouts[dot], self.size(dot)
        floats = layout.item == 4
        each = TENSOR_DEPTH if floats else STEP_COLUMNS
        lots = variable(rows.writer.name("n"), layout.row // layout.width // TENSOR_GROUPS)
        half = variable(rows.writer.name("half"), STEP_COLUMNS // each)
        with rows.loop(half), rows.loop(lots):
            column = rows.step * STEP_COLUMNS + half * each + rows.member * 2
            offset = column * layout.stride + (lots * TENSOR_GROUPS + rows.four) * layout.width
            top = lots * layout.width * 2
            upper = half * 2
            lower = upper + (rows.tile.pairs if floats else rows.tile.pairs // 2)
            arguments = (
                pointer_at(Name(partial), top),
                pointer_at(Name(partial), top + sums),
                pointer_at(Name(words), upper),
                pointer_at(Name(words), lower),
                pointer_at(Name(self.blocks.arrays[dot]), offset),
            )
            given = stored(layout.element), layout.words, layout.stride
            rows.writer.add(Call(MMA_ACROSS, given, arguments))

    def finish(self, dot: Stage, partial: str) -> None:
        """Nothing: the instructions leave each lane its share."""

    @contextmanager
    def each(self, dot: Stage, size: int) -> Iterator[tuple[Index, Index]]:
        rows, layout, sums = self.rows, self.blocks.layouts[dot], self.size(dot)
        lots = variable(rows.writer.name("n"), layout.row // layout.width // TENSOR_GROUPS)
        bit = variable(rows.writer.name("bit"), 2)
        lane = variable(rows.writer.name("v"), layout.width)
        with rows.loop(lots), rows.loop(bit), rows.access.elements.vector_loop(lane):
            result = (lots * TENSOR_GROUPS + rows.member * 2 + bit) * layout.width + lane
            with rows.existing(result, size) as existing:
                yield rows.row * sums + (lots * layout.width + lane) * 2 + bit, existing
