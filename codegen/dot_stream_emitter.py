"""Emission of a streamed nest (codegen/dot_streams.py; device functions: cuda/fragments.cuh).

The threads of a block copy the columns' operands of the next block of columns to shared memory;
each warp then computes its 16 rows of elements from there, as in `TensorEmitter`, but adds to
running sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from codegen.access import Access
from codegen.dot_streams import Layout, layouts_of, passes, running_in
from codegen.dot_tensor import GROUPS, TensorEmitter
from codegen.dot_tile import TENSOR_COLUMNS, TENSOR_DEPTH, row_operand
from codegen.expressions import literal
from codegen.index import Index, delinearize, render, variable
from codegen.maps import Indices
from codegen.masks import Mask, bounded, find_mask, nil_terms
from codegen.nests import Place
from codegen.online import VANISHING, Degree, Running, degree
from codegen.stages import Stage, body_reads
from codegen.sweeps import Key, functor_of, start_of
from codegen.types import c_type
from hlo.graph import Op

#: Columns of one step of a sweep: those that one instruction sums along, two lots of eight.
STEP_COLUMNS = 2 * TENSOR_COLUMNS
#: Rounds of copies of a thread that are under way at once.
UNROLLED_ROUNDS = 4


class StreamEmitter(TensorEmitter):
    """Prints a nest whose columns are walked block by block."""

    pairs = 4
    together = True

    def _walk(self) -> None:
        self.columns = self.shape.columns
        blocks = -(-self.plan.inner // self.columns)
        self.column_block = variable(self.writer.name("block"), blocks)
        self.levels: Sequence[int] = ()
        #: by extremum that others are relative to, what it is so far
        self.now: dict[Stage, str] = {}
        self._bind_column(self.column)
        layouts = layouts_of(self.group.group, self.nest, self.columns)
        self.layouts = layouts
        self.places = {s: self._shared_place(s, layout) for s, layout in layouts.items()}
        if self._is_narrow():
            self.values.approximate = frozenset({"exponential"})
        self.row_words = {s: self._row_words(s) for s in self.nest.products}
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

    def _shared_place(self, stage: Stage, layout: Layout) -> str:
        source = stage.op.operands[1 - self._row_side(stage)]
        name = self.writer.name(f"{self.label(source)}_block")
        place = f"shared_memory + {layout.offset}" if layout.offset else "shared_memory"
        self.writer.line(f"{layout.element}* const {name} = ({layout.element}*)({place});")
        return name

    def _row_side(self, stage: Stage) -> int:
        side = row_operand(self.group.group, self.nest, stage)
        assert side is not None
        return side

    # ---- a pass ---------------------------------------------------------------------------------

    def _pass(self, levels: Sequence[int]) -> None:
        """Values of the rows known before, all blocks of columns, then what they came to."""
        self.levels = levels
        self._row_level(levels[0])
        swept = self._swept()
        if not swept:
            return
        totals = {
            s: self._array(s.op, "_partial", self.rows, start_of(s))
            for s in swept
            if self.nest.place[s] is Place.REDUCE
        }
        results = {
            s: self._array(s.op, "_partial", self.rows * self._results(s), literal(0, s.op.dtype))
            for s in swept
            if self.nest.place[s] is Place.DOT
        }
        scales = self._scales(swept)
        for stage in self._references(scales):
            self.now[stage] = self._array(stage.op, "_now", self.rows, self._bound(stage))
            self.row_arrays[stage.op, self._index(stage)] = self.now[stage]
        with self._loop(self.column_block, ""):
            self._copy_columns(results)
            self._leave_out(swept)
            for stage in self.nest.products:
                self._product(stage)
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

    def _sweep(self, level: int, totals: dict[Stage, str], results: dict[Stage, str]) -> None:
        sweep = [s for s in self._swept() if self.nest.level[s] == level]
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

    # ---- columns --------------------------------------------------------------------------------

    def _column_place(self) -> Index:
        """The lane's column in the current step."""
        first = self.column_block * self.columns + self.step * STEP_COLUMNS
        return first + self.pair // 2 * TENSOR_COLUMNS + self.member * 2 + self.pair % 2

    def _column_text(self) -> str:
        return render(self._column_place())

    def _place_in_step(self) -> Index:
        return self.row * self.pairs + self.pair

    def _copy_columns(self, results: dict[Stage, str]) -> None:
        """Copies what the dots read along the next columns to shared memory."""
        self.writer.line(f"// the next {self.columns} columns")
        self.writer.line("__syncthreads();")
        for stage, place in self.places.items():
            if stage in results or stage in self.nest.products:
                self._copy(stage, self.layouts[stage], place)
        self.writer.line("__syncthreads();")

    def _copy(self, stage: Stage, layout: Layout, place: str) -> None:
        writer, units = self.writer, layout.row // layout.width
        count = self.columns * units
        rounds = variable(writer.name("round"), -(-count // self.block))
        with ExitStack() as opened:
            few = rounds.hi < UNROLLED_ROUNDS
            unroll = "FS_UNROLL " if few else f"FS_UNROLL_BY({UNROLLED_ROUNDS}) "
            opened.enter_context(self._loop(rounds, unroll))
            item = variable(writer.name("i"), count)
            name = render(item)
            first = f"{render(rounds * self.block)} + " if rounds.terms else ""
            writer.line(f"const int {name} = {first}threadIdx.x;")
            writer.declare(name)
            if count % self.block:
                guard = f"if ({name} < {count})"
                opened.enter_context(writer.nested(guard, pinned=True))
            column, unit = item // units, item % units
            side = 1 - self._row_side(stage)
            size, leaves = self._along(stage)
            place_of = self.column_block * self.columns + column
            part = self._part(stage, side, unit, size, leaves, layout.width, place_of)
            to = f"{place} + {render(column * layout.stride + unit * layout.width)}"
            writer.line(f"fs_store_packed<{layout.element}, {layout.width}>({to}, {part});")

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
        checks: list[str] = []
        lines: list[tuple[str, str]] = []
        if column is not None:
            column = self._within(column, self.plan.inner, "column", checks, lines)
        beyond = unit.hi * width + width > size
        if beyond and size % width == 0:
            unit = self._within(unit, size // width, "unit", checks, lines)
        ragged = beyond and size % width != 0
        name = self._array(op, "_part", width, "0.0f" if checks or ragged else "")
        for variable_name, text in lines:
            writer.line(f"const int {variable_name} = {text};")
            writer.declare(variable_name)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        with self._guarded(f"if ({' && '.join(checks)})" if checks else ""):
            if column is not None:
                self._bind_column(column)
            self.width, self._element = width, variable("v", width)
            with self._vector_loop() as lane:
                inner_checks: list[str] = []
                inner_lines: list[tuple[str, str]] = []
                place = unit * width + lane
                if ragged:
                    place = self._within(place, size, "place", inner_checks, inner_lines)
                for variable_name, text in inner_lines:
                    writer.line(f"const int {variable_name} = {text};")
                    writer.declare(variable_name)
                self.digits |= dict(zip(leaves, delinearize(place, extents), strict=True))
                with self._guarded(f"if ({inner_checks[0]})" if inner_checks else ""):
                    source, at = self._read(stage, side)
                    writer.line(f"{name}[{render(lane)}] = {self.values.value(source, at)};")
            self.width, self._element = 1, Index()
        return name

    def _within(
        self,
        place: Index,
        limit: int,
        wanted: str,
        checks: list[str],
        lines: list[tuple[str, str]],
    ) -> Index:
        """`place` as a number below `limit`, with the check of that where it is needed."""
        if place.hi < limit:
            return place
        name = self.writer.name(wanted)
        lines.append((name, render(place)))
        checks.append(f"{name} < {limit}")
        return variable(name, limit)

    def _loaded(self, op: Op, name: str, index: Indices) -> str:
        if self.vector is None:
            return super()._loaded(op, name, index)
        return Access._loaded(self, op, name, index)  # a vector is aligned anyway

    def _read(self, stage: Stage, side: int) -> Key:
        return body_reads(stage.op, self._index(stage), self._inner(stage))[side]

    def _leave_out(self, swept: Sequence[Stage]) -> None:
        """Goes on to the next columns where a mask makes these nil for all rows of the warp."""
        self._bind_column(self._column_place())
        conditions = self._nil(swept)
        margin = None if conditions is None else self._margin(swept[0])
        if conditions is None or margin is None:
            return
        own = (self.step, self.pair, self.row, self.member, self.four)
        inside = frozenset(v.name for i in own for v in i.variables)
        self.writer.line("// nothing to add where a mask leaves them all out")
        name = self.writer.name("left_out")
        self.writer.line(f"bool {name} = {render(bounded(margin, inside))} < 0;")
        for constant, (op, at) in conditions:
            used = {v for i in at for v in i.variables}
            loops = [i for i in (self.step, self.pair) if used & i.variables]
            with ExitStack() as opened:
                opened.enter_context(self._rows())
                for index in loops:
                    opened.enter_context(self._loop(index))
                difference = f"{literal(constant, 'f32')} - {self.values.value(op, at)}"
                low = literal(VANISHING, "f32")
                self.writer.line(f"{name} = {name} && {difference} <= {low};")
        self.writer.line(f"if (__all_sync(0xffffffffu, {name})) continue;")

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

    # ---- dots -----------------------------------------------------------------------------------

    def _row_words(self, stage: Stage) -> str:
        """The rows' operand of a product: words in registers, the same for all columns."""
        writer, side = self.writer, self._row_side(stage)
        layout = self.layouts[stage]
        blocks = layout.row // layout.width // self.lanes
        words = blocks * layout.words
        name = writer.name(f"{self.label(stage.op.operands[side])}_words")
        writer.line(f"uint32_t {name}[{self.rows * words}];")
        size, leaves = self._along(stage)
        block = variable(writer.name("k"), blocks)
        with self._rows(), self._loop(block):
            unit = block * self.lanes + self.member
            part = self._part(stage, side, unit, size, leaves, layout.width, None)
            to = f"{name} + {render(self.row * words + block * layout.words)}"
            writer.line(f"fs_pack<{layout.element}, {layout.width}>({to}, {part});")
        return name

    def _start_product(self, stage: Stage) -> str:
        return literal(0, stage.op.dtype)

    def _add_product(self, stage: Stage, index: Indices, name: str) -> None:
        layout, words = self.layouts[stage], self.row_words[stage]
        blocks = layout.row // layout.width // self.lanes
        block = variable(self.writer.name("k"), blocks)
        lot = variable(self.writer.name("n"), self.columns // TENSOR_COLUMNS)
        with self._loop(block), self._loop(lot):
            upper = block * layout.words
            lower = upper + blocks * layout.words
            column = (lot * TENSOR_COLUMNS + self.four) * layout.stride
            place = column + (block * self.lanes + self.member) * layout.width
            arguments = [
                f"{name} + {render(lot * 2)}",
                f"{name} + {render(lot * 2 + self.steps)}",
                f"{words} + {render(upper)}",
                f"{words} + {render(lower)}",
                f"{self.places[stage]} + {render(place)}",
            ]
            call = f"fs_mma_along<{layout.element}, {layout.words}>"
            self.writer.line(f"{call}({', '.join(arguments)});")

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
            weight = weights[self._read(stage, self._row_side(stage))]
            words = packed.get((weight, layout.element))
            if words is None:
                words = packed[weight, layout.element] = self._packed(weight, layout.element)
            self._add_across(stage, partial, words)

    def _packed(self, weight: str, element: str) -> str:
        """What a dot along the columns weighs with, as words: those of a row together."""
        name = self.writer.name(f"{weight}_words")
        count = self.pairs * self.rows
        words = count if element == "float" else count // 2
        self.writer.line(f"uint32_t {name}[{words}];")
        self.writer.line(f"fs_pack<{element}, {count}>({name}, {weight});")
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
            arguments = [
                f"{partial} + {render(top)}",
                f"{partial} + {render(top + held)}",
                f"{words} + {render(upper)}",
                f"{words} + {render(lower)}",
                f"{self.places[stage]} + {render(place)}",
            ]
            call = f"fs_mma_across<{layout.element}, {layout.words}, {layout.stride}>"
            self.writer.line(f"{call}({', '.join(arguments)});")

    # ---- running values -------------------------------------------------------------------------

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

    def _bound(self, stage: Stage) -> str:
        """A finite number that no extremum is beyond: an exponential relative to it is a number."""
        sign = "-" if stage.op.attrs["reducer"] == "maximum" else ""
        return f"{sign}{literal(3.4028234663852886e38, 'f32')}"

    def _rescale(
        self, scales: dict[Stage, Degree], totals: dict[Stage, str], results: dict[Stage, str]
    ) -> None:
        """Takes over the extrema with the current columns; what is relative to them follows."""
        writer = self.writer
        names = ", ".join(self.label(stage.op) for stage in self.now)
        writer.line(f"// sums relative to {names} so far follow it")
        with self._rows():
            before: dict[Key, str] = {}
            after: dict[Key, str] = {}
            for stage, now in self.now.items():
                key, place = (stage.op, self._index(stage)), f"[{render(self.row)}]"
                name = writer.name(f"{self.label(stage.op)}_before")
                writer.line(f"const {c_type(stage.op.dtype).compute} {name} = {now}{place};")
                functor = functor_of(stage)
                joined = f"fs_reduce_lanes<{self.lanes}, {functor}>({totals[stage]}{place})"
                joined = self.values.finished(stage.op, joined)
                writer.line(f"{now}{place} = {functor}::apply({self._bound(stage)}, {joined});")
                before[key], after[key] = name, f"{now}{place}"
            by_scale: dict[tuple[tuple[Key, float], ...], list[Stage]] = {}
            for stage, scale in scales.items():
                by_scale.setdefault(scale.by, []).append(stage)
            for by, stages in by_scale.items():
                terms = [self._grown(key, c, before, after) for key, c in by]
                factor = writer.name("rescale")
                function = "fs_approximate_exp" if self.values.approximate else "expf"
                writer.line(f"const float {factor} = {function}({' + '.join(terms)});")
                for stage in stages:
                    self._multiply_sums(stage, factor, totals, results)

    def _grown(
        self, key: Key, coefficient: float, before: dict[Key, str], after: dict[Key, str]
    ) -> str:
        """C text of how much a shift by a value of the row grew."""
        old, new = self._relative_to(key, before), self._relative_to(key, after)
        if coefficient == -1:
            return f"{old} - {new}"
        text = f"({new} - {old})"
        return text if coefficient == 1 else f"{literal(coefficient, 'f32')} * {text}"

    def _relative_to(self, key: Key, known: dict[Key, str]) -> str:
        """A value of the row where extrema are what `known` says."""
        memo = self.writer.block.memo
        kept = dict(memo)
        memo.update({(op.id, at): text for (op, at), text in known.items()})
        text = self.values.value(*key)
        memo.clear()
        memo.update(kept)
        return text

    def _multiply_sums(
        self, stage: Stage, factor: str, totals: dict[Stage, str], results: dict[Stage, str]
    ) -> None:
        if stage in totals:
            self.writer.line(f"{totals[stage]}[{render(self.row)}] *= {factor};")
            return
        held = self._results(stage)
        own = variable(self.writer.name("n"), held)
        with self._loop(own):
            place = render(self.row * held + own)
            self.writer.line(f"{results[stage]}[{place}] *= {factor};")

    # ---- results --------------------------------------------------------------------------------

    def _results(self, stage: Stage) -> int:
        return self.layouts[stage].row // self.lanes

    @contextmanager
    def _each_result(self, dot: Stage, size: int) -> Iterator[tuple[str, Index]]:
        layout, held = self.layouts[dot], self._results(dot)
        lots = variable(self.writer.name("n"), layout.row // layout.width // GROUPS)
        bit = variable(self.writer.name("bit"), 2)
        self.width, self._element = layout.width, variable("v", layout.width)
        with self._loop(lots), self._loop(bit), self._vector_loop() as lane:
            result = (lots * GROUPS + self.member * 2 + bit) * layout.width + lane
            with self._existing(result, size) as existing:
                yield render(self.row * held + (lots * layout.width + lane) * 2 + bit), existing
        self.width, self._element = 1, Index()
