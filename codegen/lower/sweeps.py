"""Sweeps: walks along a row, what they sum, and what registers keep from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

from fusionstitch.codegen.ir.expressions import (
    Choice,
    Element,
    Expr,
    Integer,
    Name,
    Number,
    apply,
    infix,
    number,
)
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Call,
    For,
    If,
    Let,
    unrolled,
)
from fusionstitch.codegen.loops.nests import CACHE_STEPS, Place
from fusionstitch.codegen.loops.stages import Stage, body_reads, closure, inlined_reads
from fusionstitch.codegen.lower.access import Access, Site
from fusionstitch.codegen.places.index import Index, Var, linearize, render, variable
from fusionstitch.codegen.places.maps import Indices, in_range
from fusionstitch.codegen.places.vectors import aligned_base
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.schedule.registers import row_registers, words_of
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Op

#: Loads of a thread under way at once where its team reads down a column.
COLUMN_LOADS = 16

Key = tuple[Op, Indices]


@dataclass
class Sweep:
    """How each row is walked: `steps` vectors of `width` elements per thread (0 steps: a plain
    loop), and what is kept: (op, index) -> (register array, level of the sweep that fills it)."""

    unit: Index = field(default_factory=Index)
    steps: int = 0
    #: whether a thread's only vector is known to be there
    opened: bool = False
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


class Sweeps(Access):
    """The values of every row, level by level: those per row, then one sweep for the others."""

    def __init__(self, site: Site):
        super().__init__(site)
        kernel = site.kernel
        self.block, self.cluster = kernel.plan.block, kernel.plan.cluster
        self.sweep = Sweep()
        #: registers per thread that rows and sums may be kept in
        self.registers = row_registers(kernel.plan)
        self.held: list[Held] = []
        #: whether this thread's row is its own, and whether it is the first of its team
        self.live: Expr | None = None
        self.first: Expr | None = None
        #: the variable that holds the thread's place in its team, '' if it is alone
        self.lane = ""

    def _level(self, level: int) -> None:
        """The values of each row first, then one sweep for all that runs along the row."""
        stages = self.nest.at(level)
        for stage in stages:
            if self.nest.place[stage] is Place.ROW:
                value = self.values.computed(stage.op, self._index(stage))[0]
                self.writer.block.memo[stage.op.id, self._index(stage)] = value
                self._store(stage, value, [self.first, self.live])
        sweep = [s for s in stages if self.nest.place[s] is not Place.ROW]
        if not sweep:
            return
        # the other threads wait for the sums of a row, nobody for those of its columns
        sweep.sort(key=lambda s: self.nest.place[s] is Place.CARRY)
        totals: dict[Stage, str] = {}
        for stage in sweep:
            if self.nest.place[stage] is Place.REDUCE:
                totals[stage] = self.writer.name(f"{self.label(stage.op)}_partial")
                start = Let(self._compute(stage), totals[stage], start_of(stage), changes=True)
                self.writer.add(start)
        self._run_sweep(lambda step: self._sweep_step(level, sweep, totals, step))
        if totals and self.plan.teams.joins_warps:
            self._join_warps(totals)
        for stage, name in totals.items():
            self._finish(stage, name)

    def _run_sweep(self, body: Callable[[Expr | None], None]) -> None:
        """A walk along the row; `body` gets the step it is at, None where steps are not
        numbered."""
        writer, sweep, int_ = self.writer, self.sweep, self.int
        if self.plan.inner == 1:
            body(None)
            return
        name, threads = render(sweep.unit), self.plan.teams.threads
        units = self.plan.inner // self.width
        if sweep.opened:
            body(Number("0"))
        elif threads >= units and self.lane:
            own = Let(int_, name, Name(self.lane))
            with writer.nested(If(infix("<", Name(name), units), own)):
                writer.declare(name)
                body(Number("0"))
        elif sweep.steps:
            inside, step = If(infix("<", Name(name), units)), Name("step")
            with writer.nested(unrolled("step", sweep.steps)):
                place = infix("+", infix("*", step, threads), Name(self.lane))
                writer.let(int_, name, place if self.lane else step)
                writer.declare(name)
                with writer.nested(inside, pinned=True) if units % threads else nullcontext():
                    body(step)
        else:
            # down a column, addresses are far apart: many loads must be under way at once
            unroll = COLUMN_LOADS if self.plan.teams.columns else 0
            start = Name(self.lane) if self.lane else Number("0")
            loop = For(int_, name, start, number(units), step=threads, unroll=unroll)
            with writer.nested(loop):
                writer.declare(name)
                body(None)

    def _plan_sweep(self) -> Sweep:
        """Names the column variable and picks the values kept from sweep to sweep."""
        nest, inner = self.nest, self.plan.inner
        if inner == 1:
            return Sweep()
        unit = self.sweep.unit if self.sweep.unit.terms else self._new_unit()
        steps = self._steps()
        kept = nest.levels > 1 and steps * self.width <= CACHE_STEPS
        if not (kept or self.carried or self.held):
            return Sweep(unit=unit)
        sweep = Sweep(unit=unit, steps=steps, opened=self.sweep.opened)
        for (op, at), level in self._kept(unit * self.width + self._element).items():
            need = steps * self.width * words_of(op)
            if need > self.registers:
                continue
            self.registers -= need
            name = self.writer.name(f"{self.label(op)}_row")
            self.writer.add(Array(c_type(op.dtype).compute, name, steps * self.width))
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
        computed, loaded = (
            {key: level for key, level in kept.items() if not self._is_held(*key)}
            for kept in (self._last_common(column), loaded)
        )
        if self.held:  # no load is left to save
            return computed
        return min(computed, loaded, key=lambda kept: sum(words_of(op) for op, _ in kept))

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
                if in_range(op, at) and first.setdefault(key, level) < level:
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
                if in_range(op, at) and any(column.variables & i.variables for i in at):
                    uses.setdefault((op, at), set()).add(level)
        return uses

    def _sweep_step(
        self, level: int, stages: list[Stage], totals: dict[Stage, str], step: Expr | None
    ) -> None:
        """One vector of a sweep, reading from or filling the values kept in registers."""
        sweep = self.sweep
        sums: dict[Stage, Expr] = {stage: Name(name) for stage, name in totals.items()}
        if self.plan.inner == 1:
            self._step(stages, sums)
            return
        with self._vector_loop() as lane:
            self._bind_column(sweep.unit * self.width + lane)
            where = self._slot(step, lane)
            for held in self.held:
                assert step is not None
                vector = Element(Name(held.array), step)
                self._vectors_before()[held.name, held.base] = vector
            sums |= {s: Element(Name(name), where) for s, name in self.carried.items()}
            for (op, at), (name, first) in sweep.kept.items():
                if first < level:
                    self.writer.block.memo[op.id, at] = Element(Name(name), where)
            self._step(stages, sums)
            for (op, at), (name, first) in sweep.kept.items():
                if first == level:
                    value = self.values.value(op, at)
                    self.writer.add(Assign(Element(Name(name), where), value))

    def _slot(self, step: Expr | None, lane: Index) -> Expr:
        """The place in a register array of the current element."""
        if not lane.terms:
            return step or Number("0")
        if not step or step == Number("0"):
            return Integer(lane)
        return infix("+", infix("*", step, self.width), Integer(lane))

    def _step(self, stages: list[Stage], totals: dict[Stage, Expr]) -> None:
        """The body of a sweep: all values first, then all stores, so in-place updates are safe."""
        stores: list[tuple[Stage, Expr]] = []
        for stage in stages:
            index = self._index(stage)
            if stage in totals:
                term = self.values.accumulated(stage.op, index, self._inner(stage))
                total = totals[stage]
                if stage.op.opcode == "dot":
                    self.writer.add(Assign(total, term, "+"))
                    continue
                joined: Expr = apply(f"{functor_of(stage)}::apply", total, term)
                if stage in self.carried and self.live:  # a repeated row counts once
                    joined = Choice(((self.live, joined),), total)
                self.writer.add(Assign(total, joined))
                continue
            found = self.writer.find((stage.op.id, index))
            value = found[0] if found else self.values.computed(stage.op, index)[0]
            self.writer.block.memo[stage.op.id, index] = value
            stores.append((stage, value))
        for stage, value in stores:
            self._store(stage, value, [self.live])

    def _join_warps(self, totals: dict[Stage, str]) -> None:
        """Joins the partial results of a team's warps, those of a level at once."""
        first, functors = next(iter(totals)), ", ".join(map(functor_of, totals))
        threads = self.plan.teams.threads
        join = f"fs_reduce_block<{threads // 32}"
        if self.cluster > 1:
            join = f"fs_reduce_cluster<{self.block // 32}, {self.cluster}"
        elif threads < self.block:
            join = f"fs_reduce_team<{threads // 32}"
        values = map(Name, totals.values())
        self.writer.add(Call(f"{join}, {functors}>", (Name(self.rooms[first]), *values)))

    def _finish(self, stage: Stage, partial: str) -> None:
        """Joins the partial results of a row's team; every thread of the team gets the result."""
        teams, op = self.plan.teams, stage.op
        total: Expr = Name(partial)
        if teams.columns:
            call = f"fs_reduce_strided<{teams.columns}, {functor_of(stage)}>"
            total = apply(call, total, Name(self.rooms[stage]))
        elif 1 < teams.threads <= 32:
            total = apply(f"fs_reduce_lanes<{teams.threads}, {functor_of(stage)}>", total)
        result = self.values.finished(op, total)
        name = self.writer.name(self.label(op))
        self.writer.let(self._compute(stage), name, result)
        self.writer.block.memo[op.id, self._index(stage)] = Name(name)
        self._store(stage, Name(name), [self.first, self.live])

    def _base(self, op: Op, at: Indices) -> Index | None:
        """Where the vector around an element of an input starts, if it is read as one."""
        if op.opcode != "parameter" or not in_range(op, at) or self.width == 1:
            return None
        if any(i.fetched for i in at):
            return None  # the place is known only inside the loop
        lane = Var(render(self._element), self.width)
        return aligned_base(linearize(at, op.dims), lane, self.width)

    def _is_held(self, op: Op, at: Indices) -> bool:
        base = self._base(op, at)
        return any(held.op is op and held.base == base for held in self.held)

    def _compute(self, stage: Stage) -> str:
        return c_type(stage.op.dtype).compute


def zero_of(op: Op) -> Number:
    """Nothing, of the type that an op is computed in."""
    return Number(literal(0, op.dtype))


def start_of(stage: Stage) -> Number:
    """What a sum starts from."""
    if stage.op.opcode == "dot":
        return zero_of(stage.op)
    return Number(joins(stage.op)[0])


def functor_of(stage: Stage) -> str:
    """The function object that joins two partial results."""
    if stage.op.opcode == "dot":
        return "FsAdd"
    return joins(stage.op)[1]
