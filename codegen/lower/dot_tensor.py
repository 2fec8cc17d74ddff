"""Emission of a tiled nest whose dots run on tensor cores (device functions: cuda/mma.cuh).

A warp holds 16 rows. Lane 4 g + t holds of the rows g and g + 8 the columns 2 t and 2 t + 1 of
every 8: what the instruction leaves there, and, with the summed indices of a dot along the columns
taken in that order, what the next one wants there. So scores stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusionstitch.codegen.dots.tile import (
    TENSOR_COLUMNS,
    TENSOR_ROWS,
    row_operand,
)
from fusionstitch.codegen.ir.expressions import (
    Expr,
    Integer,
    Name,
    Number,
    all_of,
    behind,
    element,
    infix,
)
from fusionstitch.codegen.ir.statements import ALL, Assign, Call
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.dot_operands import NONE, OperandEmitter
from fusionstitch.codegen.lower.sweeps import Key, start_of
from fusionstitch.codegen.places.index import Index, render, variable
from fusionstitch.codegen.places.maps import Indices
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Op

#: Rows of half a tile, each with a group of four lanes.
GROUPS = 8
#: Instructions of the tensor cores, two to a step, up to which a dot is unrolled as a whole.
UNROLLED = 64


class TensorEmitter(OperandEmitter):
    """Prints a nest in tiles of 16 rows per warp."""

    pairs = 2

    def _bind_lanes(self, lane: Expr | None) -> None:
        assert lane is not None
        super()._bind_lanes(infix("%", lane, self.lanes))
        name = self.writer.declare(self.writer.name("group"))
        self.writer.let("int", name, infix("/", lane, self.lanes))
        self.member = variable(self.lane, self.lanes)
        self.four = variable(name, GROUPS)

    def _row_place(self, unit: Index) -> Index:
        return unit * TENSOR_ROWS + self.four * self.rows + self.row

    def _column_place(self) -> Index:
        place = self.step * TENSOR_COLUMNS + self.member * self.pairs + self.pair
        return place * self.lot + self.next

    def _own_column(self) -> Expr:
        return Integer(self._column_place())

    # ---- a dot whose results are the elements of the rows ---------------------------------------

    def _summed(self, block: Index) -> Index:
        part = block * self.shape.shares + self.share
        return (part * self.lanes + self.member) * self.run + self.near

    def _add_product(self, stage: Stage, index: Indices, name: str, started: bool) -> None:
        depth = self.group.group.inner_size(stage)
        summed = self.shape.together * self.shape.shares
        block = variable(self.writer.name("k"), -(-depth // summed))
        few = block.hi * self.steps * self.run < 2 * UNROLLED
        with self._loop(block, ALL if few else 4):
            place = self._summed(block)
            first = self._side_of_rows(stage)
            left = self._operand(stage, first, self.row, place, depth)
            half = variable(self.writer.name("half"), self.run // 2)
            with self._loop(self.step):
                # the column that a lane loads for its warp is that of its group
                column = (self.step * TENSOR_COLUMNS + self.four) * self.lot + self.next
                self._bind_read_column(column)
                right = self._operand(stage, 1 - first, self.next, place, depth)
                with self._loop(half), self._loop(self.next):
                    function = "fs_mma" if started else "fs_mma_first"
                    top = self.step * self.pairs * self.lot + self.next
                    sums = behind(Name(name), top), behind(Name(name), top + self.steps)
                    upper = behind(Name(left), half * 2 * self.rows)
                    lower = behind(Name(right), self.next * self.run + half * 2)
                    self._multiply(function, stage, first, (*sums, upper, lower))

    def _side_of_rows(self, stage: Stage) -> int:
        side = row_operand(self.group.group, self.nest, stage)
        assert side is not None
        return side

    def _start_product(self, stage: Stage) -> Number | None:
        once = self.run == 2 and self.group.group.inner_size(stage) <= (
            self.shape.together * self.shape.shares
        )
        return None if once else super()._start_product(stage)

    def _multiply(
        self, function: str, stage: Stage, first: int, arguments: tuple[Expr, ...]
    ) -> None:
        operands = stage.op.operands
        parts = f"{_parts(operands[first])}, {_parts(operands[1 - first])}"
        parts += f", {self.lot}" if self.lot > 1 else ""
        self.writer.add(Call(f"{function}<{parts}>", arguments))

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
                term = element(terms[stage], self.pair * self.rows + self.row)
                self._add(stage, element(total, self.row), term)
        for stage, partial in results.items():
            first = self._side_of_rows(stage)
            self._bind_column(self.column)
            self._bind_results(stage)
            weight = weights[self._read(stage, first)]
            held = self._results(stage)
            tile = variable(self.writer.name("n"), held // 2)
            with self._loop(tile):
                right = self._values_of(stage, 1 - first, tile)
                sums = behind(Name(partial), tile * 2), behind(Name(partial), tile * 2 + held)
                self._multiply("fs_mma", stage, first, (*sums, Name(weight), Name(right)))

    def _values_of(self, stage: Stage, side: int, tile: Index) -> str:
        """Loads a lane's part of what a dot along the columns weighs."""
        writer, inner = self.writer, self.plan.inner
        size = self.axes.size(self._free_leaves(stage))
        beyond = inner % TENSOR_COLUMNS or size % TENSOR_COLUMNS
        name = self._array(stage.op.operands[side], "_part", 2, NONE if beyond else None)
        with self._loop(self.pair):
            column = render(self.column)
            writer.let("int", column, self._own_column())
            writer.declare(column)
            self._bind_column(self.column)
            free = writer.declare(self.result)
            writer.let("int", free, Integer(tile * TENSOR_COLUMNS + self.four))
            self._bind_results(stage)
            checks = [infix("<", Name(column), inner)] if inner % TENSOR_COLUMNS else []
            checks += [infix("<", Name(free), size)] if size % TENSOR_COLUMNS else []
            with self._guarded(all_of(checks)):
                source, at = self._read(stage, side)
                writer.add(Assign(element(name, self.pair), self.values.value(source, at)))
        return name

    def _finish_results(self, stage: Stage, partial: str) -> None:
        self.sums[stage] = partial
        if self._wanted(stage):
            self._results_of([stage])

    @contextmanager
    def _each_result(self, dot: Stage, size: int) -> Iterator[tuple[Index, Index]]:
        held = self._results(dot)
        own = variable(self.writer.name("n"), held // 2)
        with self._loop(own), self._loop(self.pair):
            result = own * TENSOR_COLUMNS + self.member * 2 + self.pair
            with self._existing(result, size) as existing:
                yield self.row * held + own * 2 + self.pair, existing


def _parts(op: Op) -> int:
    """The tf32 numbers that make up an element: one holds an f16 or bf16."""
    return 1 if c_type(op.dtype).storage in ("f16", "bf16") else 2
