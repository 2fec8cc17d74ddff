"""Sweeps: walks along a row, what they sum, and what registers keep from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Index, renamed, render, variable
from fusionstitch.codegen.index_maps.maps import Indices
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
from fusionstitch.codegen.ir.intrinsics import (
    JOIN,
    REDUCE_BLOCK,
    REDUCE_CLUSTER,
    REDUCE_LANES,
    REDUCE_STRIDED,
    REDUCE_TEAM,
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
from fusionstitch.codegen.ir.types import INT, Record, Scalar, computed
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.access import Access, Site
from fusionstitch.codegen.lower.sums import functor_of, start_of
from fusionstitch.codegen.schedule.walk import UNIT, RowInput
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.graph import Op

Key = tuple[Op, Indices]


@dataclass(frozen=True)
class Loaded:
    """A row input (codegen/schedule/walk.py) in registers: `array` holds the vectors at `base` of
    the buffer `name`, and `ahead` ('' if none) those of the next row."""

    input: RowInput
    name: str
    base: Index
    array: str
    ahead: str = ""


class Sweeps:
    """The values of every row, level by level: those per row, then one sweep for the others."""

    def __init__(self, site: Site):
        self.access = access = Access(site)
        self.writer, self.values, self.digits = access.writer, access.values, access.digits
        self.plan, self.nest, self.walk = access.plan, access.nest, access.walk
        self.label, self.int, self.names = access.label, access.int, access.names
        self.block, self.cluster = site.kernel.plan.block, site.kernel.plan.cluster
        self.width = self.walk.width
        #: the element of a vector, the thread's position along the row in vectors, and whether its
        #: only one is known to exist
        self.element = self.unit = Index()
        self.opened = False
        #: the inputs held from row to row; by value the array that keeps it from sweep to sweep,
        #: with the level of the sweep that fills it; the arrays of sums of columns
        self.row_inputs: list[Loaded] = []
        self.reused: dict[Key, tuple[str, int]] = {}
        self.carried: dict[Stage, str] = {}
        #: whether this thread's row is its own, and whether it is the first of its team
        self.live: Expr | None = None
        self.first: Expr | None = None
        #: the variable that holds the thread's number in its team, '' if it is alone
        self.lane = ""

    def name_lane(self, lane: Expr | None) -> None:
        """Names the thread's number in its team, once."""
        if lane and not self.lane:
            self.lane = self.writer.name("lane")
            self.writer.let(INT, self.lane, lane)
            self.first = infix("==", Name(self.lane), 0)

    def level(self, level: int) -> None:
        """The values of each row first, then one sweep for all that runs along the row."""
        stages = self.nest.at(level)
        self.row_values(stages)
        sweep = [s for s in stages if self.nest.role[s] is not Role.ROW]
        if not sweep:
            return
        # other threads wait for the sums of a row, but none for those of its columns
        sweep.sort(key=lambda s: self.nest.role[s] is Role.CARRY)
        sums = [s for s in sweep if self.nest.role[s] is Role.REDUCE]
        totals = {stage: self.started(stage) for stage in sums}
        self.run(lambda step: self._sweep_step(level, sweep, totals, step))
        if totals and self.plan.teams.joins_warps:
            self._join_warps(totals)
        for stage, name in totals.items():
            self.finish(stage, name)

    def started(self, stage: Stage) -> str:
        """The variable of a new sum, or of what else a reduction joins."""
        name = self.writer.name(f"{self.label(stage.op)}_partial")
        self.writer.add(Let(self.compute(stage), name, start_of(stage), changes=True))
        return name

    def row_values(self, stages: Iterable[Stage]) -> None:
        """Those of the stages that have one value per row."""
        known: list[tuple[Stage, Expr]] = []
        for stage in stages:
            if self.nest.role[stage] is Role.ROW:
                value = self.values.computed(stage.op, self.digits.index(stage))[0]
                self.writer.block.memo[stage.op.id, self.digits.index(stage)] = value
                known.append((stage, value))
        for stage, value in known:
            self.access.store(stage, value, [self.first, self.live])

    def run(self, body: Callable[[Expr | None], None]) -> None:
        """A walk along the row; `body` gets the step it is at, None where steps are not
        numbered."""
        writer, int_ = self.writer, self.int
        if self.plan.inner == 1:
            body(None)
            return
        name, threads = render(self.unit), self.plan.teams.threads
        units = self.plan.inner // self.width
        if self.opened:
            body(Number("0"))
        elif threads >= units and self.lane:
            own = Let(int_, name, Name(self.lane))
            with writer.nested(If(infix("<", Name(name), units), own)):
                writer.declare(name)
                body(Number("0"))
        elif self.walk.unrolled:
            inside, step = If(infix("<", Name(name), units)), Name("step")
            with writer.nested(unrolled("step", self.walk.vectors)):
                index = infix("+", infix("*", step, threads), Name(self.lane))
                writer.let(int_, name, index if self.lane else step)
                writer.declare(name)
                with writer.nested(inside, pinned=True) if units % threads else nullcontext():
                    body(step)
        else:
            start = Name(self.lane) if self.lane else Number("0")
            loop = For(int_, name, start, number(units), step=threads, unroll=self.walk.loads)
            with writer.nested(loop):
                writer.declare(name)
                body(None)

    def name_unit(self) -> None:
        """Names the thread's position along the row, once."""
        if self.plan.inner > 1 and not self.unit.terms:
            name = self.writer.name("column")
            self.unit = variable(name, self.plan.inner // self.width)
            self.names[UNIT] = name

    def declare_live(self) -> None:
        """Declares arrays for what is kept from sweep to sweep."""
        for one in self.walk.live:
            name = self.writer.name(f"{self.label(one.op)}_row")
            size = self.walk.vectors * self.width
            self.writer.add(Array(computed(one.op.dtype), name, size))
            at = tuple(renamed(i, self.names) for i in one.at)
            self.reused[one.op, at] = name, one.level

    def _sweep_step(
        self, level: int, stages: list[Stage], totals: dict[Stage, str], step: Expr | None
    ) -> None:
        """One vector of a sweep, reading from or filling the values kept in registers."""
        sums: dict[Stage, Expr] = {stage: Name(name) for stage, name in totals.items()}
        if self.plan.inner == 1:
            self.step(stages, sums)
            return
        with self.access.elements.vector_loop(self.element):
            self.digits.bind_column(self.unit * self.width + self.element)
            where = self.register_index(step)
            for loaded in self.row_inputs:
                assert step is not None
                vector = Element(Name(loaded.array), step)
                self.access.elements.vectors_before()[loaded.name, loaded.base] = vector
            sums |= {s: Element(Name(name), where) for s, name in self.carried.items()}
            for (op, at), (name, first) in self.reused.items():
                if first < level:
                    self.writer.block.memo[op.id, at] = Element(Name(name), where)
            self.step(stages, sums)
            for (op, at), (name, first) in self.reused.items():
                if first == level:
                    value = self.values.value(op, at)
                    self.writer.add(Assign(Element(Name(name), where), value))

    def register_index(self, step: Expr | None) -> Expr:
        """The index of the current element in a register array."""
        if not self.element.terms:
            return step or Number("0")
        if not step or step == Number("0"):
            return Integer(self.element)
        return infix("+", infix("*", step, self.width), Integer(self.element))

    def step(self, stages: list[Stage], totals: dict[Stage, Expr]) -> None:
        """The body of a sweep: all values first, then all stores, so in-place updates are safe."""
        stores: list[tuple[Stage, Expr]] = []
        for stage in stages:
            if stage in totals:
                term = self.values.accumulated(stage.op, *self.digits.indices(stage))
                total = totals[stage]
                if stage.op.opcode == "dot":
                    self.writer.add(Assign(total, term, "+"))
                    continue
                joined: Expr = apply(JOIN, total, term, template=(functor_of(stage),))
                if stage in self.carried and self.live:  # a repeated row counts once
                    joined = Choice(((self.live, joined),), total)
                self.writer.add(Assign(total, joined))
                continue
            stores.append((stage, self.access.value_of(stage)))
        for stage, value in stores:
            self.access.store(stage, value, [self.live])

    def _join_warps(self, totals: dict[Stage, str]) -> None:
        """Joins the partial results of a team's warps, those of a level at once."""
        threads = self.plan.teams.threads
        join = REDUCE_BLOCK
        sizes: tuple[int, ...] = (threads // WARP,)
        if self.cluster > 1:
            join, sizes = REDUCE_CLUSTER, (self.block // WARP, self.cluster)
        elif threads < self.block:
            join = REDUCE_TEAM
        scratch = Name(self.access.exchanges[next(iter(totals))])
        arguments = (scratch, *map(Name, totals.values()))
        self.writer.add(Call(join, (*sizes, *map(functor_of, totals)), arguments))

    def finish(self, stage: Stage, partial: str) -> None:
        """Joins the partial results of a row's team; every thread of the team gets the result."""
        teams, op = self.plan.teams, stage.op
        total: Expr = Name(partial)
        if teams.columns:
            scratch, given = Name(self.access.exchanges[stage]), (teams.columns, functor_of(stage))
            total = apply(REDUCE_STRIDED, total, scratch, template=given)
        elif 1 < teams.threads <= WARP:
            total = apply(REDUCE_LANES, total, template=(teams.threads, functor_of(stage)))
        result = self.values.finished(op, total)
        name = self.writer.name(self.label(op))
        self.writer.let(self.compute(stage), name, result)
        self.writer.block.memo[op.id, self.digits.index(stage)] = Name(name)
        self.access.store(stage, Name(name), [self.first, self.live])

    def compute(self, stage: Stage) -> Scalar | Record:
        return computed(stage.op.dtype)
