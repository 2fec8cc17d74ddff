"""Emission of a streamed nest (codegen/dots/streams.py): passes along blocks of columns.

A pass goes through the levels of the nest for one block of columns after the other, and adds to
running sums; these follow the extrema that they are relative to (codegen/dots/online.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from fusionstitch.codegen.dots.masks import Mask, bounded, find_mask, nil_terms
from fusionstitch.codegen.dots.online import VANISHING, Degree, Running, degree
from fusionstitch.codegen.dots.streams import passes, running_in
from fusionstitch.codegen.ir.expressions import Expr, Integer, Name, Number, apply, element, infix
from fusionstitch.codegen.ir.statements import Assign, Let, Skip
from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.dot_words import WordsEmitter
from fusionstitch.codegen.lower.sweeps import Key, functor_of
from fusionstitch.codegen.places.index import Index, variable
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment
from fusionstitch.codegen.text.types import c_type


class StreamEmitter(WordsEmitter):
    """Prints a nest whose columns are walked block by block."""

    def _walk(self) -> None:
        self.levels: Sequence[int] = ()
        #: by extremum that others are relative to, what it is so far
        self.now: dict[Stage, str] = {}
        self._bind_columns()
        if self._is_narrow():
            self.values.approximate = frozenset({"exponential"})
        for levels in passes(self.nest):
            self._pass(levels)

    def _is_narrow(self) -> bool:
        """Whether elements that leave the nest are rounded to 16 bits, or have been."""
        if any(layout.element == "float" for layout in self.layouts.values()):
            return False
        stored = (s for s in self.nest.stages if self._wanted(s))
        return all(
            c_type(s.op.dtype).bytes == 2 or self.nest.place[s] is Place.REDUCE for s in stored
        )

    # ---- a pass ----------------------------------------------------------------------------------

    def _pass(self, levels: Sequence[int]) -> None:
        """Values of the rows known before, all blocks of columns, then what they came to."""
        self.levels = levels
        self._row_level(levels[0])
        swept = self._swept()
        if not swept:
            return
        totals, results = self._partials(swept)
        scales = self._scales(swept)
        for stage in self._references(scales):
            self.now[stage] = self._array(stage.op, "_now", self.rows, self._bound(stage))
            self.row_arrays[stage.op, self._index(stage)] = self.now[stage]
        with self._loop(self.column_block, 0):
            self._copy_columns(results)
            if not self._stored_products():
                self._leave_out(swept)
            for stage in self.nest.products:
                self._products([stage], stage.op)
            for level in levels:
                self._sweep(level, totals, results)
                if level == levels[0] and self.now:
                    self._rescale(scales, totals, results)
        self.element_arrays.clear()
        self.now.clear()
        for level in levels:
            if level != levels[0]:
                self._row_level(level)
            for stage in self.nest.at(level):
                if stage in totals:
                    self._finish_row(stage, totals[stage])
                elif stage in results:
                    self._finish_results(stage, results[stage])

    def _row_level(self, level: int) -> None:
        for stage in self.nest.at(level):
            if self.nest.place[stage] is Place.ROW:
                self._row_value(stage)
        self._result_values(level)

    def _swept(self) -> list[Stage]:
        return [s for s in super()._swept() if self.nest.level[s] in self.levels]

    def _stored_products(self) -> list[Stage]:
        """The dots of this pass whose elements are results themselves: none may be left out."""
        stored = [s for s in self.nest.products if self._wanted(s)]
        return [s for s in stored if self.nest.level[s] in self.levels]

    def _sweep(self, level: int, totals: dict[Stage, str], results: dict[Stage, str]) -> None:
        swept = [*self._stored_products(), *self._swept()]
        sweep = [s for s in swept if self.nest.level[s] == level]
        if not sweep:
            return
        totals = {s: name for s, name in totals.items() if s in sweep}
        results = {s: name for s, name in results.items() if s in sweep}
        keep = self._kept_from(level)
        with self._loop(self.step):
            weights = self._weights(results)
            with self._loop(self.pair), self._column(guarded=True):
                self._elements(sweep, totals, {}, keep, weights)
            self._add_tiles(totals, {}, results, weights)
        self.element_arrays |= keep

    # ---- masks -----------------------------------------------------------------------------------

    def _leave_out(self, swept: Sequence[Stage]) -> None:
        """Goes on to the next columns where a mask makes these nil for all rows of the warp. A pass
        that only finds extrema does not know what they are so far."""
        if running_in(self.nest, self.levels).extrema and not self.now:
            return
        self._bind_column(self._column_place())
        conditions = self._nil(swept)
        margin = None if conditions is None else self._margin(swept[0])
        if conditions is None or margin is None:
            return
        own = (self.step, self.pair, self.row, self.member, self.four)
        inside = frozenset(v.name for i in own for v in i.variables)
        self.writer.note("// nothing to add where a mask leaves them all out")
        name = self.writer.name("left_out")
        outside = infix("<", Integer(bounded(margin, inside)), 0)
        self.writer.add(Let("bool", name, outside, changes=True))
        for constant, (op, at) in conditions:
            used = {v for i in at for v in i.variables}
            loops = [i for i in (self.step, self.pair) if used & i.variables]
            with ExitStack() as opened:
                opened.enter_context(self._rows())
                for index in loops:
                    opened.enter_context(self._loop(index))
                number = Number(literal(constant, "f32"))
                difference = infix("-", number, self.values.value(op, at))
                nil = infix("<=", difference, Number(literal(VANISHING, "f32")))
                self.writer.add(Assign(Name(name), infix("&&", Name(name), nil)))
        self.writer.add(Skip(apply("__all_sync", Number("0xffffffffu"), Name(name))))

    def _margin(self, stage: Stage) -> Index | None:
        """What is negative where a mask leaves elements of a stage out, with the rows that the warp
        was given: those beyond the last stand for nothing."""
        (row,) = self.nest.rows
        known = self.digits[row]
        self.digits[row] = self._row_place(self.unit)
        whole = running_in(self.nest, self.levels).whole
        mask = find_mask(stage.op, self._index(stage), self._inner(stage), whole)
        self.digits[row] = known
        return mask.margin if mask else None

    def _nil(self, swept: Sequence[Stage]) -> dict[tuple[float, Key], None] | None:
        """When all that is swept is nil outside of a mask over it; None if it never is."""
        running = running_in(self.nest, self.levels)
        mask: Mask | None = None
        conditions: dict[tuple[float, Key], None] = {}
        for stage in swept:
            if self.nest.place[stage] is Place.DOT:
                self._bind_results(stage)
            terms = stage.op, self._index(stage), self._inner(stage)
            mask = mask or find_mask(*terms, running.whole)
            nil = nil_terms(*terms, mask, running) if mask and stage.is_reduction else None
            if nil is None:
                return None
            conditions |= dict.fromkeys(nil)
        return conditions

    # ---- running values --------------------------------------------------------------------------

    def _scales(self, swept: Sequence[Stage]) -> dict[Stage, Degree]:
        """The sums of this pass that are relative to running extrema."""
        running = running_in(self.nest, self.levels)
        found: dict[Stage, Degree] = {}
        for stage in swept:
            scale = self._degree(stage, running)
            if scale.kind == "scale":
                found[stage] = scale
        return found

    def _degree(self, stage: Stage, running: Running) -> Degree:
        self._bind_column(self.column)
        if self.nest.place[stage] is Place.DOT:
            self._bind_results(stage)
        found = degree(stage.op, self._index(stage), self._inner(stage), running)
        assert found is not None
        return found

    def _references(self, scales: dict[Stage, Degree]) -> list[Stage]:
        """The extrema that `scales` are relative to."""
        if not scales:
            return []
        extrema = running_in(self.nest, self.levels).extrema
        return [s for s in self._swept() if s.op.id in extrema]

    def _bound(self, stage: Stage) -> Number:
        """A finite number that no extremum is beyond: an exponential relative to it is a number."""
        sign = "-" if stage.op.attrs["reducer"] == "maximum" else ""
        return Number(f"{sign}{literal(3.4028234663852886e38, 'f32')}")

    def _rescale(
        self, scales: dict[Stage, Degree], totals: dict[Stage, str], results: dict[Stage, str]
    ) -> None:
        """Takes over the extrema with the current columns; what is relative to them follows."""
        writer = self.writer
        names = ", ".join(self.label(stage.op) for stage in self.now)
        writer.note(comment(f"sums relative to {names} so far follow it"))
        with self._rows():
            before: dict[Key, Expr] = {}
            after: dict[Key, Expr] = {}
            for stage, now in self.now.items():
                key, so_far = (stage.op, self._index(stage)), element(now, self.row)
                name = writer.name(f"{self.label(stage.op)}_before")
                writer.let(c_type(stage.op.dtype).compute, name, so_far)
                functor = functor_of(stage)
                lanes = f"fs_reduce_lanes<{self.lanes}, {functor}>"
                joined: Expr = apply(lanes, element(totals[stage], self.row))
                joined = self.values.finished(stage.op, joined)
                writer.add(Assign(so_far, apply(f"{functor}::apply", self._bound(stage), joined)))
                before[key], after[key] = Name(name), so_far
            by_scale: dict[tuple[tuple[Key, float], ...], list[Stage]] = {}
            for stage, scale in scales.items():
                by_scale.setdefault(scale.by, []).append(stage)
            for by, stages in by_scale.items():
                terms = [self._grown(key, c, before, after) for key, c in by]
                factor = writer.name("rescale")
                function = "fs_approximate_exp" if self.values.approximate else "expf"
                grown = terms[0] if len(terms) == 1 else infix("+", *terms)
                writer.let("float", factor, apply(function, grown))
                for stage in stages:
                    self._multiply_sums(stage, factor, totals, results)

    def _grown(
        self, key: Key, coefficient: float, before: dict[Key, Expr], after: dict[Key, Expr]
    ) -> Expr:
        """How much a shift by a value of the row grew."""
        old, new = self._relative_to(key, before), self._relative_to(key, after)
        if coefficient == -1:
            return infix("-", old, new)
        grown = infix("-", new, old)
        if coefficient == 1:
            return grown
        return infix("*", Number(literal(coefficient, "f32")), grown)

    def _relative_to(self, key: Key, known: dict[Key, Expr]) -> Expr:
        """A value of the row where extrema are what `known` says."""
        memo = self.writer.block.memo
        kept = dict(memo)
        memo.update({(op.id, at): value for (op, at), value in known.items()})
        value = self.values.value(*key)
        memo.clear()
        memo.update(kept)
        return value

    def _multiply_sums(
        self, stage: Stage, factor: str, totals: dict[Stage, str], results: dict[Stage, str]
    ) -> None:
        if stage in totals:
            self.writer.add(Assign(element(totals[stage], self.row), Name(factor), "*"))
            return
        held = self._results(stage)
        own = variable(self.writer.name("n"), held)
        with self._loop(own):
            place = self.row * held + own
            self.writer.add(Assign(element(results[stage], place), Name(factor), "*"))
