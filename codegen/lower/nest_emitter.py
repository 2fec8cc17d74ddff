"""Emission of one nest: a loop over rows, and at each row the sweeps of every level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Element,
    Expr,
    Integer,
    Name,
    Number,
    all_of,
    behind,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Call,
    Fill,
    For,
    Frame,
    Group,
    If,
    Let,
    unrolled,
)
from fusionstitch.codegen.loops.nests import CACHE_STEPS, Place
from fusionstitch.codegen.loops.stages import Stage, closure
from fusionstitch.codegen.lower.access import Site
from fusionstitch.codegen.lower.rows import RowLoop, row_loop
from fusionstitch.codegen.lower.sweeps import Held, Sweep, Sweeps, functor_of, start_of
from fusionstitch.codegen.places.index import (
    Fetched,
    Index,
    Var,
    constant,
    linearize,
    render,
    substituted,
    variable,
)
from fusionstitch.codegen.places.maps import Indices, in_range
from fusionstitch.codegen.places.vectors import ACCESS_BYTES, aligned_base
from fusionstitch.codegen.schedule.schedule import RESIDENT_THREADS, mostly_busy
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import ITEM_BYTES, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Loads of a thread under way at once where it sums columns from row to row.
ROW_LOADS = 8
#: Bytes of a line of memory.
LINE_BYTES = 128
#: Trial names: vector widths are tried on indices that are never printed.
_TRIAL = Var("trial_lane", 1)


class NestEmitter(Sweeps):
    """Prints one nest of a group inside one tile."""

    def __init__(self, site: Site):
        super().__init__(site)
        kernel = site.kernel
        self.comment = kernel.comment
        self.points: Expr = Name(site.points) if site.points else number(site.group.grid_points)
        self.widest = kernel.plan.tuning.vector_bytes or ACCESS_BYTES
        self.full = kernel.plan.full
        #: whether the loads of all threads together do not cover the latency of memory
        self.few_threads = kernel.plan.resident < RESIDENT_THREADS

    def emit(self) -> None:
        """Prints the nest into the writer's innermost block."""
        writer, plan = self.writer, self.plan
        for stage in self.nest.stages:
            writer.note(self.comment(stage.op))
        self._open_rooms()
        flat = plan.inner == 1 and plan.teams.threads == 1
        self.width = self._vector_width(flat)
        if self.width > 1:
            self._element = variable(writer.name("v"), self.width)
        rows = plan.rows // self.width if flat else plan.rows
        limit = self._row_limit(self.width if flat else 1)
        row = variable(writer.name("row"), rows)
        loop = row_loop(render(row), rows, limit, plan.teams, self.block, self.int)
        for stage in self.nest.placed(Place.CARRY):
            self._start_carrying(stage)
        if not flat and self._walks_ahead(loop):
            self._name_lane(loop)
            self._hold_inputs(row, loop)
        frame = loop.frame
        with ExitStack() as opened:
            if self.carried and loop.stride and not self.nest.placed(Place.REDUCE):
                frame = self._unrolled(row, loop)
                opened.enter_context(self._live_columns(loop))
            # without a loop, what all rows have in common need not precede the loads of one
            if frame or not flat:
                # threads without the only row must not read what its own overwrites in place
                alone = frame is not None and rows == 1
                opened.enter_context(writer.nested(frame or Group(), pinned=alone, ordered=True))
            if loop.row:
                writer.let(self.int, render(row), loop.row)
            if row.terms:
                writer.declare(render(row))
            self.live = loop.live
            self._name_lane(loop)
            if flat and self.width > 1:
                self._flat_vectors(row)
            else:
                self._bind_rows(row, self._position(row, 1))
                if self.held:
                    self._next_row(row, loop)
                self.sweep = self._plan_sweep()
                self._pick_early()
                for level in range(self.nest.levels):
                    self._level(level)
        if self.carried:
            self._finish_carrying()

    def _pick_early(self) -> None:
        """Reads what the data picks for a row before its sweeps, which hide that one load waits for
        another."""
        column = self.sweep.unit * self.width + self._element
        self._bind_column(column)
        for stage in (s for level in range(1, self.nest.levels) for s in self.nest.at(level)):
            for op, at in closure(stage.op, self._index(stage), self._inner(stage), self.whole)[0]:
                picked = op.opcode == "parameter" and any(i.fetched for i in at)
                moves = any(column.variables & i.variables for i in at)
                if picked and not moves and all(self._ready(f) for i in at for f in i.fetched):
                    self.values.value(op, at)

    def _ready(self, place: Fetched) -> bool:
        """Whether inputs alone decide a place."""
        if place.op.opcode == "parameter":
            return True
        if place.op.id in self.whole or kind_of(place.op.opcode) in (Kind.REDUCTION, Kind.DOT):
            return False
        leaves, _ = closure(place.op, place.at, (), self.whole)
        return all(op.opcode == "parameter" for op, _ in leaves)

    def _name_lane(self, loop: RowLoop) -> None:
        """Names the thread's place in its team, once."""
        if loop.lane and not self.lane:
            self.lane = self.writer.name("lane")
            self.writer.let("int", self.lane, loop.lane)
            self.first = infix("==", Name(self.lane), 0)

    def _row_limit(self, width: int) -> Expr:
        """The rows in this tile, in units of `width`."""
        group, rows = self.group, self.plan.rows
        if not group.ragged:
            return number(rows // width)
        limit = self.writer.name("row_count")
        left = self.points
        if group.tiles > 1:
            left = infix("-", left, infix("*", Name(self.tile), group.points))
        count: Expr = least("", group.points, left)
        scale = rows // group.points
        count = infix("*", count, scale) if scale > 1 else count
        count = infix("/", count, width) if width > 1 else count
        self.writer.let(self.int, limit, count)
        return Name(limit)

    def _flat_vectors(self, row: Index) -> None:
        """Rows of one element each: a thread takes `width` neighbours."""
        unit = self._position(row, self.width)
        with self._vector_loop() as lane:
            self._bind_rows(row * self.width + lane, unit * self.width + lane)
            self._load_vectors()
            for level in range(self.nest.levels):
                self._step(self.nest.at(level), {})

    def _load_vectors(self) -> None:
        """Loads the vectors of all inputs before anything is computed, so that none waits for what
        the rows have in common: the powers of an optimizer's step, say."""
        if self.vector is None:
            return
        for stage in self.nest.stages:
            leaves, _ = closure(stage.op, self._index(stage), self._inner(stage), self.whole)
            for op, at in leaves:
                base = self.vector.base(linearize(at, op.dims))
                if op.opcode == "parameter" and base is not None and in_range(op, at):
                    self.values.value(op, at)

    # ---- vectors --------------------------------------------------------------------------------

    def _vector_width(self, flat: bool) -> int:
        """Elements per access: the most for which every store and some load is one vector."""
        plan, group = self.plan, self.group
        team = plan.teams.threads
        if not flat and (team == 1 or plan.teams.columns or plan.inner == 1):
            return 1
        if flat and group.tiles * plan.rows < self.full:
            return 1
        along = [s for s in self.nest.stages if self.nest.place[s] is not Place.ROW]
        sizes = [
            ITEM_BYTES[s.op.dtype]
            for s in along
            if self.nest.place[s] is Place.SWEEP and self._stores(s)
        ]
        sizes += [ITEM_BYTES[op.dtype] for s in along for op, at in s.loads if _moves_with(s, at)]
        width = max(1, self.widest // max(sizes, default=self.widest))
        while width > 1 and not self._fits(width, flat):
            width //= 2
        return width

    def _fits(self, width: int, flat: bool) -> bool:
        """Tries `width` on indices made of trial variables."""
        plan, group, team = self.plan, self.group, self.plan.teams.threads
        lane = Index(((Var(_TRIAL.name, width), 1),))
        tile = variable("trial_tile", group.tiles)
        if flat:
            if plan.rows != group.points or group.points % width or group.grid_points % width:
                return False
            row = variable("trial_row", plan.rows // width) * width + lane
            self._bind_rows(row, tile * group.points + row)
        else:
            if plan.inner % width or not mostly_busy(plan.inner // width, team):
                return False
            row = variable("trial_row", plan.rows)
            self._bind_rows(row, tile * group.points + row // (plan.rows // group.points))
            self._bind_column(variable("trial_column", plan.inner // width) * width + lane)
        loads = 0
        for stage in self.nest.stages:
            if self.nest.place[stage] is Place.ROW:
                continue
            index = self._index(stage)
            if self._stores(stage) and self.nest.place[stage] is Place.SWEEP:
                address = linearize(index, stage.op.dims)
                if aligned_base(address, Var(_TRIAL.name, width), width) is None:
                    return False
            for op, at in closure(stage.op, index, self._inner(stage), self.whole)[0]:
                if op.opcode == "parameter" and in_range(op, at):
                    address = linearize(at, op.dims)
                    base = aligned_base(address, Var(_TRIAL.name, width), width)
                    loads += base is not None
        return loads > 0

    # ---- inputs held from row to row ------------------------------------------------------------

    def _hold_inputs(self, row: Index, loop: RowLoop) -> None:
        """Decides which inputs stay in registers as loaded, and loads the first row's.

        Rows come first; then they are fetched ahead, so that their latency passes while another
        row is worked on; then what all rows read alike is loaded once.
        """
        self.sweep = Sweep(unit=self._new_unit(), steps=self._steps())
        rows: list[Held] = []
        steady: list[Held] = []
        for (name, base), op in self._vector_inputs(row).items():
            varies = bool(row.variables & base.variables)
            array = self.writer.name(f"{name}_{'row' if varies else 'columns'}")
            (rows if varies else steady).append(Held(op, name, base, array, not varies))
        rows = [held for held in rows if self._take_registers(held)]
        self.held = [
            replace(held, ahead=self.writer.name(f"{held.name}_next"))
            if self._take_registers(held)
            else held
            for held in rows
        ]
        self.held += [held for held in steady if self._take_registers(held)]
        if not self.held:
            return
        first = constant(0)
        if loop.first is not None and loop.first != Number("0"):
            first = variable(self.writer.name("first_row"), self.plan.rows)
            self.writer.let(self.int, render(first), loop.first)
            self.writer.declare(render(first))
        arrays = {held: held.ahead or held.array for held in self.held if held.ahead or held.steady}
        for held, array in arrays.items():
            self._declare_vectors(held, array)
        self._load_held(arrays, row, first)

    def _take_registers(self, held: Held) -> bool:
        """Sets registers aside for the vectors of a row if there are enough."""
        need = self._steps() * self.width * ITEM_BYTES[held.op.dtype] // 4
        if need > self.registers:
            return False
        self.registers -= need
        return True

    def _walks_ahead(self, loop: RowLoop) -> bool:
        """True if threads visit several rows each, and wait for other threads at every one."""
        several = 0 < loop.stride < self.plan.rows and not self.group.ragged
        waits = self.plan.teams.threads > 1 and self.nest.placed(Place.REDUCE)
        fits = self.plan.inner > 1 and self._steps() * self.width <= CACHE_STEPS
        return bool(several and waits and fits and self.width > 1)

    def _next_row(self, row: Index, loop: RowLoop) -> None:
        """Takes over the inputs that were fetched ahead, loads the others, fetches the next row."""
        ahead = {held: held.ahead for held in self.held if held.ahead}
        now = {held: held.array for held in self.held if not held.ahead and not held.steady}
        for held in (*ahead, *now):
            self._declare_vectors(held, held.array)
        if now:
            self._load_held(now, row, row)
        if ahead:
            with self.writer.nested(unrolled("i", self._steps())):
                for held in ahead:
                    into, of = Name(held.array), Name(held.ahead)
                    self.writer.add(Assign(Element(into, Name("i")), Element(of, Name("i"))))
        announced = self.few_threads and (ahead or now)
        if not (ahead or announced):
            return
        with self._row_ahead(row, loop.stride) as following:
            if announced and now:
                with self.writer.nested(If(self._line_starts(now)), pinned=True):
                    self._announce(tuple(now), row, following)
            if announced and ahead and 2 * loop.stride < self.plan.rows:
                condition = self._line_starts(ahead)
                with self._row_ahead(following, loop.stride, condition) as later:
                    self._announce(tuple(ahead), row, later)
            if ahead:
                self._load_held(ahead, row, following)

    @contextmanager
    def _row_ahead(
        self, row: Index, distance: int, condition: Expr | None = None
    ) -> Iterator[Index]:
        """The row that comes `distance` rows later, if there is one and where `condition` holds."""
        following = variable(self.writer.name("next_row"), self.plan.rows)
        name, limit = render(following), self.plan.rows
        given = Let(self.int, name, infix("+", Integer(row), distance))
        there = all_of([infix("<", Name(name), limit), condition])
        assert there is not None
        with self.writer.nested(If(there, given), pinned=True):
            self.writer.declare(name)
            yield following

    def _line_starts(self, inputs: Iterable[Held]) -> Expr:
        """Whether the vectors of a thread are the first ones in their lines of memory."""
        widest = max(ITEM_BYTES[held.op.dtype] for held in inputs)
        vectors = max(1, LINE_BYTES // (self.width * widest))
        return infix("==", infix("%", Name(self.lane), vectors), 0)

    def _announce(self, inputs: Sequence[Held], row: Index, at: Index) -> None:
        """Brings row `at` to L2; inputs are known by their bases in `row`."""

        def announce(_step: Expr | None) -> None:
            for held in inputs:
                base = substituted(held.base, row, at)
                self.writer.add(Call("fs_announce", (behind(Name(held.name), base),)))

        self._run_sweep(announce)

    def _vector_inputs(self, row: Index) -> dict[tuple[str, Index], Op]:
        """The inputs that sweeps along `row` read as vectors, by memory and base."""
        self._bind_rows(row, self._position(row, 1))
        found: dict[tuple[str, Index], Op] = {}
        for op, at in self._uses(self.sweep.unit * self.width + self._element):
            base = self._base(op, at)
            if base is not None:
                found.setdefault((self.memory.inputs[op.id], base), op)
        return found

    def _declare_vectors(self, held: Held, array: str) -> None:
        kind = f"fs_loaded<{c_type(held.op.dtype).storage}, {self.width}>"
        self.writer.add(Array(kind, array, self._steps()))

    def _load_held(self, arrays: Mapping[Held, str], row: Index, at: Index) -> None:
        """Fills arrays with the vectors of row `at`; inputs are known by their bases in `row`."""

        def load(step: Expr | None) -> None:
            assert step is not None
            for held, array in arrays.items():
                base = substituted(held.base, row, at)
                vector = self._vector_load(held.op, held.name, base, self.width)
                self.writer.add(Assign(Element(Name(array), step), vector))

        self._run_sweep(load)

    # ---- sums carried from row to row -----------------------------------------------------------

    def _start_carrying(self, stage: Stage) -> None:
        """A register array for the sums of this thread's columns."""
        name = self.writer.name(f"{self.label(stage.op)}_carried")
        size = self._steps() * self.width
        self.writer.add(Array(self._compute(stage), name, size))
        self.writer.add(Fill(name, size, start_of(stage)))
        self.carried[stage] = name
        self.registers -= size

    def _unrolled(self, row: Index, loop: RowLoop) -> Frame | None:
        """A loop that only sums, over as many rows at once as memory wants loads of under way and
        registers can hold."""
        self.sweep = Sweep(unit=self._new_unit(), steps=self._steps())
        inputs = self._vector_inputs(row).values()
        words = sum(self._steps() * self.width * ITEM_BYTES[op.dtype] // 4 for op in inputs)
        loads = self._steps() * len(inputs)
        most = min(ROW_LOADS // max(1, loads), self.registers // max(1, words))
        rows = 1 << max(1, most).bit_length() - 1
        if isinstance(loop.frame, For) and rows > 1:
            return replace(loop.frame, unroll=rows)
        return loop.frame

    @contextmanager
    def _live_columns(self, loop: RowLoop) -> Iterator[None]:
        """Where no thread has several columns, asks whether this one has any: around the rows, not
        in each of them, so that loads of several rows can be under way."""
        units, column = self.plan.inner // self.width, render(self.sweep.unit)
        self._name_lane(loop)
        if self._steps() > 1 or not self.lane:
            yield
            return
        own = Let(self.int, column, Name(self.lane))
        with self.writer.nested(If(infix("<", Name(column), units), own)):
            self.writer.declare(column)
            self.sweep.opened = True
            yield
        self.sweep.opened = False

    def _finish_carrying(self) -> None:
        """Joins the sums of the block's teams; the first team stores them."""
        writer, threads = self.writer, self.plan.teams.threads
        first = None
        if threads < self.block:
            first = infix("<", THREAD, threads)
            size = self._steps() * self.width
            for stage, name in self.carried.items():
                join = f"fs_reduce_teams<{threads}, {size}, {functor_of(stage)}>"
                writer.add(Call(join, (Name(name), Name(self.rooms[stage]))))
        with writer.nested(If(first), ordered=True) if first else nullcontext():
            if threads > 1:
                self.lane = writer.name("lane")
                writer.let("int", self.lane, infix("%", THREAD, threads))
            self._run_sweep(self._store_carried)

    def _store_carried(self, step: Expr | None) -> None:
        """One vector of the sums of a block's columns."""
        with self._vector_loop() as lane:
            self._bind_column(self.sweep.unit * self.width + lane)
            for stage, name in self.carried.items():
                total = Element(Name(name), self._slot(step, lane))
                self._store(stage, self.values.finished(stage.op, total), [])


def _moves_with(stage: Stage, index: Indices) -> bool:
    """Whether a stage's neighbouring elements, along its last axis, read at different places."""
    last = next((i for i in reversed((*stage.dims, *stage.inner)) if i.terms), Index())
    return any(last.variables & i.variables for i in index)
