"""Dots in registers, a lane some columns of its rows: one summed element after the other, each
operand is read once per row, or once per column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fusionstitch.codegen.dots.tile import register_results, results_per_row
from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import Expr, Name, Number, element, infix, pointer_at
from fusionstitch.codegen.ir.intrinsics import SCATTER_LANES
from fusionstitch.codegen.ir.statements import Assign, Call
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.sums import zero_of
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.lower.tile_rows import TileRows


@dataclass(frozen=True)
class RowElements:
    """Elements of rows, one summed element at a time."""

    rows: TileRows

    def start(self, dot: Stage) -> Number | None:
        return zero_of(dot.op)

    def add(self, dot: Stage, index: Indices, name: str, started: bool) -> None:
        rows, writer = self.rows, self.rows.writer
        with self._depth(dot) as inner:
            once: dict[Key, str] = {}
            for source, at in body_reads(dot.op, index, inner):
                if not any(rows.column.variables & i.variables for i in at):
                    once[source, at] = rows.array(source, "_rows", rows.tile.rows)
            with rows.rows():
                for (source, at), array in once.items():
                    value = rows.values.value(source, at)
                    writer.add(Assign(element(array, rows.row), value))
            with rows.loop(rows.step), rows.columns(guarded=False), rows.rows(once):
                term = rows.values.accumulated(dot.op, index, inner)
                writer.add(Assign(element(name, rows.element_index()), term, "+"))

    @contextmanager
    def _depth(self, dot: Stage) -> Iterator[Indices]:
        """The loops over the summed index of a dot that runs inside each thread."""
        rows = self.rows
        leaves = rows.axes.inner_leaves(dot)
        depth, unrolled = rows.axes.size(leaves), rows.walk.depth[dot]
        outer = variable(rows.writer.name("k_block"), depth // unrolled)
        inner = variable(rows.writer.name("k"), unrolled)
        with rows.loop(outer, 0), rows.loop(inner):
            rows.digits.bind(leaves, outer * unrolled + inner)
            yield rows.digits.inner(dot)


@dataclass(frozen=True)
class LaneSums:
    """Sums along columns, each lane those of its own."""

    rows: TileRows

    def size(self, dot: Stage) -> int:
        return register_sums(self.rows, dot)

    def add_column(self, results: Mapping[Stage, str], weights: dict[Key, str]) -> None:
        rows = self.rows
        for stage, partial in results.items():
            free = rows.bind_results(stage)
            with rows.loop(free), rows.rows(weights):
                rows.know_elements()
                value = rows.values.accumulated(stage.op, *rows.digits.indices(stage))
                at = rows.row * self.size(stage) + free
                rows.writer.add(Assign(element(partial, at), value, "+"))

    def add_step(self, results: Mapping[Stage, str], weights: Mapping[Key, str]) -> None:
        """Nothing: columns are added one by one."""

    def finish(self, dot: Stage, partial: str) -> None:
        rows, lanes = self.rows, self.rows.tile.lanes
        if lanes == 1:
            return
        padded = self.size(dot)
        with rows.rows():
            first: Expr = Name(partial)
            at = pointer_at(first, rows.row * padded) if rows.tile.rows > 1 else first
            rows.writer.add(Call(SCATTER_LANES, (lanes, padded, "FsAdd"), (at,)))

    @contextmanager
    def each(self, dot: Stage, size: int) -> Iterator[tuple[Index, Index]]:
        rows, lanes, padded = self.rows, self.rows.tile.lanes, self.size(dot)
        share, group = max(1, padded // lanes), max(1, lanes // padded)
        own = variable(rows.writer.name("own"), share)
        leads = infix("==", infix("%", Name(rows.lane), group), 0)
        first = rows.guarded(leads if group > 1 else None)
        existing = rows.existing(rows.member // group * share + own, size)
        with first, rows.loop(own), existing as result:
            yield rows.row * padded + own, result


def register_sums(rows: TileRows, dot: Stage) -> int:
    """Results per row of a dot along the columns that a lane adds up."""
    return register_results(rows.tile, results_per_row(rows.group.group, rows.nest, dot))
