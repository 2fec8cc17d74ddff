"""Dots on tensor cores (device functions: cuda/mma.cuh).

A warp holds 16 rows. Lane 4 g + t holds columns 2 t and 2 t + 1 of every 8, of rows g and g + 8.
That is what the instruction leaves there. It is also what the next one needs there, if a dot along
the columns takes its summed indices in that order. So scores stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.dots.tile import TENSOR_COLUMNS, row_operand
from fusionstitch.codegen.index_maps.index import Index, render, variable
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import (
    Expr,
    Integer,
    Name,
    Number,
    all_of,
    element,
    infix,
    pointer_at,
)
from fusionstitch.codegen.ir.intrinsic import Intrinsic
from fusionstitch.codegen.ir.intrinsics import MMA, MMA_FIRST
from fusionstitch.codegen.ir.statements import Assign, Call
from fusionstitch.codegen.ir.types import INT
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.dot_operands import NONE, bind_read_column, operand, read
from fusionstitch.codegen.lower.dot_rows import register_sums
from fusionstitch.codegen.lower.sums import zero_of
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.lower.tile_rows import TileRows
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class TensorElements:
    """Elements of rows, in runs of summed elements."""

    rows: TileRows

    def start(self, dot: Stage) -> Number | None:
        return None if dot in self.rows.walk.once else zero_of(dot.op)

    def add(self, dot: Stage, index: Indices, name: str, started: bool) -> None:
        rows, tile = self.rows, self.rows.tile
        depth = rows.group.group.inner_size(dot)
        block = variable(rows.writer.name("k"), -(-depth // (tile.together * tile.shares)))
        with rows.loop(block, rows.walk.depth[dot]):
            part = block * tile.shares + rows.share
            summed = (part * tile.lanes + rows.member) * tile.run + rows.near
            first = side_of_rows(rows, dot)
            left = operand(rows, dot, first, rows.row, summed, depth)
            half = variable(rows.writer.name("half"), tile.run // 2)
            with rows.loop(rows.step):
                # the column that a lane loads for its warp is that of its group
                column = (rows.step * TENSOR_COLUMNS + rows.four) * tile.lot + rows.next
                bind_read_column(rows, column)
                right = operand(rows, dot, 1 - first, rows.next, summed, depth)
                with rows.loop(half), rows.loop(rows.next):
                    function = MMA if started else MMA_FIRST
                    top = rows.step * tile.pairs * tile.lot + rows.next
                    sums = pointer_at(Name(name), top), pointer_at(Name(name), top + tile.steps)
                    upper = pointer_at(Name(left), half * 2 * tile.rows)
                    lower = pointer_at(Name(right), rows.next * tile.run + half * 2)
                    _multiply(rows, function, dot, first, (*sums, upper, lower))


@dataclass(frozen=True)
class TensorSums:
    """Sums along columns: those of a step in one instruction."""

    rows: TileRows

    def size(self, dot: Stage) -> int:
        return register_sums(self.rows, dot)

    def add_column(self, results: Mapping[Stage, str], weights: dict[Key, str]) -> None:
        """Nothing column by column."""

    def add_step(self, results: Mapping[Stage, str], weights: Mapping[Key, str]) -> None:
        rows = self.rows
        for stage, partial in results.items():
            first = side_of_rows(rows, stage)
            rows.digits.bind_column(rows.column)
            rows.bind_results(stage)
            weight = weights[read(rows, stage, first)]
            count = self.size(stage)
            tile = variable(rows.writer.name("n"), count // 2)
            with rows.loop(tile):
                right = self._values_of(stage, 1 - first, tile)
                sums = (
                    pointer_at(Name(partial), tile * 2),
                    pointer_at(Name(partial), tile * 2 + count),
                )
                _multiply(rows, MMA, stage, first, (*sums, Name(weight), Name(right)))

    def _values_of(self, dot: Stage, side: int, tile: Index) -> str:
        """Loads a lane's part of what a dot along the columns weighs."""
        rows, writer, inner = self.rows, self.rows.writer, self.rows.plan.inner
        size = rows.axes.size(rows.free_leaves(dot))
        beyond = inner % TENSOR_COLUMNS or size % TENSOR_COLUMNS
        name = rows.array(dot.op.operands[side], "_part", 2, NONE if beyond else None)
        with rows.loop(rows.pair):
            column = render(rows.column)
            writer.let(INT, column, Integer(rows.column_index()))
            writer.declare(column)
            rows.digits.bind_column(rows.column)
            free = writer.declare(rows.result)
            writer.let(INT, free, Integer(tile * TENSOR_COLUMNS + rows.four))
            rows.bind_results(dot)
            checks = [infix("<", Name(column), inner)] if inner % TENSOR_COLUMNS else []
            checks += [infix("<", Name(free), size)] if size % TENSOR_COLUMNS else []
            with rows.guarded(all_of(checks)):
                source, at = read(rows, dot, side)
                writer.add(Assign(element(name, rows.pair), rows.values.value(source, at)))
        return name

    def finish(self, dot: Stage, partial: str) -> None:
        """Nothing: the instructions leave each lane its share."""

    @contextmanager
    def each(self, dot: Stage, size: int) -> Iterator[tuple[Index, Index]]:
        rows, sums = self.rows, self.size(dot)
        own = variable(rows.writer.name("n"), sums // 2)
        with rows.loop(own), rows.loop(rows.pair):
            result = own * TENSOR_COLUMNS + rows.member * 2 + rows.pair
            with rows.existing(result, size) as existing:
                yield rows.row * sums + own * 2 + rows.pair, existing


def side_of_rows(rows: TileRows, dot: Stage) -> int:
    """The operand of a dot (0 or 1) that follows the rows."""
    side = row_operand(rows.group.group, rows.nest, dot)
    assert side is not None
    return side


def _multiply(
    rows: TileRows, function: Intrinsic, dot: Stage, first: int, arguments: tuple[Expr, ...]
) -> None:
    operands, lot = dot.op.operands, rows.tile.lot
    parts = _parts(dot.op, operands[first]), _parts(dot.op, operands[1 - first])
    rows.writer.add(Call(function, (*parts, lot) if lot > 1 else parts, arguments))


def _parts(dot: Op, operand: Op) -> int:
    """The tf32 numbers that make up an element of an operand: one holds an f16 or bf16, or an f32
    that is rounded."""
    return 1 if operand.dtype in ("f16", "bf16") or annotations_of(dot).tf32 else 2
