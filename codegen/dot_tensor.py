"""Emission of a tiled nest whose dots run on tensor cores (device functions: cuda/mma.cuh).

A warp holds 16 rows. Lane 4 g + t holds of the rows g and g + 8 the columns 2 t and 2 t + 1 of
every 8: what the instruction leaves there, and, with the summed indices of a dot along the columns
taken in that order, what the next one wants there. So scores stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from codegen.dot_emitter import DotEmitter
from codegen.dot_tile import (
    TENSOR_COLUMNS,
    TENSOR_DEPTH,
    TENSOR_ROWS,
    row_operand,
)
from codegen.index import Index, delinearize, render, variable
from codegen.maps import Indices
from codegen.stages import Stage, body_reads
from codegen.sweeps import Key, start_of
from codegen.types import c_type
from codegen.vectors import Vector
from hlo.graph import Op

#: Rows of half a tile, each with a group of four lanes.
GROUPS = 8
#: Instructions of the tensor cores, two to a step, up to which a dot is unrolled as a whole.
UNROLLED = 64


class TensorEmitter(DotEmitter):
    """Prints a nest in tiles of 16 rows per warp."""

    pairs = 2

    def _bind_lanes(self, lane: str) -> None:
        super()._bind_lanes(f"{lane} % {self.lanes}")
        name = self.writer.declare(self.writer.name("group"))
        self.writer.line(f"const int {name} = {lane} / {self.lanes};")
        self.member = variable(self.lane, self.lanes)
        self.four = variable(name, GROUPS)

    def _row_place(self, unit: Index) -> Index:
        return unit * TENSOR_ROWS + self.row * GROUPS + self.four

    def _column_text(self) -> str:
        return render(self.step * TENSOR_COLUMNS + self.member * 2 + self.pair)

    # ---- a dot whose results are the elements of the rows ---------------------------------------

    def _add_product(self, stage: Stage, index: Indices, name: str, started: bool) -> None:
        depth = self.group.group.inner_size(stage)
        shares = self.shape.shares
        block = variable(self.writer.name("k"), -(-depth // (TENSOR_DEPTH * shares)))
        few = block.hi * self.steps < UNROLLED
        with self._loop(block, "FS_UNROLL " if few else "FS_UNROLL_BY(4) "):
            part = block * shares + self.share
            place = part * TENSOR_DEPTH + self.member * 2 + self.pair
            first = row_operand(self.group.group, self.nest, stage)
            assert first is not None
            left = self._operand(stage, first, self.rows, place, depth)
            with self._loop(self.step):
                self._bind_other_column(stage)
                right = self._operand(stage, 1 - first, 1, place, depth)
                top = render(self.step * 2)
                bottom = render(self.step * 2 + self.steps)
                function = "fs_mma" if started else "fs_mma_first"
                self._multiply(function, stage, first, (name, top, bottom), left, right)

    def _start_product(self, stage: Stage) -> str:
        single = self.group.group.inner_size(stage) <= TENSOR_DEPTH * self.shape.shares
        return "" if single else super()._start_product(stage)

    def _bind_other_column(self, stage: Stage) -> None:
        """The column a lane loads for its warp: that of its group."""
        column, place = self.column, self.step * TENSOR_COLUMNS + self.four
        if not self.step.terms:  # no loop whose block would keep the name apart
            column = variable(self.writer.name("column"), self.plan.inner)
        name, text = render(column), render(place)
        if self.plan.inner % TENSOR_COLUMNS:
            text = f"fs_min<int>({text}, {self.plan.inner - 1})"
        self.writer.line(f"const int {name} = {text};")
        self.writer.declare(name)
        self._bind_column(column)

    def _operand(self, stage: Stage, side: int, rows: int, place: Index, depth: int) -> str:
        """Loads a lane's part of an operand: the summed indices `place`, nothing beyond `depth`."""
        op = stage.op.operands[side]
        beyond = depth % (TENSOR_DEPTH * self.shape.shares) != 0
        together = depth % self.pairs == 0  # both of a pair are there, or none
        name = self._array(op, "_part", 2 * rows, "0.0f" if beyond else "")
        leaves = self.axes.inner_leaves(stage)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        with self._rows() if rows > 1 else nullcontext(), ExitStack() as guarded:
            if beyond and together:
                place = self._pair_below(place, depth, guarded)
            [lane] = self.pair.variables
            self.vector = Vector(self.pairs, lane, self.writer.depth)
            with self._loop(self.pair), self._existing(place, depth) as summed:
                self.digits |= dict(zip(leaves, delinearize(summed, extents), strict=True))
                self._fill(stage, side, name, rows)
            self.vector = None
        return name

    def _pair_below(self, place: Index, depth: int, guarded: ExitStack) -> Index:
        """`place`, the first or second of a pair, below `depth`; what is beyond is left out."""
        name = self.writer.declare(self.writer.name("depth"))
        self.writer.line(f"const int {name} = {render((place - self.pair) // self.pairs)};")
        guarded.enter_context(self._guarded(f"if ({name} < {depth // self.pairs})"))
        return variable(name, depth // self.pairs) * self.pairs + self.pair

    def _fill(self, stage: Stage, side: int, name: str, rows: int) -> None:
        source, at = body_reads(stage.op, self._index(stage), self._inner(stage))[side]
        place = self.pair * rows + (self.row if rows > 1 else Index())
        self.writer.line(f"{name}[{render(place)}] = {self.values.value(source, at)};")

    def _multiply(
        self,
        function: str,
        stage: Stage,
        first: int,
        result: tuple[str, str, str],
        left: str,
        right: str,
    ) -> None:
        operands = stage.op.operands
        parts = f"{_parts(operands[first])}, {_parts(operands[1 - first])}"
        name, top, bottom = result
        rows = f"{name} + {top}, {name} + {bottom}"
        self.writer.line(f"{function}<{parts}>({rows}, {left}, {right});")

    # ---- a dot along the columns ----------------------------------------------------------------

    def _add_terms(self, results: dict[Stage, str], weights: dict[Key, str]) -> None:
        """Nothing column by column."""

    def _terms(self, totals: dict[Stage, str]) -> dict[Stage, str]:
        # a maximum between two loads would keep the compiler from making one of them
        size = self.pairs * self.rows
        return {s: self._array(s.op, "_term", size, start_of(s)) for s in totals}

    def _add_tiles(
        self,
        totals: dict[Stage, str],
        terms: dict[Stage, str],
        results: dict[Stage, str],
        weights: dict[Key, str],
    ) -> None:
        for stage, total in totals.items():
            with self._loop(self.pair), self._loop(self.row):
                term = f"{terms[stage]}[{render(self.pair * self.rows + self.row)}]"
                self._add(stage, f"{total}[{render(self.row)}]", term)
        for stage, partial in results.items():
            first = row_operand(self.group.group, self.nest, stage)
            assert first is not None
            self._bind_column(self.column)
            self._bind_results(stage)
            weight = weights[body_reads(stage.op, self._index(stage), self._inner(stage))[first]]
            held = self._results(stage)
            tile = variable(self.writer.name("n"), held // 2)
            with self._loop(tile):
                right = self._values_of(stage, 1 - first, tile)
                top, bottom = render(tile * 2), render(tile * 2 + held)
                self._multiply("fs_mma", stage, first, (partial, top, bottom), weight, right)

    def _values_of(self, stage: Stage, side: int, tile: Index) -> str:
        """Loads a lane's part of what a dot along the columns weighs."""
        writer, inner = self.writer, self.plan.inner
        size = self.axes.size(self._free_leaves(stage))
        beyond = inner % TENSOR_COLUMNS or size % TENSOR_COLUMNS
        name = self._array(stage.op.operands[side], "_part", 2, "0.0f" if beyond else "")
        with self._loop(self.pair):
            column = render(self.column)
            writer.line(f"const int {column} = {self._column_text()};")
            writer.declare(column)
            self._bind_column(self.column)
            free = writer.declare(self.result)
            writer.line(f"const int {free} = {render(tile * TENSOR_COLUMNS + self.four)};")
            self._bind_results(stage)
            checks = [f"{column} < {inner}"] if inner % TENSOR_COLUMNS else []
            checks += [f"{free} < {size}"] if size % TENSOR_COLUMNS else []
            with self._guarded(f"if ({' && '.join(checks)})" if checks else ""):
                self._fill(stage, side, name, 1)
        return name

    def _finish_results(self, stage: Stage, partial: str) -> None:
        self.sums[stage] = partial
        if self._wanted(stage):
            self._results_of([stage])

    @contextmanager
    def _each_result(self, dot: Stage, size: int) -> Iterator[tuple[str, Index]]:
        held = self._results(dot)
        own = variable(self.writer.name("n"), held // 2)
        with self._loop(own), self._loop(self.pair):
            result = own * TENSOR_COLUMNS + self.member * 2 + self.pair
            with self._existing(result, size) as existing:
                yield render(self.row * held + own * 2 + self.pair), existing


def _parts(op: Op) -> int:
    """The tf32 numbers that make up an element: one holds an f16 or bf16."""
    return 1 if c_type(op.dtype).storage in ("f16", "bf16") else 2
