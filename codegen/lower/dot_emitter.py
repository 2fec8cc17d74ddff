"""Emission of one nest with a register tile: the values of its rows, level by level, the dots along
a row among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fusionstitch.codegen.dots.tile import held_results, results_per_row
from fusionstitch.codegen.ir.expressions import (
    Expr,
    Integer,
    Name,
    all_of,
    apply,
    behind,
    element,
    infix,
)
from fusionstitch.codegen.ir.statements import Assign, Call
from fusionstitch.codegen.loops.dot_nests import sums_of_dots
from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.dot_products import ProductEmitter
from fusionstitch.codegen.lower.sweeps import Key, functor_of, start_of, zero_of
from fusionstitch.codegen.places.index import Index, delinearize, variable


class DotEmitter(ProductEmitter):
    """Prints a tiled nest of a group inside one tile of the grid."""

    # ---- levels ---------------------------------------------------------------------------------

    def _level(self, level: int) -> None:
        """Values of each row, dots that give its elements, then one sweep along all rows."""
        stages = self.nest.at(level)
        products = self.nest.products
        for stage in stages:
            if self.nest.place[stage] is Place.ROW:
                self._row_value(stage)
        self._result_values(level)
        dots = [s for s in stages if s in products]
        readers = [s for s in self.nest.stages if s not in products or self._wanted(s)]
        sums = sums_of_dots(dots, readers)
        inside = {dot for summed, total in sums for dot in summed if dot.op is not total}
        elsewhere = (Place.ROW, Place.RESULT)
        sweep = [s for s in stages if self.nest.place[s] not in elsewhere and s not in inside]
        self._load_early(sweep)
        for summed, total in sums:
            self._products(summed, total)
        if not any(s not in products or self._wanted(s) for s in sweep):
            return
        totals, results = self._partials(sweep)
        self._along_rows(level, sweep, totals, results)
        for stage, partial in totals.items():
            self._finish_row(stage, partial)
        for stage, partial in results.items():
            self._finish_results(stage, partial)

    def _partials(self, sweep: Sequence[Stage]) -> tuple[dict[Stage, str], dict[Stage, str]]:
        """Arrays for the sums of rows and for the dots along the columns of a sweep."""
        totals = {
            s: self._array(s.op, "_partial", self.rows, start_of(s))
            for s in sweep
            if self.nest.place[s] is Place.REDUCE
        }
        results = {
            s: self._array(s.op, "_partial", self.rows * self._results(s), zero_of(s.op))
            for s in sweep
            if self.nest.place[s] is Place.DOT
        }
        return totals, results

    def _along_rows(
        self,
        level: int,
        sweep: Sequence[Stage],
        totals: dict[Stage, str],
        results: dict[Stage, str],
    ) -> None:
        """All elements of the rows, step by step."""
        keep = self._kept_from(level)
        with self._loop(self.step):
            terms = self._terms(totals)
            weights = self._weights(results)
            with self._loop(self.pair), self._column(guarded=True):
                self._elements(sweep, totals, terms, keep, weights)
                self._add_terms(results, weights)
            self._add_tiles(totals, terms, results, weights)
        self.element_arrays |= keep

    def _wanted(self, stage: Stage) -> bool:
        """Whether a stage's value has a place in memory."""
        return bool(self._stores(stage) or stage.cuts or stage in self.memory.shared)

    def _results(self, stage: Stage) -> int:
        """Sums per row that a lane adds up for a dot along the columns."""
        return held_results(self.shape, results_per_row(self.group.group, self.nest, stage))

    def _row_value(self, stage: Stage) -> None:
        name = self._array(stage.op, "_of", self.rows)
        index = self._index(stage)
        with self._rows():
            own = element(name, self.row)
            self.writer.add(Assign(own, self.values.computed(stage.op, index)[0]))
            self._store(stage, own, self._conditions())
        self.row_arrays[stage.op, index] = name

    def _conditions(self) -> list[Expr | None]:
        return [self.first, self.live, self.row_live]

    # ---- one step of a sweep --------------------------------------------------------------------

    def _terms(self, totals: dict[Stage, str]) -> dict[Stage, str]:
        """Arrays for what a step adds to the sums of rows, where it does so at its end."""
        return {}

    def _weights(self, results: dict[Stage, str]) -> dict[Key, str]:
        """Arrays for what the dots along the columns multiply: its elements in one step."""
        self._bind_column(self.column)
        found: dict[Key, str] = {}
        for stage in results:
            free = self._bind_results(stage)
            for source, at in body_reads(stage.op, self._index(stage), self._inner(stage)):
                if (source, at) in found or any(free.variables & i.variables for i in at):
                    continue
                zero = zero_of(source) if self.pairs > 1 else None
                found[source, at] = self._array(source, "_now", self.pairs * self.rows, zero)
        return found

    def _elements(
        self,
        stages: Sequence[Stage],
        totals: dict[Stage, str],
        terms: dict[Stage, str],
        keep: dict[Key, str],
        weights: dict[Key, str],
    ) -> None:
        """One element of each row: elementwise values, sums of rows, what dots will weigh with."""
        with self._rows():
            self._know_elements()
            stores: list[tuple[Stage, Expr]] = []
            for stage in stages:
                if self.nest.place[stage] is Place.DOT:
                    continue
                if stage in totals:
                    index = self._index(stage)
                    term = self.values.accumulated(stage.op, index, self._inner(stage))
                    if stage in terms:
                        place = self.pair * self.rows + self.row
                        self.writer.add(Assign(element(terms[stage], place), term))
                    else:
                        self._add(stage, element(totals[stage], self.row), term)
                    continue
                stores.append((stage, self._element_of(stage)))
            for (op, at), name in keep.items():
                value = self.values.value(op, at)
                self.writer.add(Assign(element(name, self._place()), value))
            for (op, at), name in weights.items():
                value = self.values.value(op, at)
                self.writer.add(Assign(element(name, self._place_in_step()), value))
            for stage, value in stores:
                self._store(stage, value, [self.live, self.row_live])

    def _element_of(self, stage: Stage) -> Expr:
        """A stage's value at the current row and column."""
        index = self._index(stage)
        found = self.writer.find((stage.op.id, index))
        value = found[0] if found else self.values.computed(stage.op, index)[0]
        self.writer.block.memo[stage.op.id, index] = value
        return value

    def _add(self, stage: Stage, total: Expr, term: Expr) -> None:
        if stage.op.opcode == "dot":
            self.writer.add(Assign(total, term, "+"))
        else:
            self.writer.add(Assign(total, apply(f"{functor_of(stage)}::apply", total, term)))

    def _add_terms(self, results: dict[Stage, str], weights: dict[Key, str]) -> None:
        """Adds the current column's terms to the dots along the columns."""
        for stage, partial in results.items():
            free = self._bind_results(stage)
            with self._loop(free), self._rows(weights):
                self._know_elements()
                value = self.values.accumulated(stage.op, self._index(stage), self._inner(stage))
                place = self.row * self._results(stage) + free
                self.writer.add(Assign(element(partial, place), value, "+"))

    def _add_tiles(
        self,
        totals: dict[Stage, str],
        terms: dict[Stage, str],
        results: dict[Stage, str],
        weights: dict[Key, str],
    ) -> None:
        """What is added for all columns of a step together."""

    # ---- results of a sweep ---------------------------------------------------------------------

    def _finish_row(self, stage: Stage, partial: str) -> None:
        op, index = stage.op, self._index(stage)
        name = self._array(op, "_of", self.rows)
        with self._rows():
            own, total = element(name, self.row), self._joined_row(stage, partial)
            self.writer.add(Assign(own, self.values.finished(op, total)))
            self._store(stage, own, self._conditions())
        self.row_arrays[op, index] = name

    def _joined_row(self, stage: Stage, partial: str) -> Expr:
        """What the lanes of a row summed up together."""
        total = element(partial, self.row)
        if self.lanes == 1:
            return total
        return apply(f"fs_reduce_lanes<{self.lanes}, {functor_of(stage)}>", total)

    def _finish_results(self, stage: Stage, partial: str) -> None:
        """Joins the lanes' sums so that each lane ends with its share of a row's results."""
        if self.lanes > 1:
            padded = self._results(stage)
            with self._rows():
                first: Expr = Name(partial)
                at = behind(first, self.row * padded) if self.rows > 1 else first
                scatter = f"fs_scatter_lanes<{self.lanes}, {padded}, FsAdd>"
                self.writer.add(Call(scatter, (at,)))
        self.sums[stage] = partial
        if self._wanted(stage):
            self._results_of([stage])

    def _result_values(self, level: int) -> None:
        """What is computed from the results of dots along the columns, where these are."""
        waiting = [s for s in self.nest.at(level) if self.nest.place[s] is Place.RESULT]
        while waiting:
            leaves = sorted(self._free_leaves(waiting[0]))
            self._results_of([s for s in waiting if sorted(self._free_leaves(s)) == leaves])
            waiting = [s for s in waiting if sorted(self._free_leaves(s)) != leaves]

    def _results_of(self, stages: Sequence[Stage]) -> None:
        """One element of `stages` for each result that a lane holds: values first, then stores."""
        leaves = self._free_leaves(stages[0])
        dots = [dot for dot in self.sums if sorted(self._free_leaves(dot)) == sorted(leaves)]
        extents = [self.axes.extent(leaf) for leaf in leaves]
        own = self._guarded(all_of([self.live, self.row_live]))
        each = self._each_result(dots[0], self.axes.size(leaves))
        with self._rows(), own, each as (place, result):
            self.digits |= dict(zip(leaves, delinearize(result, extents), strict=True))
            memo = self.writer.block.memo
            for dot in dots:
                total = self.values.finished(dot.op, element(self.sums[dot], place))
                memo[dot.op.id, self._index(dot)] = total
            stores = []
            for stage in stages:
                found = self.writer.find((stage.op.id, self._index(stage)))
                value = found[0] if found else self.values.computed(stage.op, self._index(stage))[0]
                memo[stage.op.id, self._index(stage)] = value
                stores.append((stage, value))
            for stage, value in stores:
                self._store(stage, value, [])

    @contextmanager
    def _each_result(self, dot: Stage, size: int) -> Iterator[tuple[Index, Index]]:
        """The results of a row that a lane holds: their places among its sums, their numbers."""
        lanes, padded = self.lanes, self._results(dot)
        share, group = max(1, padded // lanes), max(1, lanes // padded)
        own = variable(self.writer.name("own"), share)
        lane = variable(self.lane, lanes) if lanes > 1 else Index()
        leads = infix("==", infix("%", Name(self.lane), group), 0)
        first = self._guarded(leads if group > 1 else None)
        existing = self._existing(lane // group * share + own, size)
        with first, self._loop(own), existing as result:
            yield self.row * padded + own, result

    @contextmanager
    def _existing(self, result: Index, size: int) -> Iterator[Index]:
        """`result` as a number below `size`; what is beyond is left out."""
        if result.hi < size:
            yield result
            return
        name = self.writer.declare(self.writer.name("result"))
        self.writer.let("int", name, Integer(result))
        with self._guarded(infix("<", Name(name), size)):
            yield variable(name, size)
