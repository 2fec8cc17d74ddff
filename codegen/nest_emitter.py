"""Emission of one nest: a loop over rows, and at each row the sweeps of every level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from codegen.expressions import combine, literal
from codegen.index import Fetched, Index, Var, constant, delinearize, linearize, render, variable
from codegen.maps import Indices
from codegen.nests import Place
from codegen.rows import RowLoop, row_loop
from codegen.schedule import RESIDENT_THREADS, SLOT_BYTES, GroupPlan, KernelPlan, NestPlan
from codegen.stages import Stage, body_reads, closure, inlined_reads
from codegen.types import c_type, compute_bytes
from codegen.values import Placed, Values
from codegen.vectors import ACCESS_BYTES, Vector, aligned_base
from hlo.errors import CodegenError
from hlo.graph import ITEM_BYTES, Op
from hlo.semantics import Kind, kind_of

if TYPE_CHECKING:
    from codegen.emit import KernelEmitter

#: Registers of an SM (4-byte units), and those of a thread that nothing is kept in.
SM_REGISTERS, SPARE_REGISTERS = 65536, 28
#: Sweeps of at most this many elements per thread are unrolled and keep values for the next one.
CACHE_STEPS = 32
#: Loads of a thread under way at once where its team reads down a column.
COLUMN_LOADS = 16
#: Trial names: vector widths are tried on indices that are never printed.
_TRIAL = Var("trial_lane", 1)

Key = tuple[Op, Indices]


@dataclass
class Sweep:
    """How each row is walked: `steps` vectors of `width` elements per thread (0 steps: a plain
    loop), and what is kept: (op, index) -> (register array, level of the sweep that fills it)."""

    unit: Index = field(default_factory=Index)
    steps: int = 0
    kept: dict[Key, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """An input that stays in registers: `array` holds the vectors at `base`, which are the same in
    all rows if it is `steady`, and `ahead` ('' if none) those of the next row."""

    op: Op
    name: str
    base: Index
    array: str
    steady: bool
    ahead: str = ""


class NestEmitter:
    """Prints one nest of a group inside one tile."""

    def __init__(
        self,
        kernel: KernelEmitter,
        group: GroupPlan,
        nest: NestPlan,
        tile: str,
        shared_names: dict[Stage, str],
        points: str = "",
    ):
        self.label = kernel.label
        self.comment = kernel.comment
        self.points = points or str(group.grid_points)
        self.memory = kernel.memory
        self.block = kernel.plan.block
        tuning = kernel.plan.tuning
        self.widest = tuning.vector_bytes or ACCESS_BYTES
        self.full = kernel.plan.full
        self.int = kernel.int
        self.writer = kernel.writer
        self.values = Values(
            self.writer, self._stored, kernel.numerics, self.memory.tables, kernel.label, self.int
        )
        self.group = group
        self.axes = group.group.axes
        self.plan = nest
        self.nest = nest.nest
        self.tile = tile
        self.shared_names = shared_names
        #: the stages that the loops of this group read whole, by op id
        self.whole = {p.op.id: p for s in group.group.stages for p, _ in s.reads}
        self.digits: dict[int, Index] = {}
        self.point = Index()
        self.sweep = Sweep()
        #: registers per thread that rows and sums may be kept in
        self.registers = _row_registers(kernel.plan)
        self.carried: dict[Stage, str] = {}
        self.held: list[Held] = []
        #: whether warps may still read what they joined
        self.unsettled = False
        self.width = 1
        self._element = Index()
        self.vector: Vector | None = None
        self.pending: list[tuple[str, str, str, str]] = []
        self.live = self.first = self.lane = ""

    # ---- rows -----------------------------------------------------------------------------------

    def emit(self) -> None:
        """Prints the nest into the writer's innermost block."""
        writer, plan = self.writer, self.plan
        for stage in self.nest.stages:
            writer.line(self.comment(stage.op))
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
        with writer.nested(loop.header, ordered=True):
            if loop.row:
                writer.line(loop.row)
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
        if self.unsettled:
            self.writer.line("__syncthreads();")
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
            self.writer.line(f"const int {self.lane} = {loop.lane};")
            self.first = f"{self.lane} == 0"

    def _row_limit(self, width: int) -> str:
        """C text of the rows in this tile, in units of `width`."""
        group, rows = self.group, self.plan.rows
        if not group.ragged:
            return str(rows // width)
        limit = self.writer.name("row_count")
        left = self.points
        if group.tiles > 1:
            left += f" - {self.tile} * {group.points}"
        count = f"fs_min({group.points}, {left})"
        scale = rows // group.points
        count += f" * {scale}" if scale > 1 else ""
        count += f" / {width}" if width > 1 else ""
        self.writer.line(f"const {self.int} {limit} = {count};")
        return limit

    def _flat_vectors(self, row: Index) -> None:
        """Rows of one element each: a thread takes `width` neighbours."""
        unit = self._position(row, self.width)
        with self._vector_loop() as lane:
            self._bind_rows(row * self.width + lane, unit * self.width + lane)
            for level in range(self.nest.levels):
                self._step(self.nest.at(level), {})

    def _position(self, row: Index, width: int) -> Index:
        """The grid point of `row`, in units of `width`."""
        group = self.group
        kept = self.plan.rows // group.points
        point = row // kept if width == 1 else row
        if width > 1 and kept > 1:
            return Index()  # rows inside a block are not split off grid points
        position = variable(self.tile, group.tiles) * (group.points // width) + point
        if not group.ragged:
            return position
        name = self.writer.name("point")  # a variable of its own has the exact range
        self.writer.line(f"const {self.int} {name} = {render(position)};")
        self.writer.declare(name)
        return variable(name, group.grid_points // width)

    def _bind_rows(self, row: Index, position: Index) -> None:
        """Digits of every grid and row axis in terms of the tile and row variables."""
        if self.group.backward and self.carried:
            row = constant(self.plan.rows - 1) - row
        leaves, grid = self.nest.rows, self.group.group.grid
        extents = [self.group.points, *(self.axes.extent(leaf) for leaf in leaves)]
        self.point, *row_digits = delinearize(row, extents)
        grid_digits = delinearize(position, [self.axes.extent(leaf) for leaf in grid])
        self.digits = dict(zip(grid, grid_digits, strict=True))
        self.digits |= dict(zip(leaves, row_digits, strict=True))

    def _bind_column(self, column: Index) -> None:
        leaves = self.nest.inner
        digits = delinearize(column, [self.axes.extent(leaf) for leaf in leaves])
        self.digits |= dict(zip(leaves, digits, strict=True))

    def _index(self, stage: Stage) -> Indices:
        """The index of a stage's op at the current grid point, row and column."""
        return self._digits_of(self.axes.dims[stage.number])

    def _inner(self, stage: Stage) -> Indices:
        return self._digits_of(self.axes.inner[stage.number])

    def _digits_of(self, chains: Sequence[int]) -> Indices:
        found = []
        for axis in chains:
            leaves = [leaf for leaf in self.axes.set.leaves(axis) if self.axes.extent(leaf) != 1]
            extents = [self.axes.extent(leaf) for leaf in leaves]
            found.append(linearize([self.digits[leaf] for leaf in leaves], extents))
        return tuple(found)

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
            if plan.inner % width or not _mostly_busy(plan.inner // width, team):
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
                if op.opcode == "parameter" and _in_range(op, at):
                    address = linearize(at, op.dims)
                    base = aligned_base(address, Var(_TRIAL.name, width), width)
                    loads += base is not None
        return loads > 0

    def _stores(self, stage: Stage) -> bool:
        return stage.op.id in self.memory.outputs or stage.op.id in self.memory.scratch

    @contextmanager
    def _vector_loop(self) -> Iterator[Index]:
        """The unrolled loop over a vector; its stores follow as vector stores."""
        if self.width == 1:
            yield Index()
            return
        writer, name = self.writer, render(self._element)
        self.vector = Vector(self.width, Var(name, self.width), writer.depth)
        with writer.nested(f"FS_UNROLL for (int {name} = 0; {name} < {self.width}; ++{name})"):
            writer.declare(name)
            yield self._element
        self.vector = None
        for target, address, values, condition in self.pending:
            store = f"fs_store_vec({target} + {address}, {values});"
            writer.line(f"if ({condition}) {store}" if condition else store)
        self.pending.clear()

    # ---- levels and sweeps ----------------------------------------------------------------------

    def _level(self, level: int) -> None:
        """The values of each row first, then one sweep for all that runs along the row."""
        stages = self.nest.at(level)
        for stage in stages:
            if self.nest.place[stage] is Place.ROW:
                text = self.values.computed(stage.op, self._index(stage))[0]
                self.writer.block.memo[stage.op.id, self._index(stage)] = text
                self._store(stage, text, [self.first, self.live])
        sweep = [s for s in stages if self.nest.place[s] is not Place.ROW]
        if not sweep:
            return
        totals: dict[Stage, str] = {}
        for stage in sweep:
            if self.nest.place[stage] is Place.REDUCE:
                totals[stage] = self.writer.name(f"{self.label(stage.op)}_partial")
                self.writer.line(f"{self._compute(stage)} {totals[stage]} = {_start(stage)};")
        self._run_sweep(lambda step: self._sweep_step(level, sweep, totals, step))
        if totals and self.plan.joins_block(self.block):
            self._join_block(level, totals)
        for stage, name in totals.items():
            self._finish(stage, name)

    def _run_sweep(self, body: Callable[[str], None]) -> None:
        """A walk along the row; `body` gets the C text of the step it is at ('' where steps are
        not numbered)."""
        writer, sweep, int_ = self.writer, self.sweep, self.int
        if self.plan.inner == 1:
            body("")
            return
        name, threads = render(sweep.unit), self.plan.teams.threads
        units = self.plan.inner // self.width
        if threads >= units and self.lane:
            header = f"if (const {int_} {name} = {self.lane}; {name} < {units})"
            with writer.nested(header):
                writer.declare(name)
                body("0")
        elif sweep.steps:
            inside = f"if ({name} < {units})" if units % threads else ""
            with writer.nested(f"FS_UNROLL for (int step = 0; step < {sweep.steps}; ++step)"):
                place = f"step * {threads} + {self.lane}" if self.lane else "step"
                writer.line(f"const {int_} {name} = {place};")
                writer.declare(name)
                with writer.nested(inside, pinned=True) if inside else nullcontext():
                    body("step")
        else:
            advance = f"{name} += {threads}" if threads > 1 else f"++{name}"
            start = self.lane or "0"
            # down a column, addresses are far apart: many loads must be under way at once
            unroll = f"FS_UNROLL_BY({COLUMN_LOADS}) " if self.plan.teams.columns else ""
            header = f"for ({int_} {name} = {start}; {name} < {units}; {advance})"
            with writer.nested(unroll + header):
                writer.declare(name)
                body("")

    def _plan_sweep(self) -> Sweep:
        """Names the column variable and picks the values kept from sweep to sweep."""
        nest, inner = self.nest, self.plan.inner
        if inner == 1:
            return Sweep()
        unit = self.sweep.unit if self.held else self._new_unit()
        steps = self._steps()
        kept = nest.levels > 1 and steps * self.width <= CACHE_STEPS
        if not (kept or self.carried or self.held):
            return Sweep(unit=unit)
        sweep = Sweep(unit=unit, steps=steps)
        for (op, at), level in self._kept(unit * self.width + self._element).items():
            need = steps * self.width * _words(op)
            if need > self.registers:
                continue
            self.registers -= need
            name = self.writer.name(f"{self.label(op)}_row")
            self.writer.line(f"{c_type(op.dtype).compute} {name}[{steps * self.width}];")
            sweep.kept[op, at] = (name, level)
        return sweep

    def _new_unit(self) -> Index:
        """A name for the thread's place along the row, in vectors."""
        return variable(self.writer.name("column"), self.plan.inner // self.width)

    def _steps(self) -> int:
        """Vectors of a row per thread."""
        return -(-self.plan.inner // (self.plan.teams.threads * self.width))

    def _kept(self, column: Index) -> dict[Key, int]:
        """Values worth keeping from sweep to sweep, by the level that has them first: what is
        loaded, or what is computed of it where that takes no more registers."""
        uses = self._uses(column)
        loaded = {key: min(levels) for key, levels in uses.items() if len(levels) > 1}
        choices = [
            {key: level for key, level in kept.items() if not self._is_held(*key)}
            for kept in (self._last_common(column), loaded)
        ]
        return min(choices, key=lambda kept: sum(_words(op) for op, _ in kept))

    def _last_common(self, column: Index) -> dict[Key, int]:
        """What later sweeps share with earlier ones, as far computed as it is shared."""
        first: dict[Key, int] = {}
        shared: dict[Key, int] = {}
        stages = [s for s in self.nest.stages if self.nest.place[s] is not Place.ROW]
        for stage in sorted(stages, key=lambda s: self.nest.level[s]):
            level = self.nest.level[stage]
            index = self._index(stage)
            passed = set()
            todo = body_reads(stage.op, index, self._inner(stage))
            while todo:
                op, at = key = todo.pop()
                along = any(column.variables & i.variables for i in at)
                if key in passed or not along or op.opcode == "iota":
                    continue
                passed.add(key)
                if _in_range(op, at) and first.setdefault(key, level) < level:
                    shared[key] = first[key]
                elif op.opcode != "parameter" and op.id not in self.whole:
                    todo.extend(inlined_reads(op, at))
            if stage.op.id in self.whole:
                first.setdefault((stage.op, index), level)
        return shared

    def _uses(self, column: Index) -> dict[Key, set[int]]:
        """Values that lie along the row, by the levels of the sweeps that need them."""
        self._bind_column(column)
        uses: dict[Key, set[int]] = {}
        for stage in self.nest.stages:
            if self.nest.place[stage] is Place.ROW:
                continue
            index, level = self._index(stage), self.nest.level[stage]
            if self.nest.place[stage] is Place.SWEEP and stage.op.id in self.whole:
                uses.setdefault((stage.op, index), set()).add(level)
            for op, at in closure(stage.op, index, self._inner(stage), self.whole)[0]:
                if _in_range(op, at) and any(column.variables & i.variables for i in at):
                    uses.setdefault((op, at), set()).add(level)
        return uses

    def _sweep_step(
        self, level: int, stages: list[Stage], totals: dict[Stage, str], step: str
    ) -> None:
        """One vector of a sweep, reading from or filling the values kept in registers."""
        sweep = self.sweep
        if self.plan.inner == 1:
            self._step(stages, totals)
            return
        with self._vector_loop() as lane:
            self._bind_column(sweep.unit * self.width + lane)
            where = self._slot(step, lane)
            for held in self.held:
                self._vectors_before()[held.name, held.base] = f"{held.array}[{step}]"
            totals = totals | {s: f"{name}[{where}]" for s, name in self.carried.items()}
            for (op, at), (name, first) in sweep.kept.items():
                if first < level:
                    self.writer.block.memo[op.id, at] = f"{name}[{where}]"
            self._step(stages, totals)
            for (op, at), (name, first) in sweep.kept.items():
                if first == level:
                    self.writer.line(f"{name}[{where}] = {self.values.value(op, at)};")

    def _slot(self, step: str, lane: Index) -> str:
        """The place in a register array of the current element."""
        if not lane.terms:
            return step or "0"
        if not step or step == "0":
            return render(lane)
        return f"{step} * {self.width} + {render(lane)}"

    def _step(self, stages: list[Stage], totals: dict[Stage, str]) -> None:
        """The body of a sweep: all values first, then all stores, so in-place updates are safe."""
        stores: list[tuple[Stage, str]] = []
        for stage in stages:
            index = self._index(stage)
            if stage in totals:
                term = self.values.accumulated(stage.op, index, self._inner(stage))
                total = totals[stage]
                if stage.op.opcode == "dot":
                    self.writer.line(f"{total} += {term};")
                    continue
                joined = f"{_functor(stage)}::apply({total}, {term})"
                if stage in self.carried and self.live:  # a repeated row counts once
                    joined = f"{self.live} ? {joined} : {total}"
                self.writer.line(f"{total} = {joined};")
                continue
            found = self.writer.find((stage.op.id, index))
            text = found[0] if found else self.values.computed(stage.op, index)[0]
            self.writer.block.memo[stage.op.id, index] = text
            stores.append((stage, text))
        for stage, text in stores:
            self._store(stage, text, [self.live])

    def _join_block(self, level: int, totals: dict[Stage, str]) -> None:
        """Joins the partial results of all warps, those of a level at once.

        Each level has slots of its own, so that with several of them a barrier always lies between
        two uses of one.
        """
        reduced = [s for s in self.nest.stages if self.nest.place[s] is Place.REDUCE]
        before = sum(self.nest.level[s] < level for s in reduced)
        scratch = f"shared_memory + {before * SLOT_BYTES}" if before else "shared_memory"
        functors = ", ".join(map(_functor, totals))
        arguments = ", ".join([scratch, *totals.values()])
        self.writer.line(f"fs_reduce_block<{self.block // 32}, {functors}>({arguments});")
        if len(reduced) == len(totals):
            self.writer.line("__syncthreads();")
        else:
            self.unsettled = True

    def _finish(self, stage: Stage, partial: str) -> None:
        """Joins the partial results of a row's team; every thread of the team gets the result."""
        teams, op = self.plan.teams, stage.op
        total = partial
        if teams.columns:
            call = f"fs_reduce_strided<{teams.columns}, {_functor(stage)}>"
            total = f"{call}({partial}, {self._scratch(stage)})"
        elif 1 < teams.threads <= 32:
            total = f"fs_reduce_lanes<{teams.threads}, {_functor(stage)}>({partial})"
        result = self.values.finished(op, total)
        name = self.writer.name(self.label(op))
        self.writer.line(f"const {self._compute(stage)} {name} = {result};")
        self.writer.block.memo[op.id, self._index(stage)] = name
        self._store(stage, name, [self.first, self.live])

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
        if loop.first != "0":
            first = variable(self.writer.name("first_row"), self.plan.rows)
            self.writer.line(f"const {self.int} {render(first)} = {loop.first};")
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
        if not ahead:
            return
        with self.writer.nested(f"FS_UNROLL for (int i = 0; i < {self._steps()}; ++i)"):
            for held in ahead:
                self.writer.line(f"{held.array}[i] = {held.ahead}[i];")
        following = variable(self.writer.name("next_row"), self.plan.rows)
        name, limit = render(following), self.plan.rows
        header = f"const {self.int} {name} = {render(row)} + {loop.stride}; {name} < {limit}"
        with self.writer.nested(f"if ({header})", pinned=True):
            self.writer.declare(name)
            self._load_held(ahead, row, following)

    def _vector_inputs(self, row: Index) -> dict[tuple[str, Index], Op]:
        """The inputs that sweeps along `row` read as vectors, by memory and base."""
        self._bind_rows(row, self._position(row, 1))
        found: dict[tuple[str, Index], Op] = {}
        for op, at in self._uses(self.sweep.unit * self.width + self._element):
            base = self._base(op, at)
            if base is not None:
                found.setdefault((self.memory.inputs[op.id], base), op)
        return found

    def _base(self, op: Op, at: Indices) -> Index | None:
        """Where the vector around an element of an input starts, if it is read as one."""
        if op.opcode != "parameter" or not _in_range(op, at) or self.width == 1:
            return None
        if any(i.fetched for i in at):
            return None  # the place is known only inside the loop
        lane = Var(render(self._element), self.width)
        return aligned_base(linearize(at, op.dims), lane, self.width)

    def _is_held(self, op: Op, at: Indices) -> bool:
        base = self._base(op, at)
        return any(held.op is op and held.base == base for held in self.held)

    def _declare_vectors(self, held: Held, array: str) -> None:
        kind = f"fs_loaded<{c_type(held.op.dtype).storage}, {self.width}>"
        self.writer.line(f"{kind} {array}[{self._steps()}];")

    def _load_held(self, arrays: Mapping[Held, str], row: Index, at: Index) -> None:
        """Fills arrays with the vectors of row `at`; inputs are known by their bases in `row`."""
        bases = dict(zip(self._vector_inputs(row), self._vector_inputs(at), strict=True))

        def load(step: str) -> None:
            for held, array in arrays.items():
                _, base = bases[held.name, held.base]
                text = self._vector_load(held.op, held.name, base)
                self.writer.line(f"{array}[{step}] = {text};")

        self._run_sweep(load)
        self._bind_rows(row, self._position(row, 1))

    # ---- sums carried from row to row -----------------------------------------------------------

    def _start_carrying(self, stage: Stage) -> None:
        """A register array for the sums of this thread's columns."""
        name = self.writer.name(f"{self.label(stage.op)}_carried")
        size = self._steps() * self.width
        self.writer.line(f"{self._compute(stage)} {name}[{size}];")
        fill = f"FS_UNROLL for (int i = 0; i < {size}; ++i) {name}[i] = {_start(stage)};"
        self.writer.line(fill)
        self.carried[stage] = name
        self.registers -= size

    def _finish_carrying(self) -> None:
        """Joins the sums of the block's teams; the first team stores them."""
        writer, threads = self.writer, self.plan.teams.threads
        first = ""
        if threads < self.block:
            first = f"threadIdx.x < {threads}"
            size = self._steps() * self.width
            for stage, name in self.carried.items():
                join = f"fs_reduce_teams<{threads}, {size}, {_functor(stage)}>"
                writer.line(f"{join}({name}, {self._scratch(stage)});")
        with writer.nested(f"if ({first})", ordered=True) if first else nullcontext():
            if threads > 1:
                self.lane = writer.name("lane")
                writer.line(f"const int {self.lane} = threadIdx.x % {threads};")
            self._run_sweep(self._store_carried)

    def _store_carried(self, step: str) -> None:
        """One vector of the sums of a block's columns."""
        with self._vector_loop() as lane:
            self._bind_column(self.sweep.unit * self.width + lane)
            for stage, name in self.carried.items():
                text = self.values.finished(stage.op, f"{name}[{self._slot(step, lane)}]")
                self._store(stage, text, [])

    def _compute(self, stage: Stage) -> str:
        return c_type(stage.op.dtype).compute

    def _scratch(self, stage: Stage) -> str:
        return f"({self._compute(stage)}*)shared_memory"

    # ---- memory ---------------------------------------------------------------------------------

    def _store(self, stage: Stage, text: str, conditions: Sequence[str]) -> None:
        """Writes a stage's value wherever it is wanted: outputs, scratch, shared memory."""
        op, index = stage.op, self._index(stage)
        places = [*self.memory.outputs.get(op.id, ())]
        if op.id in self.memory.scratch:
            places.append(self.memory.scratch[op.id])
        kind = c_type(op.dtype)
        stored = text if kind.storage == kind.compute else f"fs_store_as<{kind.storage}>({text})"
        address = linearize(index, op.dims)
        condition = " && ".join(c for c in conditions if c)
        base = self.vector.base(address) if self.vector else None
        lines: list[str] = []
        for place in places:
            if base is None or self.vector is None:
                lines.append(f"{place}[{render(address)}] = {stored};")
                continue
            values = self.writer.name(f"{place}_vector")
            self.writer.line(f"fs_vec<{kind.storage}, {self.width}> {values};", self.vector.depth)
            self.writer.line(f"{values}[{self.vector.lane.name}] = {stored};")
            self.pending.append((place, render(base), values, condition))
        if stage in self.memory.shared:
            lines.append(f"{self.shared_names[stage]}[{self._shared_address(stage)}] = {text};")
        if not lines:
            return
        with self.writer.nested(f"if ({condition})", pinned=True) if condition else nullcontext():
            for line in lines:
                self.writer.line(line)

    def _shared_address(self, stage: Stage) -> str:
        leaves = self.group.group.in_block(stage)
        digits = [self.point, *(self.digits[leaf] for leaf in leaves)]
        return render(linearize(digits, [self.group.points, *map(self.axes.extent, leaves)]))

    def _stored(self, op: Op, index: Indices) -> Placed | None:
        """How to read `op` at `index` from memory, if it lives there."""
        if op.opcode == "parameter":
            # inputs hold still: a load that does not depend on the row may precede the loop
            floor = self.writer.pinned_depth if _in_range(op, index) else self.writer.ordered_depth
            return self._loaded(op, self.memory.inputs[op.id], index), floor
        stage = self.whole.get(op.id)
        if stage is None:
            return None
        if stage in self.group.group.stages:
            return self._stored_in_block(stage, index)
        names = self.memory.outputs.get(op.id, ())
        name = names[0] if names else self.memory.scratch[op.id]
        return self._loaded(op, name, index), self.writer.ordered_depth

    def _loaded(self, op: Op, name: str, index: Indices) -> str:
        kind = c_type(op.dtype)
        address = linearize(index, op.dims)
        text = f"{name}[{render(address)}]"
        vector = self.vector
        if vector and self.writer.pinned_depth <= vector.depth and _in_range(op, index):
            base = vector.base(address)
            if base is not None:
                text = f"{self._vector_of(op, name, base)}[{vector.lane.name}]"
        return text if kind.storage == kind.compute else f"fs_load({text})"

    def _vector_of(self, op: Op, name: str, base: Index) -> str:
        """The vector at `base`, loaded once before the loop over its elements."""
        assert self.vector is not None
        loaded = self._vectors_before()
        found = loaded.get((name, base))
        if found is None:
            found = self.writer.name(f"{name}_vector")
            load = f"const auto {found} = {self._vector_load(op, name, base)};"
            self.writer.line(load, self.vector.depth)
            loaded[name, base] = found
        return found

    def _vectors_before(self) -> dict[Any, str]:
        """The vectors known before the loop over the elements of one, by (memory, base)."""
        assert self.vector is not None
        return self.writer.chain[self.vector.depth].memo

    def _vector_load(self, op: Op, name: str, base: Index) -> str:
        return f"fs_load_vec<{c_type(op.dtype).storage}, {self.width}>({name} + {render(base)})"

    def _stored_in_block(self, stage: Stage, index: Indices) -> Placed | None:
        if stage in self.nest.level or stage not in self.memory.shared:
            if stage.is_reduction:
                raise CodegenError(f"{stage.op.name} is read in its own loop at another index.")
            return None
        digits: list[Index] = [self.point]
        extents = [self.group.points]
        for axis, position in zip(self.axes.dims[stage.number], index, strict=True):
            leaves = [x for x in self.axes.set.leaves(axis) if self.axes.extent(x) != 1]
            places = delinearize(position, [self.axes.extent(x) for x in leaves])
            for leaf, digit in zip(leaves, places, strict=True):
                if leaf not in self.group.group.grid:
                    digits.append(digit)
                    extents.append(self.axes.extent(leaf))
                elif digit != self.digits[leaf]:
                    raise CodegenError(f"{stage.op.name} is read from another tile.")
        address = render(linearize(digits, extents))
        return f"{self.shared_names[stage]}[{address}]", self.writer.ordered_depth


def _row_registers(plan: KernelPlan) -> int:
    """Registers per thread that rows and carried sums may take."""
    if plan.tuning.row_registers is not None:
        return plan.tuning.row_registers
    blocks = plan.tuning.blocks_per_sm
    return SM_REGISTERS // (blocks * plan.block if blocks else RESIDENT_THREADS) - SPARE_REGISTERS


def _mostly_busy(units: int, threads: int) -> bool:
    """True if the threads of a team all have something to do in most of their steps."""
    return 4 * units >= 3 * threads * -(-units // threads)


def _start(stage: Stage) -> str:
    """What a sum starts from."""
    if stage.op.opcode == "dot":
        return literal(0, stage.op.dtype)
    return combine(stage.op.attrs["reducer"], stage.op.dtype)[0]


def _functor(stage: Stage) -> str:
    """The function object that joins two partial results."""
    if stage.op.opcode == "dot":
        return "FsAdd"
    return combine(stage.op.attrs["reducer"], stage.op.dtype)[1]


def _words(op: Op) -> int:
    """Registers of one value of `op`."""
    return max(4, compute_bytes(op.dtype)) // 4


def _moves_with(stage: Stage, index: Indices) -> bool:
    """Whether a stage's neighbouring elements, along its last axis, read at different places."""
    last = next((i for i in reversed((*stage.dims, *stage.inner)) if i.terms), Index())
    return any(last.variables & i.variables for i in index)


def _in_range(op: Op, index: Indices) -> bool:
    return all(i.lo >= 0 and i.hi < dim for i, dim in zip(index, op.dims, strict=True))


def describe(op: Op) -> str:
    """One line about an op for a comment: its name, type, and place in the user's program."""
    where = op.source.op_name
    if op.source.file:
        where = f"{where} ({op.source.file.rsplit('/', 1)[-1]}:{op.source.line})".strip()
    return f"{op.name or op.opcode}: {op.shape} {op.opcode}" + (f"  {where}" if where else "")
