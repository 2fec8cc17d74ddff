"""Emission of one nest with a register tile: a team of lanes works on several rows at once.

Row by row the order is that of `NestEmitter`, but every statement of a row stands in an unrolled
loop over the tile's rows, and what does not depend on the row moves out of it: an operand is read
once for all of them. Values of a row are arrays over the tile's rows, values of an element arrays
over rows and steps; unrolled, both are registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from codegen.access import Site, in_range
from codegen.dot_nests import sums_of_dots
from codegen.dot_tile import held_results, results_per_row
from codegen.expressions import literal
from codegen.index import Index, delinearize, render, variable
from codegen.maps import Indices
from codegen.nest_emitter import NestEmitter
from codegen.nests import Place
from codegen.repeats import FEWEST, Repeat, repeat_of, runs
from codegen.rows import row_loop
from codegen.source import Block
from codegen.stages import Stage, body_reads, inlined_reads
from codegen.sweeps import Key, functor_of, start_of
from codegen.types import c_type, compute_bytes
from hlo.graph import Op

if TYPE_CHECKING:
    pass

#: Summed elements of a dot that are unrolled at once.
UNROLLED_DEPTH = 16
#: Registers that values kept from one sweep to the next may take beside a dot's own.
KEPT_REGISTERS = 48


class DotEmitter(NestEmitter):
    """Prints a tiled nest of a group inside one tile of the grid."""

    #: neighbouring columns of a lane in one step
    pairs = 1
    #: whether all threads of the block meet at barriers inside
    together = False

    def __init__(self, site: Site):
        super().__init__(site)
        assert site.nest.tile is not None
        self.shape = shape = site.nest.tile
        self.rows, self.steps, self.lanes = shape.rows, shape.steps, shape.lanes
        #: arrays over the tile's rows, and over rows and steps, by what they hold
        self.row_arrays: dict[Key, str] = {}
        self.element_arrays: dict[Key, str] = {}
        self.row = self.row_name = self.step = self.column = Index()
        self.pair = self.unit = Index()
        #: what the dots along the columns summed up
        self.sums: dict[Stage, str] = {}
        self.clamped = self.row_live = self.limit = ""
        self.result = self.writer.name("f")

    # ---- rows -----------------------------------------------------------------------------------

    def emit(self) -> None:
        writer, plan = self.writer, self.plan
        for stage in self.nest.stages:
            writer.line(self.comment(stage.op))
        team_rows = self.shape.team_rows
        units = -(-plan.rows // team_rows)
        limit = self._row_limit(1)
        whole = plan.rows // self.group.points % team_rows == 0
        whole = whole or (not self.group.ragged and plan.rows % team_rows == 0)
        unit = variable(writer.name("rows"), units)
        unit_limit = str(units)
        if self.group.ragged:
            unit_limit = f"(({limit} + {team_rows - 1}) / {team_rows})" if team_rows > 1 else limit
        thread, threads = self._bind_threads()
        loop = row_loop(
            render(unit), units, unit_limit, plan.teams, threads, self.int, thread, self.together
        )
        with writer.nested(loop.header, ordered=True):
            if loop.row:
                writer.line(loop.row)
            if unit.terms:
                writer.declare(render(unit))
            self.live = loop.live
            self._bind_lanes(loop.lane)
            self._bind_tile(unit, limit, whole)
            self._walk()

    def _walk(self) -> None:
        """All values of the rows of a tile, level by level."""
        for level in range(self.nest.levels):
            self._level(level)

    def _bind_threads(self) -> tuple[str, int]:
        """C text of a thread's number among those that the rows are for, and how many these are."""
        return "threadIdx.x", self.block

    def _bind_lanes(self, lane: str) -> None:
        """Declares the thread's place in its row."""
        if lane:
            self.lane = self.writer.declare(self.writer.name("lane"))
            self.writer.line(f"const int {self.lane} = {lane};")
            self.first = f"{self.lane} == 0"

    def _row_place(self, unit: Index) -> Index:
        """Row r of a team's tile number `unit`."""
        return unit * self.rows + self.row

    def _bind_tile(self, unit: Index, limit: str, whole: bool) -> None:
        """Binds the rows of the tile: row r of the team's `unit`."""
        self.unit, self.limit = unit, "" if whole else limit
        self.row = variable(self.writer.name("r"), self.rows)
        self._bind_row()
        self.column = variable(self.writer.name("column"), self.plan.inner)
        self.step = variable(self.writer.name("s"), self.steps // self.pairs)
        self.pair = variable(self.writer.name("pair"), self.pairs)
        if self.steps == 1 and self.column.terms:
            beyond = self.lanes > self.plan.inner
            text = f"fs_min<int>({self.lane}, {self.plan.inner - 1})" if beyond else self.lane
            self.writer.line(f"const int {render(self.column)} = {text};")
            self.writer.declare(render(self.column))

    def _bind_row(self) -> None:
        """Binds the row axes to the current row: of those beyond the last, to the last."""
        place = row = self._row_place(self.unit)
        if self.limit:
            name = self.writer.name("row")
            self.clamped = (
                f"const {self.int} {name} = fs_min<{self.int}>({render(place)}, {self.limit} - 1);"
            )
            self.row_live = f"{render(place)} < {self.limit}"
            row = self.row_name = variable(name, self.plan.rows)
        self._bind_rows(row, self._position(row, 1))

    @contextmanager
    def _rows(self, *arrays: dict[Key, str]) -> Iterator[None]:
        """The unrolled loop over the tile's rows, with `arrays` of rows known inside."""
        header = ""
        if self.rows > 1:
            name = render(self.row)
            header = f"FS_UNROLL for (int {name} = 0; {name} < {self.rows}; ++{name})"
        with self.writer.nested(header) if header else nullcontext():
            block = self.writer.block
            if header:
                self.writer.declare(render(self.row))
            if self.clamped:
                self.writer.line(self.clamped)
                self.writer.declare(render(self.row_name))
            for known in (self.row_arrays, *arrays):
                for (op, at), array in known.items():
                    block.memo[op.id, at] = f"{array}[{render(self.row)}]"
            yield
            if self.clamped and not block.mentions(render(self.row_name), beyond=self.clamped):
                block.items.remove(self.clamped)

    @contextmanager
    def _loop(self, index: Index, unroll: str = "FS_UNROLL ") -> Iterator[None]:
        """The loop over the one variable of `index`; none if it has no variable."""
        with ExitStack() as opened:
            for term in index.variables:
                name = term.name
                header = f"{unroll}for (int {name} = 0; {name} < {term.extent}; ++{name})"
                opened.enter_context(self.writer.nested(header))
                self.writer.declare(name)
            yield

    def _guarded(self, guard: str) -> AbstractContextManager[object]:
        """A block that runs conditionally; none if `guard` is empty."""
        return self.writer.nested(guard, pinned=True) if guard else nullcontext()

    @contextmanager
    def _column(self, guarded: bool) -> Iterator[None]:
        """The column of the current step. One beyond the last is left out, or is the last one again
        where that does no harm."""
        writer, inner, name = self.writer, self.plan.inner, render(self.column)
        beyond = inner % (self.lanes * self.steps) != 0
        guard = f"if ({name if self.steps > 1 else self.lane} < {inner})" if beyond else ""
        if self.steps == 1 and not guarded:
            guard = ""
        if self.steps > 1:
            place = self._column_text()
            if beyond and not guarded:
                guard, place = "", f"fs_min<int>({place}, {inner - 1})"
            writer.line(f"const int {name} = {place};")
            writer.declare(name)
        self._bind_column(self.column)
        with self._guarded(guard):
            yield

    def _column_text(self) -> str:
        """C text of the lane's column in the current step."""
        text = render(self.step * self.lanes)
        return f"{text} + {self.lane}" if self.lanes > 1 else text

    def _place(self) -> str:
        """The place in an array over rows and steps of the current element."""
        return render(self.row * self.steps + self.step * self.pairs + self.pair)

    def _place_in_step(self) -> Index:
        """The place in an array over one step of the current element."""
        return self.pair * self.rows + self.row

    def _know_elements(self) -> None:
        for (op, at), name in self.element_arrays.items():
            self.writer.block.memo[op.id, at] = f"{name}[{self._place()}]"

    def _array(self, op: Op, ending: str, size: int, start: str = "") -> str:
        """Declares an array of `size` values, all `start`."""
        name = self.writer.name(f"{self.label(op)}{ending}")
        filled = start in ("0", "0.0f", "0.0", "false")
        self.writer.line(f"{c_type(op.dtype).compute} {name}[{size}]{' = {}' if filled else ''};")
        if start and not filled:
            loop = f"FS_UNROLL for (int i = 0; i < {size}; ++i)"
            self.writer.line(f"{loop} {name}[i] = {start};")
        return name

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
        totals = {
            s: self._array(s.op, "_partial", self.rows, start_of(s))
            for s in sweep
            if self.nest.place[s] is Place.REDUCE
        }
        results = {
            s: self._array(s.op, "_partial", self.rows * self._results(s), literal(0, s.op.dtype))
            for s in sweep
            if self.nest.place[s] is Place.DOT
        }
        self._along_rows(level, sweep, totals, results)
        for stage, partial in totals.items():
            self._finish_row(stage, partial)
        for stage, partial in results.items():
            self._finish_results(stage, partial)

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
        return self._stores(stage) or stage in self.memory.shared

    def _results(self, stage: Stage) -> int:
        """Sums per row that a lane adds up for a dot along the columns."""
        return held_results(self.shape, results_per_row(self.group.group, self.nest, stage))

    def _row_value(self, stage: Stage) -> None:
        name = self._array(stage.op, "_of", self.rows)
        index = self._index(stage)
        with self._rows():
            text = self.values.computed(stage.op, index)[0]
            self.writer.line(f"{name}[{render(self.row)}] = {text};")
            self._store(stage, f"{name}[{render(self.row)}]", self._conditions())
        self.row_arrays[stage.op, index] = name

    def _conditions(self) -> list[str]:
        return [self.first, self.live, self.row_live]

    # ---- a dot whose results are the elements of the rows ---------------------------------------

    def _products(self, dots: Sequence[Stage], op: Op) -> None:
        """Adds up all elements of all rows of `op`, the sum of `dots`, one summed index after the
        other: each operand is read once per row, or once per column."""
        start = self._start_product(dots[0]) if len(dots) == 1 else literal(0, op.dtype)
        name = self._array(op, "_tile", self.rows * self.steps, start)
        many = len(dots) >= FEWEST
        blocks: list[Block] = []
        for stage in dots:
            self._bind_element()
            index = self._index(stage)
            with self.writer.nested("", pinned=True) if many else nullcontext() as block:
                self._add_product(stage, index, name, bool(start))
            blocks += [block] if block else []
        if many:
            self._as_loop(dots, blocks)
        name, size = self._joined(dots[0], op, name)
        finished = self.values.finished(dots[0].op, f"{name}[i]")
        if finished != f"{name}[i]":
            loop = f"FS_UNROLL for (int i = 0; i < {size}; ++i)"
            self.writer.line(f"{loop} {name}[i] = {finished};")
        self.element_arrays[op, index] = name

    def _as_loop(self, dots: Sequence[Stage], blocks: Sequence[Block]) -> None:
        """Turns the statements of several dots, one block each, into a loop over their operands
        where they differ in nothing else."""
        loaded = [op for dot in dots for op, _ in dot.loads]
        computed = [stage.op for dot in dots for stage, _ in dot.reads]
        types = {self.memory.buffer(op): c_type(op.dtype).storage for op in (*loaded, *computed)}
        texts = ["\n".join(block.lines(0)) for block in blocks]
        items = self.writer.block.items
        start = items.index(blocks[0])
        if items[start:] != list(blocks):
            return
        del items[start:]
        for first, end in runs(texts, types):
            repeat = repeat_of(texts[first:end], types) if end - first >= FEWEST else None
            if repeat is None:
                items += blocks[first:end]
            else:
                self._loop_over(repeat, types, end - first)

    def _loop_over(self, repeat: Repeat, types: Mapping[str, str], count: int) -> None:
        """The loop over the buffers of statements that repeat."""
        term = self.writer.name("term")
        tables: dict[str, tuple[str, str]] = {}
        kinds = {name: f"const {types[name]}* const" for name in repeat.buffers}
        kinds |= dict.fromkeys(repeat.places, f"const {self.int}")
        for name, values in (*repeat.buffers.items(), *repeat.places.items()):
            tables[name] = kinds[name], self.writer.name(f"{name}_terms")
            kind, table = tables[name]
            self.writer.line(f"{kind} {table}[{count}] = {{{', '.join(values)}}};")
        header = f"FS_UNROLL_BY(2) for (int {term} = 0; {term} < {count}; ++{term})"
        with self.writer.nested(header, pinned=True):
            for name, (kind, table) in tables.items():
                self.writer.line(f"{kind} {name} = {table}[{term}];")
            for line in repeat.text.splitlines():
                self.writer.line(line)

    def _joined(self, stage: Stage, op: Op, name: str) -> tuple[str, int]:
        """The array with the elements of `op`, a sum of dots of which `stage` is one, where all
        that a thread added up are in `name`; and its size."""
        return name, self.rows * self.steps

    def _load_early(self, sweep: Sequence[Stage]) -> None:
        """Loads what the elements of `sweep` need beside the dots, where it can wait there."""

    def _bind_element(self) -> None:
        """Binds the column of the current element."""
        self._bind_column(self.column)

    def _start_product(self, stage: Stage) -> str:
        """What the sums of a dot start from; '' if its first terms replace it."""
        return literal(0, stage.op.dtype)

    def _add_product(self, stage: Stage, index: Indices, name: str, started: bool) -> None:
        with self._depth(stage) as inner:
            once: dict[Key, str] = {}
            for source, at in body_reads(stage.op, index, inner):
                if not any(self.column.variables & i.variables for i in at):
                    once[source, at] = self._array(source, "_rows", self.rows)
            with self._rows():
                for (source, at), array in once.items():
                    value = self.values.value(source, at)
                    self.writer.line(f"{array}[{render(self.row)}] = {value};")
            with self._loop(self.step), self._column(guarded=False), self._rows(once):
                term = self.values.accumulated(stage.op, index, inner)
                self.writer.line(f"{name}[{self._place()}] += {term};")

    @contextmanager
    def _depth(self, stage: Stage) -> Iterator[Indices]:
        """The loops over the summed index of a dot that runs inside each thread."""
        writer = self.writer
        leaves = self.axes.inner_leaves(stage)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        depth = self.axes.size(leaves)
        unrolled = depth
        if depth > UNROLLED_DEPTH:
            unrolled = max(d for d in range(1, UNROLLED_DEPTH // 2 + 1) if depth % d == 0)
        outer = variable(writer.name("k_block"), depth // unrolled)
        inner = variable(writer.name("k"), unrolled)
        with self._loop(outer, ""), self._loop(inner):
            digits = delinearize(outer * unrolled + inner, extents)
            self.digits |= dict(zip(leaves, digits, strict=True))
            yield self._inner(stage)

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
                zero = literal(0, source.dtype) if self.pairs > 1 else ""
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
            stores: list[tuple[Stage, str]] = []
            for stage in stages:
                if self.nest.place[stage] is Place.DOT:
                    continue
                if stage in totals:
                    index = self._index(stage)
                    term = self.values.accumulated(stage.op, index, self._inner(stage))
                    if stage in terms:
                        place = render(self.pair * self.rows + self.row)
                        self.writer.line(f"{terms[stage]}[{place}] = {term};")
                    else:
                        self._add(stage, f"{totals[stage]}[{render(self.row)}]", term)
                    continue
                stores.append((stage, self._element_of(stage)))
            for (op, at), name in keep.items():
                self.writer.line(f"{name}[{self._place()}] = {self.values.value(op, at)};")
            for (op, at), name in weights.items():
                value = self.values.value(op, at)
                self.writer.line(f"{name}[{render(self._place_in_step())}] = {value};")
            for stage, text in stores:
                self._store(stage, text, [self.live, self.row_live])

    def _element_of(self, stage: Stage) -> str:
        """C text of a stage's value at the current row and column."""
        index = self._index(stage)
        found = self.writer.find((stage.op.id, index))
        text = found[0] if found else self.values.computed(stage.op, index)[0]
        self.writer.block.memo[stage.op.id, index] = text
        return text

    def _add(self, stage: Stage, total: str, term: str) -> None:
        if stage.op.opcode == "dot":
            self.writer.line(f"{total} += {term};")
        else:
            self.writer.line(f"{total} = {functor_of(stage)}::apply({total}, {term});")

    def _free_leaves(self, stage: Stage) -> list[int]:
        """The axes of a dot's results per row."""
        return [x for x in self.group.group.in_block(stage) if x not in self.nest.rows]

    def _bind_results(self, stage: Stage) -> Index:
        """Binds the axes of a dot's results per row to a variable of their own."""
        leaves = self._free_leaves(stage)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        free = variable(self.result, self.axes.size(leaves))
        self.digits |= dict(zip(leaves, delinearize(free, extents), strict=True))
        return free

    def _add_terms(self, results: dict[Stage, str], weights: dict[Key, str]) -> None:
        """Adds the current column's terms to the dots along the columns."""
        for stage, partial in results.items():
            free = self._bind_results(stage)
            with self._loop(free), self._rows(weights):
                self._know_elements()
                value = self.values.accumulated(stage.op, self._index(stage), self._inner(stage))
                place = render(self.row * self._results(stage) + free)
                self.writer.line(f"{partial}[{place}] += {value};")

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
        place = f"[{render(self.row)}]"
        with self._rows():
            total = f"{partial}{place}"
            if self.lanes > 1:
                total = f"fs_reduce_lanes<{self.lanes}, {functor_of(stage)}>({total})"
            self.writer.line(f"{name}{place} = {self.values.finished(op, total)};")
            self._store(stage, f"{name}{place}", self._conditions())
        self.row_arrays[op, index] = name

    def _finish_results(self, stage: Stage, partial: str) -> None:
        """Joins the lanes' sums so that each lane ends with its share of a row's results."""
        if self.lanes > 1:
            padded = self._results(stage)
            with self._rows():
                at = f"{partial} + {render(self.row * padded)}" if self.rows > 1 else partial
                self.writer.line(f"fs_scatter_lanes<{self.lanes}, {padded}, FsAdd>({at});")
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
        live = " && ".join(c for c in (self.live, self.row_live) if c)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        own = self._guarded(f"if ({live})" if live else "")
        each = self._each_result(dots[0], self.axes.size(leaves))
        with self._rows(), own, each as (place, result):
            self.digits |= dict(zip(leaves, delinearize(result, extents), strict=True))
            memo = self.writer.block.memo
            for dot in dots:
                total = self.values.finished(dot.op, f"{self.sums[dot]}[{place}]")
                memo[dot.op.id, self._index(dot)] = total
            stores = []
            for stage in stages:
                found = self.writer.find((stage.op.id, self._index(stage)))
                text = found[0] if found else self.values.computed(stage.op, self._index(stage))[0]
                memo[stage.op.id, self._index(stage)] = text
                stores.append((stage, text))
            for stage, text in stores:
                self._store(stage, text, [])

    @contextmanager
    def _each_result(self, dot: Stage, size: int) -> Iterator[tuple[str, Index]]:
        """The results of a row that a lane holds: their places among its sums, their numbers."""
        lanes, padded = self.lanes, self._results(dot)
        share, group = max(1, padded // lanes), max(1, lanes // padded)
        own = variable(self.writer.name("own"), share)
        lane = variable(self.lane, lanes) if lanes > 1 else Index()
        first = self._guarded(f"if ({self.lane} % {group} == 0)" if group > 1 else "")
        existing = self._existing(lane // group * share + own, size)
        with first, self._loop(own), existing as result:
            yield render(self.row * padded + own), result

    @contextmanager
    def _existing(self, result: Index, size: int) -> Iterator[Index]:
        """`result` as a number below `size`; what is beyond is left out."""
        if result.hi < size:
            yield result
            return
        name = self.writer.declare(self.writer.name("result"))
        self.writer.line(f"const int {name} = {render(result)};")
        with self._guarded(f"if ({name} < {size})"):
            yield variable(name, size)

    # ---- values kept from sweep to sweep --------------------------------------------------------

    def _kept_from(self, level: int) -> dict[Key, str]:
        """Arrays for the elements that this sweep computes and a later one needs: the last values
        that the two have in common."""
        uses = self._common_values()
        found: dict[Key, str] = {}
        room = KEPT_REGISTERS
        for (op, at), levels in uses.items():
            need = self.rows * self.steps * max(4, compute_bytes(op.dtype)) // 4
            if min(levels) != level or (op, at) in self.element_arrays or need > room:
                continue
            room -= need
            found[op, at] = self._array(op, "_tile", self.rows * self.steps)
        return found

    def _swept(self) -> list[Stage]:
        """The stages that sweeps along the rows compute, those given by dots left out."""
        apart = (Place.ROW, Place.RESULT)
        rest = [s for s in self.nest.stages if s not in self.nest.products]
        return [s for s in rest if self.nest.place[s] not in apart]

    def _common_values(self) -> dict[Key, set[int]]:
        """Elements needed by sweeps of several levels, and by something that only one of them
        computes: what stands behind such a value needs no register."""
        self._bind_column(self.column)
        levels: dict[Key, set[int]] = {}
        users: dict[Key, list[Key | None]] = {}
        for stage in self._swept():
            level = self.nest.level[stage]
            if self.nest.place[stage] is Place.DOT:
                self._bind_results(stage)
            index, inner = self._index(stage), self._inner(stage)
            start: Key | None = None
            if self.nest.place[stage] is Place.SWEEP and stage.op.id in self.whole:
                start = stage.op, index
                levels.setdefault(start, set()).add(level)
            for key, user in self._reached(stage, index, inner):
                levels.setdefault(key, set()).add(level)
                users.setdefault(key, []).append(start if user is None else user)
        return {
            (op, at): found
            for (op, at), found in levels.items()
            if len(found) > 1
            and any(self.column.variables & i.variables for i in at)
            and not any(v.name == self.result for i in at for v in i.variables)
            and in_range(op, at)
            and any(u is None or levels[u] != found for u in users.get((op, at), [None]))
        }

    def _reached(
        self, stage: Stage, index: Indices, inner: Indices
    ) -> Iterator[tuple[Key, Key | None]]:
        """Every value a stage computes or reads, with what asks for it (None: the stage)."""
        seen: set[Key] = set()
        todo: list[tuple[Key, Key | None]] = [
            (read, None) for read in body_reads(stage.op, index, inner)
        ]
        while todo:
            key, user = todo.pop()
            yield key, user
            op, at = key
            if key in seen or op.id in self.whole or op.opcode == "parameter":
                continue
            seen.add(key)
            todo += [(read, key) for read in inlined_reads(op, at)]

    def _buffer(self, name: str) -> str:
        return f"fs_aligned({name})"
