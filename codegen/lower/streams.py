"""A streamed nest as statements (codegen/dots/streams.py): passes along blocks of columns.

A pass goes through the levels of the nest for one block of columns after the other, and adds to
running sums; these follow the extrema that they are relative to (codegen/dots/online.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.dots.online import Degree, Running, degree
from fusionstitch.codegen.dots.streams import passes, running_in
from fusionstitch.codegen.index_maps.index import variable
from fusionstitch.codegen.ir.expressions import Expr, Name, Number, apply, element, infix
from fusionstitch.codegen.ir.intrinsics import APPROXIMATE_EXP, EXP, JOIN, REDUCE_LANES
from fusionstitch.codegen.ir.statements import Assign
from fusionstitch.codegen.ir.types import FLOAT, computed
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.column_blocks import ColumnBlocks
from fusionstitch.codegen.lower.dot_words import WordElements, WordSums, row_words
from fusionstitch.codegen.lower.left_out import LeftOut
from fusionstitch.codegen.lower.products import add_products
from fusionstitch.codegen.lower.sums import functor_of
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.lower.tile_levels import Levels
from fusionstitch.codegen.lower.tile_rows import TileRows
from fusionstitch.codegen.schedule.tiled_walks import swept
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment


def lower_stream(rows: TileRows) -> None:
    """Writes the rows of a tile whose columns are walked block by block."""
    blocks = ColumnBlocks(rows)
    words = WordElements(rows, blocks, row_words(rows, blocks))
    if rows.walk.narrow:
        rows.values.approximate = frozenset({"exponential"})
    walk = Stream(Levels.of(rows, words, WordSums(rows, blocks)), blocks)
    for levels in passes(rows.nest):
        walk.walk(levels)


class Stream:
    """The passes of a nest."""

    def __init__(self, of: Levels, blocks: ColumnBlocks):
        self.of, self.rows, self.blocks = of, of.rows, blocks
        self.levels: Sequence[int] = ()
        #: by extremum that others are relative to, what it is so far
        self.now: dict[Stage, str] = {}

    def walk(self, levels: Sequence[int]) -> None:
        """Values of the rows known before, all blocks of columns, then what they came to."""
        rows = self.rows
        self.levels = levels
        self.of.row_values(levels[0])
        stages = self._swept()
        if not stages:
            return
        totals, results = self.of.partials(stages)
        scales = self._scales(stages)
        for stage in self._references(scales):
            count = rows.tile.rows
            self.now[stage] = rows.array(stage.op, "_now", count, self._bound(stage))
            rows.row_arrays[stage.op, rows.digits.index(stage)] = self.now[stage]
        left_out = LeftOut(rows, stages, running_in(rows.nest, levels), self._leaves_out())
        with left_out.blocks():
            self.blocks.copy(results)
            left_out.skip()
            for stage in rows.nest.products:
                add_products(rows, self.of.elements, self.of.parts, [stage], stage.op)
            for level in levels:
                self._sweep(level, totals, results)
                if level == levels[0] and self.now:
                    self._rescale(scales, totals, results)
        self.rows.element_arrays.clear()
        self.now.clear()
        for level in levels:
            if level != levels[0]:
                self.of.row_values(level)
            for stage in rows.nest.at(level):
                if stage in totals:
                    self.of.finish_row(stage, totals[stage])
                elif stage in results:
                    self.of.results.finish(stage, results[stage])

    def _swept(self) -> list[Stage]:
        return [s for s in swept(self.rows.nest) if self.rows.nest.level[s] in self.levels]

    def _leaves_out(self) -> bool:
        """Whether columns may be left out. A pass that only finds extrema does not know what they
        are so far."""
        extrema = running_in(self.rows.nest, self.levels).extrema
        return not self._stored_products() and bool(self.now or not extrema)

    def _stored_products(self) -> list[Stage]:
        """The dots of this pass whose elements are results themselves: none may be left out."""
        rows = self.rows
        stored = [s for s in rows.nest.products if rows.is_stored(s)]
        return [s for s in stored if self.rows.nest.level[s] in self.levels]

    def _sweep(self, level: int, totals: dict[Stage, str], results: dict[Stage, str]) -> None:
        stages = [*self._stored_products(), *self._swept()]
        sweep = [s for s in stages if self.rows.nest.level[s] == level]
        if not sweep:
            return
        totals = {s: name for s, name in totals.items() if s in sweep}
        results = {s: name for s, name in results.items() if s in sweep}
        self.of.sweep(level, sweep, totals, results)

    # ---- running values --------------------------------------------------------------------------

    def _scales(self, swept: Sequence[Stage]) -> dict[Stage, Degree]:
        """The sums of this pass that are relative to running extrema."""
        running = running_in(self.rows.nest, self.levels)
        found: dict[Stage, Degree] = {}
        for stage in swept:
            scale = self._degree(stage, running)
            if scale.kind == "scale":
                found[stage] = scale
        return found

    def _degree(self, stage: Stage, running: Running) -> Degree:
        self.rows.digits.bind_column(self.rows.column)
        if self.rows.nest.role[stage] is Role.DOT:
            self.rows.bind_results(stage)
        found = degree(stage.op, *self.rows.digits.indices(stage), running)
        assert found is not None
        return found

    def _references(self, scales: dict[Stage, Degree]) -> list[Stage]:
        """The extrema that `scales` are relative to."""
        if not scales:
            return []
        extrema = running_in(self.rows.nest, self.levels).extrema
        return [s for s in self._swept() if s.op.id in extrema]

    def _bound(self, stage: Stage) -> Number:
        """A finite number that no extremum is beyond: an exponential relative to it is a number."""
        sign = "-" if stage.op.attrs["reducer"] == "maximum" else ""
        return Number(f"{sign}{literal(3.4028234663852886e38, 'f32')}")

    def _rescale(
        self, scales: dict[Stage, Degree], totals: dict[Stage, str], results: dict[Stage, str]
    ) -> None:
        """Takes over the extrema with the current columns; what is relative to them follows."""
        writer = self.rows.writer
        names = ", ".join(self.rows.label(stage.op) for stage in self.now)
        writer.note(comment(f"sums relative to {names} so far follow it"))
        with self.rows.rows():
            before: dict[Key, Expr] = {}
            after: dict[Key, Expr] = {}
            for stage, now in self.now.items():
                key, so_far = (stage.op, self.rows.digits.index(stage)), element(now, self.rows.row)
                name = writer.name(f"{self.rows.label(stage.op)}_before")
                writer.let(computed(stage.op.dtype), name, so_far)
                functor = functor_of(stage)
                own = element(totals[stage], self.rows.row)
                joined: Expr = apply(REDUCE_LANES, own, template=(self.rows.tile.lanes, functor))
                joined = self.rows.values.finished(stage.op, joined)
                both = apply(JOIN, self._bound(stage), joined, template=(functor,))
                writer.add(Assign(so_far, both))
                before[key], after[key] = Name(name), so_far
            by_scale: dict[tuple[tuple[Key, float], ...], list[Stage]] = {}
            for stage, scale in scales.items():
                by_scale.setdefault(scale.by, []).append(stage)
            for by, stages in by_scale.items():
                terms = [self._grown(key, c, before, after) for key, c in by]
                factor = writer.name("rescale")
                function = APPROXIMATE_EXP if self.rows.values.approximate else EXP
                grown = terms[0] if len(terms) == 1 else infix("+", *terms)
                writer.let(FLOAT, factor, apply(function, grown))
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
        memo = self.rows.writer.block.memo
        outer = dict(memo)
        memo.update({(op.id, at): value for (op, at), value in known.items()})
        value = self.rows.values.value(*key)
        memo.clear()
        memo.update(outer)
        return value

    def _multiply_sums(
        self, stage: Stage, factor: str, totals: dict[Stage, str], results: dict[Stage, str]
    ) -> None:
        if stage in totals:
            self.rows.writer.add(Assign(element(totals[stage], self.rows.row), Name(factor), "*"))
            return
        size = self.of.sums.size(stage)
        own = variable(self.rows.writer.name("n"), size)
        with self.rows.loop(own):
            at = self.rows.row * size + own
            self.rows.writer.add(Assign(element(results[stage], at), Name(factor), "*"))
