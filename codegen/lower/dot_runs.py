"""Dots in registers, a lane some columns of its rows: a run of summed elements at a time."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import variable
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import Number, element
from fusionstitch.codegen.ir.statements import Assign
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.dot_operands import (
    bind_read_column,
    bind_summed,
    operand,
    part_index,
    read,
)
from fusionstitch.codegen.lower.sums import zero_of
from fusionstitch.codegen.lower.tile_rows import TileRows


@dataclass(frozen=True)
class RunElements:
    """Elements of rows whose operands are loaded in runs and lots."""

    rows: TileRows

    def start(self, dot: Stage) -> Number | None:
        return zero_of(dot.op)

    def add(self, dot: Stage, index: Indices, name: str, started: bool) -> None:
        rows, tile, writer = self.rows, self.rows.tile, self.rows.writer
        depth = rows.group.group.inner_size(dot)
        rounds = variable(writer.name("k"), depth // (tile.run * tile.shares))
        with rows.loop(rounds, rows.walk.depth[dot]):
            summed = (rounds * tile.shares + rows.share) * tile.run + rows.near
            rows.digits.bind_column(rows.column)
            bind_summed(rows, dot, summed)
            _, at = read(rows, dot, 0)
            # the side of the rows does not change with the column
            first = int(any(rows.column.variables & i.variables for i in at))
            left = operand(rows, dot, first, rows.row, summed, depth)
            with rows.loop(rows.step):
                bind_read_column(rows, rows.column_index())
                right = operand(rows, dot, 1 - first, rows.next, summed, depth)
                parts = {first: (left, rows.row), 1 - first: (right, rows.next)}
                with rows.loop(rows.near), rows.loop(rows.next), rows.rows():
                    for side, (array, other) in parts.items():
                        source, at = read(rows, dot, side)
                        part = element(array, part_index(rows, other))
                        writer.block.memo[source.id, at] = part
                    term = rows.values.accumulated(dot.op, *rows.digits.indices(dot))
                    writer.add(Assign(element(name, rows.element_index()), term, "+"))
