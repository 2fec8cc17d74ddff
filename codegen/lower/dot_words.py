"""Operands of a streamed nest as words: from memory to shared memory and registers, and products
(device functions: cuda/fragments.cuh).

The threads of a block copy the columns' operands of the next block of columns to shared memory;
each warp multiplies its 16 rows with what lies there. Neighbouring elements share a word, and a
lane reads several words at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from fusionstitch.codegen.dots.streams import Layout, layouts_of
from fusionstitch.codegen.dots.tile import TENSOR_COLUMNS, TENSOR_DEPTH
from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Expr,
    Integer,
    Name,
    Number,
    all_of,
    behind,
    element,
    infix,
)
from fusionstitch.codegen.ir.statements import ALL, Array, Assign, Call, Shared
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.dot_operands import NONE
from fusionstitch.codegen.lower.dot_tensor import GROUPS, TensorEmitter
from fusionstitch.codegen.lower.sweeps import Key, zero_of
from fusionstitch.codegen.memory.rooms import Room
from fusionstitch.codegen.places.index import Index, delinearize, render, variable
from fusionstitch.codegen.places.maps import Indices

#: Columns of one step of a sweep: those that one instruction sums along, two lots of eight.
STEP_COLUMNS = 2 * TENSOR_COLUMNS
#: Rounds of copies of a thread that are under way at once.
UNROLLED_ROUNDS = 4


class WordsEmitter(TensorEmitter):
    """Prints the products of a nest whose columns are walked block by block."""

    pairs = 4
    together = True

    def _bind_columns(self) -> None:
        """Names what the blocks of columns are read from, and loads the rows' operands."""
        self.columns = self.shape.columns
        blocks = -(-self.plan.inner // self.columns)
        self.column_block = variable(self.writer.name("block"), blocks)
        self._bind_column(self.column)
        self.layouts = layouts_of(self.group.group, self.nest)
        self.places = {s: self._shared_place(s, layout) for s, layout in self.layouts.items()}
        self.row_words = {s: self._row_words(s) for s in self.nest.products}

    def _shared_place(self, stage: Stage, layout: Layout) -> str:
        source = stage.op.operands[1 - self._side_of_rows(stage)]
        name = self.writer.name(f"{self.label(source)}_block")
        slot, size = self.memory.rooms[Room(self.plan, (stage,))], self.columns * layout.stride
        self.writer.add(Shared(layout.element, name, slot.offset, size, layout.item))
        return name

    # ---- columns ---------------------------------------------------------------------------------

    def _column_place(self) -> Index:
        """The lane's column in the current step."""
        first = self.column_block * self.columns + self.step * STEP_COLUMNS
        return first + self.pair // 2 * TENSOR_COLUMNS + self.member * 2 + self.pair % 2

    def _own_column(self) -> Expr:
        return Integer(self._column_place())

    def _place_in_step(self) -> Index:
        return self.row * self.pairs + self.pair

    def _copy_columns(self, results: dict[Stage, str]) -> None:
        """Copies what the dots read along the next columns to shared memory."""
        self.writer.note(f"// the next {self.columns} columns")
        for stage, place in self.places.items():
            if stage in results or stage in self.nest.products:
                self._copy(stage, self.layouts[stage], place)

    def _copy(self, stage: Stage, layout: Layout, place: str) -> None:
        writer, units = self.writer, layout.row // layout.width
        count = self.columns * units
        rounds = variable(writer.name("round"), -(-count // self.block))
        with ExitStack() as opened:
            few = rounds.hi < UNROLLED_ROUNDS
            opened.enter_context(self._loop(rounds, ALL if few else UNROLLED_ROUNDS))
            item = variable(writer.name("i"), count)
            name = render(item)
            later = infix("+", Integer(rounds * self.block), THREAD)
            writer.let("int", name, later if rounds.terms else THREAD)
            writer.declare(name)
            if count % self.block:
                opened.enter_context(self._guarded(infix("<", Name(name), count)))
            column, unit = item // units, item % units
            side = 1 - self._side_of_rows(stage)
            size, leaves = self._along(stage)
            place_of = self.column_block * self.columns + column
            part = self._part(stage, side, unit, size, leaves, layout.width, place_of)
            to = behind(Name(place), column * layout.stride + unit * layout.width)
            store = f"fs_store_packed<{layout.element}, {layout.width}>"
            writer.add(Call(store, (to, Name(part))))

    def _along(self, stage: Stage) -> tuple[int, list[int]]:
        """What lies together of a dot's columns' operand: its extent and axes."""
        if stage in self.nest.products:
            return self.group.group.inner_size(stage), self.axes.inner_leaves(stage)
        leaves = self._free_leaves(stage)
        return self.axes.size(leaves), leaves

    def _part(
        self,
        stage: Stage,
        side: int,
        unit: Index,
        size: int,
        leaves: Sequence[int],
        width: int,
        column: Index | None,
        target: str = "",
    ) -> str:
        """Computes `width` neighbouring elements of an operand of a dot, the `unit`-th lot of
        `size`; zeros beyond them and beyond the last column."""
        writer, op = self.writer, stage.op.operands[side]
        checks: list[Expr] = []
        lines: list[tuple[str, Index]] = []
        if column is not None:
            column = self._within(column, self.plan.inner, "column", checks, lines)
        beyond = unit.hi * width + width > size
        if beyond and size % width == 0:
            unit = self._within(unit, size // width, "unit", checks, lines)
        ragged = beyond and size % width != 0
        name = self._array(op, "_part", width, NONE if checks or ragged else None)
        for variable_name, value in lines:
            writer.let("int", variable_name, Integer(value))
            writer.declare(variable_name)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        with self._guarded(all_of(checks)):
            if column is not None:
                self._bind_column(column)
            self.width, self._element = width, variable("v", width)
            with self._vector_loop() as lane:
                inner_checks: list[Expr] = []
                inner_lines: list[tuple[str, Index]] = []
                place = unit * width + lane
                if ragged:
                    place = self._within(place, size, "place", inner_checks, inner_lines)
                for variable_name, value in inner_lines:
                    writer.let("int", variable_name, Integer(value))
                    writer.declare(variable_name)
                self.digits |= dict(zip(leaves, delinearize(place, extents), strict=True))
                with self._guarded(all_of(inner_checks)):
                    source, at = self._read(stage, side)
                    writer.add(Assign(element(name, lane), self.values.value(source, at)))
            self.width, self._element = 1, Index()
        return name

    def _within(
        self,
        place: Index,
        limit: int,
        wanted: str,
        checks: list[Expr],
        lines: list[tuple[str, Index]],
    ) -> Index:
        """`place` as a number below `limit`, with the check of that where it is needed."""
        if place.hi < limit:
            return place
        name = self.writer.name(wanted)
        lines.append((name, place))
        checks.append(infix("<", Name(name), limit))
        return variable(name, limit)

    def _buffer(self, name: str) -> Expr:
        if self.vector is not None:
            return Name(name)  # a vector is aligned anyway
        return super()._buffer(name)

    # ---- dots ------------------------------------------------------------------------------------

    def _row_words(self, stage: Stage) -> str:
        """The rows' operand of a product: words in registers, the same for all columns."""
        writer, side = self.writer, self._side_of_rows(stage)
        layout = self.layouts[stage]
        blocks = layout.row // layout.width // self.lanes
        words = blocks * layout.words
        name = writer.name(f"{self.label(stage.op.operands[side])}_words")
        writer.add(Array("uint32_t", name, self.rows * words))
        size, leaves = self._along(stage)
        block = variable(writer.name("k"), blocks)
        with self._rows(), self._loop(block):
            unit = block * self.lanes + self.member
            part = self._part(stage, side, unit, size, leaves, layout.width, None)
            to = behind(Name(name), self.row * words + block * layout.words)
            writer.add(Call(f"fs_pack<{layout.element}, {layout.width}>", (to, Name(part))))
        return name

    def _start_product(self, stage: Stage) -> Number | None:
        return zero_of(stage.op)

    def _add_product(self, stage: Stage, index: Indices, name: str, started: bool) -> None:
        layout, words = self.layouts[stage], self.row_words[stage]
        blocks = layout.row // layout.width // self.lanes
        block = variable(self.writer.name("k"), blocks)
        lot = variable(self.writer.name("n"), self.columns // TENSOR_COLUMNS)
        with self._loop(block), self._loop(lot):
            upper = block * layout.words
            lower = upper + blocks * layout.words
            column = (lot * TENSOR_COLUMNS + self.four) * layout.stride
            place = column + (block * self.lanes + self.member) * layout.width
            arguments = (
                behind(Name(name), lot * 2),
                behind(Name(name), lot * 2 + self.steps),
                behind(Name(words), upper),
                behind(Name(words), lower),
                behind(Name(self.places[stage]), place),
            )
            call = f"fs_mma_along<{layout.element}, {layout.words}>"
            self.writer.add(Call(call, arguments))

    def _add_tiles(
        self,
        totals: dict[Stage, str],
        terms: dict[Stage, str],
        results: dict[Stage, str],
        weights: dict[Key, str],
    ) -> None:
        packed: dict[tuple[str, str], str] = {}
        for stage, partial in results.items():
            layout = self.layouts[stage]
            self._bind_column(self.column)
            self._bind_results(stage)
            weight = weights[self._read(stage, self._side_of_rows(stage))]
            words = packed.get((weight, layout.element))
            if words is None:
                words = packed[weight, layout.element] = self._packed(weight, layout.element)
            self._add_across(stage, partial, words)

    def _packed(self, weight: str, kind: str) -> str:
        """What a dot along the columns weighs with, as words: those of a row together."""
        name = self.writer.name(f"{weight}_words")
        count = self.pairs * self.rows
        words = count if kind == "float" else count // 2
        self.writer.add(Array("uint32_t", name, words))
        self.writer.add(Call(f"fs_pack<{kind}, {count}>", (Name(name), Name(weight))))
        return name

    def _add_across(self, stage: Stage, partial: str, words: str) -> None:
        layout, held = self.layouts[stage], self._results(stage)
        floats = layout.element == "float"
        each = TENSOR_DEPTH if floats else STEP_COLUMNS
        lots = variable(self.writer.name("n"), layout.row // layout.width // GROUPS)
        half = variable(self.writer.name("half"), STEP_COLUMNS // each)
        with self._loop(half), self._loop(lots):
            column = self.step * STEP_COLUMNS + half * each + self.member * 2
            place = column * layout.stride + (lots * GROUPS + self.four) * layout.width
            top = lots * layout.width * 2
            upper = half * 2
            lower = upper + (self.pairs if floats else self.pairs // 2)
            arguments = (
                behind(Name(partial), top),
                behind(Name(partial), top + held),
                behind(Name(words), upper),
                behind(Name(words), lower),
                behind(Name(self.places[stage]), place),
            )
            call = f"fs_mma_across<{layout.element}, {layout.words}, {layout.stride}>"
            self.writer.add(Call(call, arguments))

    # ---- results ---------------------------------------------------------------------------------

    def _results(self, stage: Stage) -> int:
        return self.layouts[stage].row // self.lanes

    @contextmanager
    def _each_result(self, dot: Stage, size: int) -> Iterator[tuple[Index, Index]]:
        layout, held = self.layouts[dot], self._results(dot)
        lots = variable(self.writer.name("n"), layout.row // layout.width // GROUPS)
        bit = variable(self.writer.name("bit"), 2)
        self.width, self._element = layout.width, variable("v", layout.width)
        with self._loop(lots), self._loop(bit), self._vector_loop() as lane:
            result = (lots * GROUPS + self.member * 2 + bit) * layout.width + lane
            with self._existing(result, size) as existing:
                yield self.row * held + (lots * layout.width + lane) * 2 + bit, existing
        self.width, self._element = 1, Index()
