"""The levels of a register tile: the values of its rows, dots that give its elements, sweeps along
all its rows, and what these sum up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.dots.tile import Kind
from fusionstitch.codegen.index_maps.index import renamed, render
from fusionstitch.codegen.ir.expressions import Expr, apply, element
from fusionstitch.codegen.ir.intrinsics import JOIN, REDUCE_LANES
from fusionstitch.codegen.ir.statements import Assign
from fusionstitch.codegen.loops.dot_nests import sums_of_dots
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.products import add_products
from fusionstitch.codegen.lower.strategies import Elements, Sums
from fusionstitch.codegen.lower.sums import functor_of, start_of, zero_of
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.lower.tile_parts import Parts
from fusionstitch.codegen.lower.tile_results import Results
from fusionstitch.codegen.lower.tile_rows import TileRows
from fusionstitch.codegen.schedule.walk import GROUP, RESULT, ROW, TEAM, TILED, UNIT

Arrays = dict[Stage, str]


@dataclass(frozen=True)
class Levels:
    """A tile's rows, how its dots are added up, and what they came to."""

    rows: TileRows
    elements: Elements
    sums: Sums
    parts: Parts
    results: Results

    @staticmethod
    def of(rows: TileRows, elements: Elements, sums: Sums) -> Levels:
        return Levels(rows, elements, sums, Parts(rows), Results(rows, sums))

    def level(self, level: int) -> None:
        """Values of each row, dots that give its elements, then one sweep along all rows."""
        rows, nest = self.rows, self.rows.nest
        self.row_values(level)
        stages, products = nest.at(level), nest.products
        dots = [s for s in stages if s in products]
        readers = [s for s in nest.stages if s not in products or rows.is_stored(s)]
        sums = sums_of_dots(dots, readers)
        inside = {dot for summed, total in sums for dot in summed if dot.op is not total}
        elsewhere = (Role.ROW, Role.RESULT)
        sweep = [s for s in stages if nest.role[s] not in elsewhere and s not in inside]
        if rows.walk.early:
            self.parts.load_early(sweep)
        for summed, total in sums:
            add_products(rows, self.elements, self.parts, summed, total)
        if not any(s not in products or rows.is_stored(s) for s in sweep):
            return
        totals, results = self.partials(sweep)
        if rows.tile.shares == 1 and rows.tile.lot == 1:
            at_end = totals if rows.tile.kind is Kind.TENSOR else ()
            self.sweep(level, sweep, totals, results, at_end)
        else:
            self._all_elements(sweep)
        for stage, partial in totals.items():
            self.finish_row(stage, partial)
        for stage, partial in results.items():
            self.results.finish(stage, partial)

    def row_values(self, level: int) -> None:
        """What is known of each row, and of each result per row, before a level."""
        for stage in self.rows.nest.at(level):
            if self.rows.nest.role[stage] is Role.ROW:
                self._row_value(stage)
        self.results.values(level)

    def _row_value(self, stage: Stage) -> None:
        rows = self.rows
        name = rows.array(stage.op, "_of", rows.tile.rows)
        index = rows.digits.index(stage)
        with rows.rows():
            own = element(name, rows.row)
            rows.writer.add(Assign(own, rows.values.computed(stage.op, index)[0]))
            rows.access.store(stage, own, rows.conditions())
        rows.row_arrays[stage.op, index] = name

    def partials(self, sweep: Sequence[Stage]) -> tuple[Arrays, Arrays]:
        """Arrays for the sums of rows and for the dots along the columns of a sweep."""
        rows, role, count = self.rows, self.rows.nest.role, self.rows.tile.rows
        totals = {
            s: rows.array(s.op, "_partial", count, start_of(s))
            for s in sweep
            if role[s] is Role.REDUCE
        }
        results = {
            s: rows.array(s.op, "_partial", count * self.sums.size(s), zero_of(s.op))
            for s in sweep
            if role[s] is Role.DOT
        }
        return totals, results

    # ---- one sweep ------------------------------------------------------------------------------

    def sweep(
        self,
        level: int,
        stages: Sequence[Stage],
        totals: Arrays,
        results: Arrays,
        at_end: Collection[Stage] = (),
    ) -> None:
        """All elements of the rows, step by step. What a step adds to the sums of `at_end` is added
        after it: a maximum between two loads would keep the compiler from making one of them."""
        rows, tile = self.rows, self.rows.tile
        live = self._live_from(level)
        with rows.loop(rows.step):
            size = tile.pairs * tile.rows
            terms = {s: rows.array(s.op, "_term", size, start_of(s)) for s in at_end}
            weights = self._weights(results)
            with rows.loop(rows.pair), rows.columns(guarded=True):
                self._elements(stages, totals, terms, live, weights)
                self.sums.add_column(results, weights)
            for stage, term in terms.items():
                with rows.loop(rows.pair), rows.loop(rows.row):
                    added = element(term, rows.step_index())
                    self._add(stage, element(totals[stage], rows.row), added)
            self.sums.add_step(results, weights)
        rows.element_arrays |= live

    def _live_from(self, level: int) -> dict[Key, str]:
        """Arrays for the elements that this sweep computes and a later one needs."""
        rows = self.rows
        names = {RESULT: rows.result, UNIT: render(rows.column), TILED: render(rows.row)}
        names |= {TEAM: render(rows.unit), ROW: render(rows.row_name), GROUP: render(rows.four)}
        names |= rows.access.names
        found: dict[Key, str] = {}
        for one in rows.walk.live:
            if one.level == level:
                at = tuple(renamed(i, names) for i in one.at)
                found[one.op, at] = rows.array(one.op, "_tile", rows.tile.rows * rows.tile.steps)
        return found

    def _weights(self, results: Arrays) -> dict[Key, str]:
        """Arrays for what the dots along the columns multiply: its elements in one step."""
        rows, tile = self.rows, self.rows.tile
        rows.digits.bind_column(rows.column)
        found: dict[Key, str] = {}
        for stage in results:
            free = rows.bind_results(stage)
            for source, at in body_reads(stage.op, *rows.digits.indices(stage)):
                if (source, at) in found or any(free.variables & i.variables for i in at):
                    continue
                zero = zero_of(source) if tile.pairs > 1 else None
                found[source, at] = rows.array(source, "_now", tile.pairs * tile.rows, zero)
        return found

    def _elements(
        self,
        stages: Sequence[Stage],
        totals: Arrays,
        terms: Arrays,
        live: Mapping[Key, str],
        weights: Mapping[Key, str],
    ) -> None:
        """One element of each row: elementwise values, sums of rows, what dots will weigh with."""
        rows, writer = self.rows, self.rows.writer
        with rows.rows():
            rows.know_elements()
            stores: list[tuple[Stage, Expr]] = []
            for stage in stages:
                if rows.nest.role[stage] is Role.DOT:
                    continue
                if stage in totals:
                    term = rows.values.accumulated(stage.op, *rows.digits.indices(stage))
                    if stage in terms:
                        writer.add(Assign(element(terms[stage], rows.step_index()), term))
                    else:
                        self._add(stage, element(totals[stage], rows.row), term)
                    continue
                stores.append((stage, rows.access.value_of(stage)))
            for (op, at), name in live.items():
                writer.add(Assign(element(name, rows.element_index()), rows.values.value(op, at)))
            for (op, at), name in weights.items():
                value = rows.values.value(op, at)
                writer.add(Assign(element(name, rows.step_index()), value))
            for stage, value in stores:
                rows.access.store(stage, value, [rows.live, rows.row_live])

    def _all_elements(self, sweep: Sequence[Stage]) -> None:
        """The elements that a thread has of a tile where no sum is left to add up."""
        rows = self.rows
        with self.parts.elements() as elements:
            for op, stage, value in elements:
                rows.writer.block.memo[op.id, rows.digits.index(stage)] = value
            for stage, value in [(stage, rows.access.value_of(stage)) for stage in sweep]:
                rows.access.store(stage, value, [rows.live, rows.row_live])

    def _add(self, stage: Stage, total: Expr, term: Expr) -> None:
        if stage.op.opcode == "dot":
            self.rows.writer.add(Assign(total, term, "+"))
        else:
            joined = apply(JOIN, total, term, template=(functor_of(stage),))
            self.rows.writer.add(Assign(total, joined))

    def finish_row(self, stage: Stage, partial: str) -> None:
        """Joins what the lanes of a row summed up."""
        rows, op, lanes = self.rows, stage.op, self.rows.tile.lanes
        index = rows.digits.index(stage)
        name = rows.array(op, "_of", rows.tile.rows)
        with rows.rows():
            own: Expr = element(name, rows.row)
            total: Expr = element(partial, rows.row)
            if lanes > 1:
                total = apply(REDUCE_LANES, total, template=(lanes, functor_of(stage)))
            rows.writer.add(Assign(own, rows.values.finished(op, total)))
            rows.access.store(stage, own, rows.conditions())
        rows.row_arrays[op, index] = name
