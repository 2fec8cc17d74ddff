"""Emission: a scheduled kernel as CUDA-C text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from codegen.expressions import combine, literal
from codegen.index import Index, delinearize, linearize, render, variable
from codegen.maps import Indices
from codegen.nests import Place
from codegen.schedule import GroupPlan, KernelPlan, NestPlan, Teams
from codegen.source import Writer
from codegen.stages import Stage, closure
from codegen.types import c_type, compute_bytes
from codegen.values import Placed, Values
from hlo.errors import CodegenError
from hlo.graph import Op

#: Registers per thread that caching a row may take (4-byte units).
CACHE_REGISTERS = 48
#: Sweeps of at most this many steps per thread are unrolled and keep values from one to the next.
CACHE_STEPS = 16


@dataclass
class Memory:
    """Where values live: C names of inputs, outputs and scratch by op id; shared offsets."""

    inputs: Mapping[int, str]
    outputs: Mapping[int, Sequence[str]]
    scratch: Mapping[int, str]
    shared: Mapping[Stage, int]
    tables: dict[int, str]


@dataclass
class Sweep:
    """The inner index of a nest and, if its sweeps are unrolled, how many steps a thread takes and
    what it keeps: (op, index) -> (register array, level of the sweep that fills it)."""

    column: Index
    steps: int = 0
    kept: dict[tuple[Op, Indices], tuple[str, int]] = field(default_factory=dict)


def _in_range(op: Op, index: Indices) -> bool:
    return all(i.lo >= 0 and i.hi < dim for i, dim in zip(index, op.dims, strict=True))


class KernelEmitter:
    """Prints one kernel. `group_number` and the maps below describe the group being printed."""

    def __init__(self, plan: KernelPlan, memory: Memory, numerics: str, wide: bool, writer: Writer):
        self.plan = plan
        self.memory = memory
        self.int = "long long" if wide else "int"
        self.writer = writer
        self.values = Values(self.writer, self._stored, numerics, memory.tables)
        #: the stages that loops of the present group read whole, by op id
        self.whole: dict[int, Stage] = {}
        self.group: GroupPlan | None = None
        self.nest: NestPlan | None = None
        self.nest_number = 0
        self.digits: dict[int, Index] = {}
        self.tile = ""
        self.point = Index()
        self.sweep = Sweep(Index())
        self.shared_names: dict[Stage, str] = {}

    def body(self) -> str:
        """The statements of the kernel function."""
        for number, phase in enumerate(self.plan.phases):
            if number:
                self.writer.line("fs_grid_barrier();")
                self.writer.line()
            self._phase(phase)
        return self.writer.text()

    # ---- phases and groups ----------------------------------------------------------------------

    def _phase(self, groups: list[GroupPlan]) -> None:
        tiles = sum(g.tiles for g in groups)
        writer = self.writer
        self.tile = writer.name("tile")
        if tiles <= self.plan.grid and len(groups) == 1:
            first = groups[0]
            guard = f"if (blockIdx.x < {tiles})" if tiles < self.plan.grid else ""
            with writer.nested(guard, pinned=True) if guard else nullcontext():
                self._open_tile(first, "blockIdx.x")
                self._group(first, looped=False)
            return
        work = writer.name("work")
        looped = tiles > self.plan.grid
        if looped:
            step = f"{work} += {self.plan.grid}"
            header = f"for ({self.int} {work} = blockIdx.x; {work} < {tiles}; {step})"
        elif tiles < self.plan.grid:
            header = f"if (const {self.int} {work} = blockIdx.x; {work} < {tiles})"
        else:
            header = ""
        with writer.nested(header, pinned=True) if header else nullcontext():
            if not header:
                writer.line(f"const {self.int} {work} = blockIdx.x;")
            for number, group in enumerate(groups):
                if len(groups) == 1:
                    self._open_tile(group, work)
                    self._group(group, looped)
                    break
                last = group.first_tile + group.tiles
                word = "if" if number == 0 else "else if"
                header = "else" if number == len(groups) - 1 else f"{word} ({work} < {last})"
                with writer.nested(header, pinned=True):
                    self._open_tile(group, f"{work} - {group.first_tile}" if number else work)
                    self._group(group, looped)

    def _open_tile(self, group: GroupPlan, text: str) -> None:
        if group.tiles > 1:
            self.writer.line(f"const {self.int} {self.tile} = {text};")
            self.writer.declare(self.tile)

    def _group(self, group: GroupPlan, looped: bool) -> None:
        self.group = group
        self.whole = {p.op.id: p for s in group.group.stages for p, _ in s.reads}
        writer = self.writer
        shared = [s for s in group.group.stages if s in self.memory.shared]
        for stage in shared:
            name = writer.name(f"{stage.op.name or stage.op.opcode}_shared")
            compute = c_type(stage.op.dtype).compute
            offset = self.memory.shared[stage]
            writer.line(f"{compute}* const {name} = ({compute}*)(shared_memory + {offset});")
            self.shared_names[stage] = name
        for number, nest in enumerate(group.nests):
            if number and shared:
                writer.line("__syncthreads();")
            self.nest, self.nest_number = nest, number
            self._nest(nest)
        if looped and shared:
            writer.line("__syncthreads();")
        self.group = self.nest = None

    # ---- nests ----------------------------------------------------------------------------------

    def _nest(self, nest: NestPlan) -> None:
        group = self.group
        assert group is not None
        writer = self.writer
        for stage in nest.nest.stages:
            writer.line(f"// {describe(stage.op)}")
        kept = nest.rows // group.points
        limit = str(nest.rows)
        if group.ragged:
            limit = writer.name("row_count")
            left = f"{group.grid_points} - {self.tile} * {group.points}"
            writer.line(
                f"const {self.int} {limit} = fs_min({group.points}, {left}) * {kept};"
                if kept > 1
                else f"const {self.int} {limit} = fs_min({group.points}, {left});"
            )
        row = variable(writer.name("row"), nest.rows)
        row_name = render(row)
        header, before = self._row_header(nest, row_name, limit)
        with writer.nested(header, pinned=True):
            for text in before:
                writer.line(text)
            if row.terms:
                writer.declare(row_name)
            live = self._live(nest, row_name, limit)
            lane = self._lane(nest.teams)
            self._bind_rows(row)
            self.sweep = self._plan_sweep(nest)
            for level in range(nest.nest.levels):
                self._level(nest, level, lane, live)

    def _row_header(self, nest: NestPlan, row: str, limit: str) -> tuple[str, list[str]]:
        """The loop over a nest's rows, and the statement that finds this thread's row in it.

        Loops whose body joins lanes of different rows must not diverge: there, a team without a
        row of its own repeats the last one, and `_live` keeps it from storing.
        """
        teams, block, int_ = nest.teams, self.plan.block, self.int
        per_pass = block // teams.threads
        exact = limit == str(nest.rows) and nest.rows % per_pass == 0
        if nest.rows == 1:
            alone = teams.threads < 32 and not teams.columns
            if teams.uniform:
                return "", []
            return f"if (threadIdx.x < {1 if teams.threads == 1 else 32})" if alone or (
                teams.threads == 32
            ) else "", []
        if teams.threads == block:  # a row at a time, all threads
            return f"for ({int_} {row} = 0; {row} < {limit}; ++{row})", []
        team = self._team(nest)
        once = nest.rows <= per_pass
        if exact and once:
            return "", [f"const {int_} {row} = {team};"]
        if teams.threads in (1, 32) and not teams.columns:
            if once:
                return f"if (const {int_} {row} = {team}; {row} < {limit})", []
            return f"for ({int_} {row} = {team}; {row} < {limit}; {row} += {per_pass})", []
        if once:
            return "", [f"const {int_} {row} = fs_min<{int_}>({team}, {limit} - 1);"]
        base = f"{row}_base"
        header = f"for ({int_} {base} = 0; {base} < {limit}; {base} += {per_pass})"
        if exact:
            return header, [f"const {int_} {row} = {base} + {team};"]
        return header, [f"const {int_} {row} = fs_min<{int_}>({base} + {team}, {limit} - 1);"]

    def _team(self, nest: NestPlan) -> str:
        """The number of this thread's team."""
        if nest.teams.columns:
            return f"threadIdx.x % {nest.teams.columns}"
        return f"threadIdx.x / {nest.teams.threads}" if nest.teams.threads > 1 else "threadIdx.x"

    def _live(self, nest: NestPlan, row: str, limit: str) -> str:
        """The condition under which this thread's row is its own, or '' where it always is."""
        teams = nest.teams
        if teams.threads in (1, 32, self.plan.block) and not teams.columns:
            return ""
        per_pass = self.plan.block // teams.threads
        team = self._team(nest)
        if nest.rows == 1:
            if teams.columns == 1:
                return ""
            return f"{team} == 0"
        if limit == str(nest.rows) and nest.rows % per_pass == 0:
            return ""
        return f"{team} < {limit}" if nest.rows <= per_pass else f"{row}_base + {team} < {limit}"

    def _lane(self, t: Teams) -> str:
        """Declares the thread's place in its team; the empty string when it is alone."""
        if t.threads == 1:
            return ""
        if t.columns:
            text = f"threadIdx.x / {t.columns}"
        elif t.threads == self.plan.block:
            text = "threadIdx.x"
        else:
            text = f"threadIdx.x % {t.threads}"
        name = self.writer.name("lane")
        self.writer.line(f"const int {name} = {text};")
        return name

    def _bind_rows(self, row: Index) -> None:
        """Digits of every grid and row axis in terms of `tile` and the row variable."""
        group, nest = self.group, self.nest
        assert group is not None
        assert nest is not None
        axes, leaves = group.group.axes, nest.nest.rows
        extents = [group.points, *(axes.extent(leaf) for leaf in leaves)]
        self.point, *row_digits = delinearize(row, extents)
        position = variable(self.tile, group.tiles) * group.points + self.point
        if group.ragged:  # a variable of its own has the exact range
            point = self.writer.name("point")
            self.writer.line(f"const {self.int} {point} = {render(position)};")
            position = variable(self.writer.declare(point), group.grid_points)
        grid = group.group.grid
        grid_digits = delinearize(position, [axes.extent(leaf) for leaf in grid])
        self.digits = dict(zip(grid, grid_digits, strict=True))
        self.digits |= dict(zip(leaves, row_digits, strict=True))

    def _index(self, stage: Stage) -> Indices:
        """The index of a stage's op at the current grid point, row and inner position."""
        return self._digits_of(stage, inner=False)

    def _inner(self, stage: Stage) -> Indices:
        return self._digits_of(stage, inner=True)

    def _digits_of(self, stage: Stage, inner: bool) -> Indices:
        assert self.group is not None
        axes = self.group.group.axes
        chains = (axes.inner if inner else axes.dims)[stage.number]
        found = []
        for axis in chains:
            leaves = [leaf for leaf in axes.set.leaves(axis) if axes.extent(leaf) != 1]
            found.append(
                linearize([self.digits[leaf] for leaf in leaves], [axes.extent(x) for x in leaves])
            )
        return tuple(found)

    # ---- levels and sweeps ----------------------------------------------------------------------

    def _level(self, nest: NestPlan, level: int, lane: str, live: str) -> None:
        stages = nest.nest.at(level)
        rows = [s for s in stages if nest.nest.place[s] is Place.ROW]
        sweep = [s for s in stages if nest.nest.place[s] is not Place.ROW]
        first = f"{lane} == 0" if lane else ""
        for stage in rows:
            text = self.values.computed(stage.op, self._index(stage))[0]
            self.writer.block.memo[stage.op.id, self._index(stage)] = text
            self._store(stage, text, [first, live])
        if not sweep:
            return
        totals: list[tuple[Stage, str]] = []
        for stage in sweep:
            if nest.nest.place[stage] is Place.REDUCE:
                compute = c_type(stage.op.dtype).compute
                name = self.writer.name(f"{stage.op.name or stage.op.opcode}_partial")
                start = literal(0, stage.op.dtype)
                if stage.op.opcode == "reduce":
                    start, _ = combine(stage.op.attrs["reducer"], stage.op.dtype)
                self.writer.line(f"{compute} {name} = {start};")
                totals.append((stage, name))
        self._sweep(nest, level, sweep, dict(totals), lane, live)
        for stage, name in totals:
            self._finish(nest, stage, name, first, live)

    def _sweep(
        self,
        nest: NestPlan,
        level: int,
        stages: list[Stage],
        totals: dict[Stage, str],
        lane: str,
        live: str,
    ) -> None:
        writer, plan = self.writer, self.sweep
        if nest.inner == 1:
            self._step(stages, totals, live)
            return
        name, threads, int_ = render(plan.column), nest.teams.threads, self.int
        start = lane or "0"
        inside = f"if ({name} < {nest.inner})" if nest.inner % threads else ""
        if threads >= nest.inner and lane:
            header = f"if (const {int_} {name} = {start}; {name} < {nest.inner})"
            with writer.nested(header):
                writer.declare(name)
                self._cached_step(level, stages, totals, live)
        elif plan.steps:
            with writer.nested(f"FS_UNROLL for (int step = 0; step < {plan.steps}; ++step)"):
                place = f"step * {threads} + {lane}" if lane else "step"
                writer.line(f"const {int_} {name} = {place};")
                writer.declare(name)
                with writer.nested(inside, pinned=True) if inside else nullcontext():
                    self._cached_step(level, stages, totals, live)
        else:
            step = f"{name} += {threads}" if threads > 1 else f"++{name}"
            with writer.nested(f"for ({int_} {name} = {start}; {name} < {nest.inner}; {step})"):
                writer.declare(name)
                self._step(stages, totals, live)

    def _plan_sweep(self, nest: NestPlan) -> Sweep:
        """Binds the inner axes and picks the values kept in registers from sweep to sweep."""
        assert self.group is not None
        axes, leaves = self.group.group.axes, nest.nest.inner
        column = Index()
        if nest.inner > 1:
            column = variable(self.writer.name("column"), nest.inner)
        digits = delinearize(column, [axes.extent(x) for x in leaves])
        self.digits |= dict(zip(leaves, digits, strict=True))
        steps = -(-nest.inner // nest.teams.threads)
        if nest.nest.levels == 1 or nest.inner == 1 or steps > CACHE_STEPS:
            return Sweep(column)
        uses: dict[tuple[Op, Indices], set[int]] = {}
        for stage in nest.nest.stages:
            if nest.nest.place[stage] is Place.ROW:
                continue
            index, level = self._index(stage), nest.nest.level[stage]
            if nest.nest.place[stage] is Place.SWEEP and stage.op.id in self.whole:
                uses.setdefault((stage.op, index), set()).add(level)
            found, _ = closure(stage.op, index, self._inner(stage), self.whole)
            for op, at in found:
                if _in_range(op, at) and any(column.variables & i.variables for i in at):
                    uses.setdefault((op, at), set()).add(level)
        sweep = Sweep(column, steps)
        registers = 0
        for (op, at), levels in uses.items():
            need = steps * max(4, compute_bytes(op.dtype)) // 4
            if len(levels) < 2 or registers + need > CACHE_REGISTERS:
                continue
            registers += need
            name = self.writer.name(f"{op.name or op.opcode}_row")
            self.writer.line(f"{c_type(op.dtype).compute} {name}[{steps}];")
            sweep.kept[op, at] = (name, min(levels))
        return sweep

    def _cached_step(
        self, level: int, stages: list[Stage], totals: dict[Stage, str], live: str
    ) -> None:
        """One step of a sweep that reads from, or fills, the values kept in registers."""
        step = "step" if self.sweep.steps > 1 else "0"
        for (op, at), (name, first) in self.sweep.kept.items():
            if first < level:
                self.writer.block.memo[op.id, at] = f"{name}[{step}]"
        self._step(stages, totals, live)
        for (op, at), (name, first) in self.sweep.kept.items():
            if first == level:
                self.writer.line(f"{name}[{step}] = {self.values.value(op, at)};")

    def _step(self, stages: list[Stage], totals: dict[Stage, str], live: str) -> None:
        """The body of a sweep: all values first, then all stores, so in-place updates are safe."""
        stores: list[tuple[Stage, str]] = []
        for stage in stages:
            index = self._index(stage)
            if stage in totals:
                term = self.values.accumulated(stage.op, index, self._inner(stage))
                total = totals[stage]
                if stage.op.opcode == "dot":
                    self.writer.line(f"{total} += {term};")
                else:
                    _, functor = combine(stage.op.attrs["reducer"], stage.op.dtype)
                    self.writer.line(f"{total} = {functor}::apply({total}, {term});")
                continue
            found = self.writer.find((stage.op.id, index))
            text = found[0] if found else self.values.computed(stage.op, index)[0]
            self.writer.block.memo[stage.op.id, index] = text
            stores.append((stage, text))
        for stage, text in stores:
            self._store(stage, text, [live])

    def _finish(self, nest: NestPlan, stage: Stage, partial: str, first: str, live: str) -> None:
        """Joins the partial results of a row's team; every thread of the team gets the result."""
        teams, op = nest.teams, stage.op
        total = partial
        if teams.threads > 1:
            compute = c_type(op.dtype).compute
            functor = "FsAdd" if op.opcode == "dot" else combine(op.attrs["reducer"], op.dtype)[1]
            scratch = f"({compute}*)shared_memory"
            if teams.columns:
                total = f"fs_reduce_strided<{teams.columns}, {functor}>({partial}, {scratch})"
            elif teams.threads <= 32:
                total = f"fs_reduce_lanes<{teams.threads}, {functor}>({partial})"
            else:
                total = f"fs_reduce_block<{functor}>({partial}, {scratch})"
        result = self.values.finished(op, total)
        name = self.writer.name(op.name or op.opcode)
        self.writer.line(f"const {c_type(op.dtype).compute} {name} = {result};")
        self.writer.block.memo[op.id, self._index(stage)] = name
        self._store(stage, name, [first, live])

    # ---- memory ---------------------------------------------------------------------------------

    def _store(self, stage: Stage, text: str, conditions: Sequence[str]) -> None:
        """Writes a stage's value wherever it is wanted: outputs, scratch, shared memory."""
        op, index = stage.op, self._index(stage)
        targets: list[str] = []
        places = [*self.memory.outputs.get(op.id, ())]
        if op.id in self.memory.scratch:
            places.append(self.memory.scratch[op.id])
        kind = c_type(op.dtype)
        stored = text if kind.storage == kind.compute else f"fs_store_as<{kind.storage}>({text})"
        address = render(linearize(index, op.dims))
        targets += [f"{name}[{address}] = {stored};" for name in places]
        if stage in self.memory.shared:
            targets.append(f"{self.shared_names[stage]}[{self._shared_address(stage)}] = {text};")
        if not targets:
            return
        condition = " && ".join(c for c in conditions if c)
        if condition:
            with self.writer.nested(f"if ({condition})", pinned=True):
                for target in targets:
                    self.writer.line(target)
        else:
            for target in targets:
                self.writer.line(target)

    def _shared_address(self, stage: Stage) -> str:
        assert self.group is not None
        leaves = self.group.group.in_block(stage)
        axes = self.group.group.axes
        digits = [self.point, *(self.digits[leaf] for leaf in leaves)]
        return render(linearize(digits, [self.group.points, *map(axes.extent, leaves)]))

    def _stored(self, op: Op, index: Indices) -> Placed | None:
        """How to read `op` at `index` from memory, if it lives there."""
        kind = c_type(op.dtype)
        address = render(linearize(index, op.dims))
        if op.opcode == "parameter":
            name = self.memory.inputs[op.id]
            read = f"{name}[{address}]"
            return (read if kind.storage == kind.compute else f"fs_load({read})"), 0
        stage = self.whole.get(op.id)
        if stage is None:
            return None
        assert self.group is not None
        if stage in self.group.group.stages:
            return self._stored_in_block(stage, index)
        names = self.memory.outputs.get(op.id, ())
        name = names[0] if names else self.memory.scratch[op.id]
        read = f"{name}[{address}]"
        return (read if kind.storage == kind.compute else f"fs_load({read})"), 0

    def _stored_in_block(self, stage: Stage, index: Indices) -> Placed | None:
        assert self.group is not None
        assert self.nest is not None
        if stage in self.nest.nest.level or stage not in self.memory.shared:
            if stage.is_reduction:
                raise CodegenError(f"{stage.op.name} is read in its own loop at another index.")
            return None
        axes = self.group.group.axes
        digits: list[Index] = [self.point]
        extents = [self.group.points]
        for axis, position in zip(axes.dims[stage.number], index, strict=True):
            leaves = [x for x in axes.set.leaves(axis) if axes.extent(x) != 1]
            for leaf, digit in zip(
                leaves, delinearize(position, [axes.extent(x) for x in leaves]), strict=True
            ):
                if leaf in self.group.group.grid:
                    if digit != self.digits[leaf]:
                        raise CodegenError(f"{stage.op.name} is read from another tile.")
                    continue
                digits.append(digit)
                extents.append(axes.extent(leaf))
        return f"{self.shared_names[stage]}[{render(linearize(digits, extents))}]", 0


def describe(op: Op) -> str:
    """One line about an op for a comment: its name, type, and place in the user's program."""
    where = op.source.op_name
    if op.source.file:
        where = f"{where} ({op.source.file.rsplit('/', 1)[-1]}:{op.source.line})".strip()
    return f"{op.name or op.opcode}: {op.shape} {op.opcode}" + (f"  {where}" if where else "")
