"""Emission of a tiled nest whose lanes read operands as vectors.

A lane takes a `run` of neighbouring summed elements of each of its rows and columns at once, and of
a lone dot a `lot` of neighbouring columns. Whichever of these lie together in memory are one load:
the load pipe serves a line of memory at a time, however little a lane takes from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Expr,
    Integer,
    Name,
    Number,
    element,
    infix,
    least,
)
from fusionstitch.codegen.ir.statements import ALL, Assign, Call
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.access import Site
from fusionstitch.codegen.lower.dot_emitter import DotEmitter
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.places.index import Index, delinearize, linearize, render, variable
from fusionstitch.codegen.places.maps import Indices, in_range
from fusionstitch.codegen.places.vectors import Vector
from fusionstitch.hlo.graph import Op

#: Values of ops and stages.
Places = list[tuple[Op, Stage, Expr]]
#: Vectors for its elements that a thread loads before the dots.
MOST_EARLY = 4
#: Multiply-adds of a thread in the rounds of a dot that are unrolled together.
UNROLLED_ADDS = 512
#: What stands for elements that are not there.
NONE = Number("0.0f")


class OperandEmitter(DotEmitter):
    """Prints a nest whose operands are loaded in runs and lots."""

    def __init__(self, site: Site):
        super().__init__(site)
        self.run, self.lot = self.shape.run, self.shape.lot
        #: the part of the summed elements that a thread walks, and what it joined with others
        self.share = Index()
        self.joined: list[tuple[Op, Stage, str]] = []
        #: the unit of elements that it joins, if one, and the vectors it loaded for them before
        self.early: tuple[Index, dict[tuple[str, Index], Expr]] | None = None
        #: a summed element of a run, a column of a lot
        self.near = variable(self.writer.name("near"), self.run)
        self.next = variable(self.writer.name("next"), self.lot)

    def _bind_tile(self, unit: Index, limit: Expr, whole: bool) -> None:
        super()._bind_tile(unit, limit, whole)
        if self.lot > 1:
            self.step = variable(render(self.step), self.steps // self.pairs // self.lot)

    # ---- a dot whose results are the elements of the rows ---------------------------------------

    def _summed(self, block: Index) -> Index:
        """The summed element of a lane in the rounds' `block`."""
        return (block * self.shape.shares + self.share) * self.run + self.near

    def _add_product(self, stage: Stage, index: Indices, name: str, started: bool) -> None:
        depth = self.group.group.inner_size(stage)
        rounds = variable(self.writer.name("k"), depth // (self.run * self.shape.shares))
        adds = self.rows * self.steps * self.run
        most = max(1, UNROLLED_ADDS // adds)
        with self._loop(rounds, most if rounds.hi * adds >= UNROLLED_ADDS else ALL):
            place = self._summed(rounds)
            self._bind_column(self.column)
            self._bind_summed(stage, place)
            first = self._side_of_rows(stage)
            left = self._operand(stage, first, self.row, place, depth)
            with self._loop(self.step):
                self._bind_read_column(self._column_place())
                right = self._operand(stage, 1 - first, self.next, place, depth)
                parts = {first: (left, self.row), 1 - first: (right, self.next)}
                with self._loop(self.near), self._loop(self.next), self._rows():
                    for side, (array, other) in parts.items():
                        source, at = self._read(stage, side)
                        part = element(array, self._place_of(other))
                        self.writer.block.memo[source.id, at] = part
                    term = self.values.accumulated(stage.op, self._index(stage), self._inner(stage))
                    self.writer.add(Assign(element(name, self._place()), term, "+"))

    def _side_of_rows(self, stage: Stage) -> int:
        """The operand of a dot (0 or 1) that does not change with the column."""
        _, index = self._read(stage, 0)
        return int(any(self.column.variables & place.variables for place in index))

    def _bind_read_column(self, place: Index) -> None:
        """Binds the column whose operand a lane reads: beyond the last, the last."""
        if place.hi < self.plan.inner:
            self._bind_column(place)
            return
        column = variable(self.writer.name("column"), self.plan.inner)
        name = self.writer.declare(render(column))
        self.writer.let("int", name, least("int", Integer(place), self.plan.inner - 1))
        self._bind_column(column)

    def _bind_summed(self, stage: Stage, place: Index) -> None:
        """Binds the axes that a dot sums over to its summed element `place`."""
        leaves = self.axes.inner_leaves(stage)
        extents = [self.axes.extent(leaf) for leaf in leaves]
        self.digits |= dict(zip(leaves, delinearize(place, extents), strict=True))

    def _operand(self, stage: Stage, side: int, other: Index, place: Index, depth: int) -> str:
        """Loads a lane's part of an operand: of each of `other`, its rows or columns, the summed
        elements `place`, nothing beyond `depth`."""
        op = stage.op.operands[side]
        beyond = depth % (self.shape.together * self.shape.shares) != 0
        together = depth % self.run == 0  # all of a run are there, or none
        size = self.run * (other.hi + 1)
        name = self._array(op, "_part", size, NONE if beyond else None)
        with ExitStack() as opened:
            if beyond and together:
                place = self._run_below(place, depth, opened)
            self._bind_summed(stage, place)
            outer, inner = other, self.near
            if other.terms and other.variables <= self._read(stage, side)[1][-1].variables:
                outer, inner = self.near, other
            opened.enter_context(self._each(outer))
            count = inner.hi + 1
            for lane in inner.variables if count & (count - 1) == 0 else ():
                self.vector = Vector(count, lane, self.writer.depth)
            with self._each(inner), self._existing(place, depth) as summed:
                self._bind_summed(stage, summed)
                source, at = self._read(stage, side)
                value = self.values.value(source, at)
                self.writer.add(Assign(element(name, self._place_of(other)), value))
            self.vector = None
        return name

    def _each(self, index: Index) -> AbstractContextManager[None]:
        """The loop over rows, or over what else `index` runs through."""
        return self._rows() if index.terms and index == self.row else self._loop(index)

    def _read(self, stage: Stage, side: int) -> Key:
        return body_reads(stage.op, self._index(stage), self._inner(stage))[side]

    def _place_of(self, other: Index) -> Index:
        """The place in an operand's part of the current summed element of a row or column."""
        if other == self.row:
            return self.near * self.rows + self.row
        return other * self.run + self.near

    def _run_below(self, place: Index, depth: int, guarded: ExitStack) -> Index:
        """`place`, one of a run, below `depth`; what is beyond is left out."""
        name = self.writer.declare(self.writer.name("depth"))
        self.writer.let("int", name, Integer((place - self.near) // self.run))
        guarded.enter_context(self._guarded(infix("<", Name(name), depth // self.run)))
        return variable(name, depth // self.run) * self.run + self.near

    # ---- parts of the sums ----------------------------------------------------------------------

    def _bind_threads(self) -> tuple[Expr, int]:
        shares = self.shape.shares
        if shares == 1:
            return super()._bind_threads()
        threads = self.block // shares
        thread, share = self.writer.name("thread"), self.writer.name("share")
        for name, operator in ((thread, "%"), (share, "/")):
            self.writer.let("int", name, infix(operator, THREAD, threads))
            self.writer.declare(name)
        self.share = variable(share, shares)
        return Name(thread), threads

    def _joined(self, stage: Stage, op: Op, name: str) -> tuple[str, int]:
        """Adds up what the threads have that walked the parts of a sum. Each goes on with some of
        the elements: as many units of neighbours as there are for each."""
        shares = self.shape.shares
        if shares == 1:
            return super()._joined(stage, op, name)
        unit, size = self.shape.unit, self.rows * self.steps
        own = -(-size // (unit * shares)) * unit
        array = self._array(op, "_own", own)
        function = f"fs_join_parts<{self.block // shares}, {shares}, {unit}>"
        self.writer.add(Call(function, (Name(name), Name(array), Name(self.rooms[stage]))))
        self.joined.append((op, stage, array))
        return array, own

    # ---- elements -------------------------------------------------------------------------------

    def _bind_element(self) -> None:
        self._bind_column(self.column if self.lot == 1 else self._column_place())

    def _column_place(self) -> Index:
        """The lane's column in the current step."""
        lane = variable(self.lane, self.lanes) if self.lanes > 1 else Index()
        return (self.step * self.lanes + lane) * self.lot + self.next

    def _place(self) -> Index:
        step = self.step * self.pairs + self.pair
        return self.row * self.steps + step * self.lot + self.next

    def _along_rows(
        self,
        level: int,
        sweep: Sequence[Stage],
        totals: dict[Stage, str],
        results: dict[Stage, str],
    ) -> None:
        if self.shape.shares == 1 and self.lot == 1:
            super()._along_rows(level, sweep, totals, results)
            return
        each = self._own_elements() if self.joined else self._all_elements()
        with each as places:
            for op, stage, value in places:
                self.writer.block.memo[op.id, self._index(stage)] = value
            for stage, value in [(stage, self._element_of(stage)) for stage in sweep]:
                self._store(stage, value, [self.live, self.row_live])

    @contextmanager
    def _all_elements(self) -> Iterator[Places]:
        """All elements of the tile."""
        with (
            self._loop(self.step),
            self._loop(self.pair),
            self._rows(),
            self._neighbours(self.next),
        ):
            self._know_elements()
            yield []

    def _load_early(self, sweep: Sequence[Stage]) -> None:
        """Vectors of the elements that a thread will have joined: loaded before the dots, they wait
        behind them and not after."""
        shares, size = self.shape.shares, self.shape.unit
        units = self.rows * self.steps // size
        ragged = self.plan.inner % (self.lanes * self.steps) or self.limit
        if shares == 1 or units > shares or size == 1 or ragged:
            return
        kept = self.row, self.step, self.pair
        unit = self.share
        if units < shares:
            unit = variable(self.writer.name("unit"), units)
            if units > 1:  # a variable of one value is its number
                name = self.writer.declare(render(unit))
                self.writer.let("int", name, least("int", Integer(self.share), units - 1))
        near = self._bind_unit(unit)
        self._bind_row()
        self._bind_column(self._column_place())
        for lane in near.variables:
            self.vector = Vector(size, lane, self.writer.depth)
        self.early = unit, {}
        for stage in (s for s in sweep if s not in self.nest.products):
            for (op, at), _ in self._reached(stage, self._index(stage), self._inner(stage)):
                if self._located(op, at) is None or len(self.early[1]) == MOST_EARLY:
                    continue
                name, at = self.memory.buffer(op), self.values.named(at)
                base = self._vector_base(linearize(at, op.dims)) if in_range(op, at) else None
                if base is not None:
                    self.early[1][name, base] = self._vector_of(op, name, base)
        self.vector = None
        self.row, self.step, self.pair = kept
        self._bind_row()

    def _bind_unit(self, unit: Index) -> Index:
        """Makes the current row, step and pair those of a `unit` of elements stored together; what
        runs through it."""
        in_row = self.steps // self.shape.unit
        self.row, self.step = unit // in_row, unit % in_row
        if self.lot == 1:
            return self.pair
        self.step, self.pair = self.step // self.pairs, self.step % self.pairs
        return self.next

    @contextmanager
    def _own_elements(self) -> Iterator[Places]:
        """The elements of the tile that a thread has joined."""
        shares, size = self.shape.shares, self.shape.unit
        units = self.rows * self.steps // size
        own = variable(self.writer.name("own"), -(-units // shares))
        with ExitStack() as opened:
            if self.early:
                unit = self.early[0]
                guard = infix("<", Integer(self.share), units) if units < shares else None
                opened.enter_context(self._guarded(guard))
            else:
                opened.enter_context(self._loop(own))
                number = own * shares + self.share
                unit = opened.enter_context(self._existing(number, units))
            near = self._bind_unit(unit)
            self._bind_row()
            if self.clamped:
                self.writer.add(self.clamped)
                self.writer.declare(render(self.row_name))
            opened.enter_context(self._neighbours(near))
            if self.early:
                self._vectors_before().update(self.early[1])
            place = own * size + near
            yield [(op, stage, element(array, place)) for op, stage, array in self.joined]

    @contextmanager
    def _neighbours(self, index: Index) -> Iterator[None]:
        """The loop over neighbouring columns, as vectors if all of them are there."""
        if self.plan.inner % (self.lanes * self.steps):
            with self._loop(index), self._column(guarded=True):
                yield
            return
        self.width, self._element = index.hi + 1, index
        with self._vector_loop():
            self._bind_column(self._column_place())
            yield
        self.width, self._element = 1, Index()
