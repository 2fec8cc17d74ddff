"""The rows of a register tile: a team of lanes works on several of them at once.

The order is that of other nests (nest.py), but every statement of a row stands in an unrolled loop
over the tile's rows. What does not depend on the row moves out of it: an operand is read once for
all of them. Values per row are arrays over the tile's rows, values per element are arrays over rows
and steps. Once unrolled, both are registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

from fusionstitch.codegen.dots.tile import TENSOR_GROUPS, Kind
from fusionstitch.codegen.index_maps.index import Index, render, variable
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
from fusionstitch.codegen.ir.statements import ALL, Array, Fill, If, Let, unrolled
from fusionstitch.codegen.ir.types import INT, computed
from fusionstitch.codegen.ir.walk import mentions
from fusionstitch.codegen.loops.nests import result_axes
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.access import Access, Site
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.hlo.graph import Op

#: What an array holds that is declared without values.
ZEROS = tuple(map(Number, ("0", "0.0f", "0.0", "false")))


class TileRows:
    """Where a thread is in its tile: the loops over its rows and columns, and the arrays that hold
    what is known of each."""

    def __init__(self, site: Site):
        assert site.nest.tile is not None
        self.tile = tile = site.nest.tile
        self.access = access = Access(site)
        self.writer, self.values, self.digits = access.writer, access.values, access.digits
        self.plan, self.nest, self.walk = access.plan, access.nest, access.walk
        self.group, self.axes = access.group, access.axes
        self.label, self.int = access.label, access.int
        self.block = site.kernel.plan.block
        #: arrays over the tile's rows, and over rows and steps, by what they hold
        self.row_arrays: dict[Key, str] = {}
        self.element_arrays: dict[Key, str] = {}
        #: the team's tile, and the row of it; that row of the nest where not all are there
        self.unit = self.row = self.row_name = Index()
        #: the column: its step, which of a lane's in that, and the block of a streamed row
        self.column = self.step = self.pair = self.column_block = Index()
        #: the thread's number in its row, and its group of lanes on tensor cores
        self.lane = ""
        self.member = self.four = Index()
        #: the part of the summed elements that a thread walks
        self.share = Index()
        #: whether the thread's row is its own, and whether it is the first of its team
        self.live: Expr | None = None
        self.first: Expr | None = None
        #: whether a row is one of the tile's, and how many these are: None where all are
        self.row_live: Expr | None = None
        self.limit: Expr | None = None
        #: the row that a lane reads: of those beyond the last, the last
        self.clamped: Let | None = None
        #: a result of a dot along the columns, a summed element of a run, a column of a lot
        self.result = self.writer.name("f")
        self.near = self.next = Index()
        if tile.kind is not Kind.ROWS:
            self.near = variable(self.writer.name("near"), tile.run)
            self.next = variable(self.writer.name("next"), tile.lot)

    # ---- where a thread is ----------------------------------------------------------------------

    def bind_threads(self) -> tuple[Expr, int]:
        """A thread's number among those that the rows are for, and how many these are."""
        shares = self.tile.shares
        if shares == 1:
            return THREAD, self.block
        threads = self.block // shares
        thread, share = self.writer.name("thread"), self.writer.name("share")
        for name, operator in ((thread, "%"), (share, "/")):
            self.writer.let(INT, name, infix(operator, THREAD, threads))
            self.writer.declare(name)
        self.share = variable(share, shares)
        return Name(thread), threads

    def bind_lanes(self, lane: Expr | None) -> None:
        """Declares the thread's number in its row, and which of its warp's rows that is."""
        if not lane:
            return
        lanes, tensor = self.tile.lanes, self.tile.tensor
        self.lane = self.writer.declare(self.writer.name("lane"))
        self.writer.let(INT, self.lane, infix("%", lane, lanes) if tensor else lane)
        self.first = infix("==", Name(self.lane), 0)
        self.member = variable(self.lane, lanes)
        if tensor:
            name = self.writer.declare(self.writer.name("group"))
            self.writer.let(INT, name, infix("/", lane, lanes))
            self.four = variable(name, TENSOR_GROUPS)

    def bind_tile(self, unit: Index, limit: Expr) -> None:
        """Binds the rows of the tile: row r of the team's `unit`."""
        tile = self.tile
        self.unit, self.limit = unit, None if self.plan.whole_tiles(self.group) else limit
        self.row = variable(self.writer.name("r"), tile.rows)
        self.bind_row()
        self.column = variable(self.writer.name("column"), self.plan.inner)
        self.step = variable(self.writer.name("s"), tile.rounds)
        self.pair = variable(self.writer.name("pair"), tile.pairs)
        if tile.steps == 1 and self.column.terms:
            beyond = tile.lanes > self.plan.inner
            own = Name(self.lane)
            column = least(INT, own, self.plan.inner - 1) if beyond else own
            self.writer.let(INT, render(self.column), column)
            self.writer.declare(render(self.column))

    def row_index(self) -> Index:
        """The row of the nest, which may lie beyond the last."""
        return self.tile.row_of(self.unit, self.four, self.row)

    def bind_row(self) -> None:
        """Binds the row axes to the current row: of those beyond the last, to the last."""
        index = row = self.row_index()
        if self.limit:
            name = self.writer.name("row")
            clamped = least(self.int, Integer(index), infix("-", self.limit, 1))
            self.clamped = Let(self.int, name, clamped)
            self.row_live = infix("<", Integer(index), self.limit)
            row = self.row_name = variable(name, self.plan.rows)
        self.access.bind_rows(row, self.access.position(row, 1))

    def declare_row(self) -> None:
        """Declares the row that a lane reads, where not all are there."""
        if self.clamped:
            self.writer.add(self.clamped)
            self.writer.declare(render(self.row_name))

    def conditions(self) -> list[Expr | None]:
        """Where a thread stores the value of a row."""
        return [self.first, self.live, self.row_live]

    # ---- loops ----------------------------------------------------------------------------------

    @contextmanager
    def rows(self, *arrays: dict[Key, str]) -> Iterator[None]:
        """The unrolled loop over the tile's rows, with `arrays` of rows known inside."""
        name, several = render(self.row), self.tile.rows > 1
        with self.writer.nested(unrolled(name, self.tile.rows)) if several else nullcontext():
            block = self.writer.block
            if several:
                self.writer.declare(name)
            self.declare_row()
            for known in (self.row_arrays, *arrays):
                for (op, at), array in known.items():
                    block.memo[op.id, at] = element(array, self.row)
            yield
            others = [one for one in block.items if one is not self.clamped]
            if self.clamped and not mentions(others, self.clamped.name):
                block.items[:] = others

    @contextmanager
    def loop(self, index: Index, unroll: int = ALL) -> Iterator[None]:
        """The loop over the one variable of `index`; none if it has no variable."""
        with ExitStack() as opened:
            for term in index.variables:
                name = term.name
                loop = replace(unrolled(name, term.extent), unroll=unroll)
                opened.enter_context(self.writer.nested(loop))
                self.writer.declare(name)
            yield

    def guarded(self, condition: Expr | None) -> AbstractContextManager[object]:
        """A block that runs where `condition` holds; none if that is always."""
        return self.writer.nested(If(condition), pinned=True) if condition else nullcontext()

    @contextmanager
    def existing(self, result: Index, size: int) -> Iterator[Index]:
        """`result` as a number below `size`; what is beyond is left out."""
        if result.hi < size:
            yield result
            return
        name = self.writer.declare(self.writer.name("result"))
        self.writer.let(INT, name, Integer(result))
        with self.guarded(infix("<", Name(name), size)):
            yield variable(name, size)

    @contextmanager
    def columns(self, guarded: bool) -> Iterator[None]:
        """The column of the current step. One beyond the last is left out, or is the last one again
        where that does no harm."""
        tile, inner, name = self.tile, self.plan.inner, render(self.column)
        beyond = inner % (tile.lanes * tile.steps) != 0
        guard = infix("<", Name(name if tile.steps > 1 else self.lane), inner) if beyond else None
        if tile.steps == 1 and not guarded:
            guard = None
        if tile.steps > 1:
            index: Expr = Integer(self.column_index())
            if beyond and not guarded:
                guard, index = None, least(INT, index, inner - 1)
            self.writer.let(INT, name, index)
            self.writer.declare(name)
        self.digits.bind_column(self.column)
        with self.guarded(guard):
            yield

    # ---- indices --------------------------------------------------------------------------------

    def column_index(self) -> Index:
        """The lane's column in the current step, which may lie beyond the last."""
        near = self.next
        return self.tile.column_of(self.column_block, self.step, self.member, self.pair, near)

    def element_index(self) -> Index:
        """The index of the current element in an array over rows and steps."""
        step = self.step * self.tile.pairs + self.pair
        return self.row * self.tile.steps + step * self.tile.lot + self.next

    def step_index(self) -> Index:
        """The index of the current element in an array over one step. Elements of a streamed row
        are adjacent in it."""
        if self.tile.columns:
            return self.row * self.tile.pairs + self.pair
        return self.pair * self.tile.rows + self.row

    def know_elements(self) -> None:
        """Makes the elements in registers known in the current frame."""
        for (op, at), name in self.element_arrays.items():
            self.writer.block.memo[op.id, at] = element(name, self.element_index())

    def array(self, op: Op, ending: str, size: int, start: Expr | None = None) -> str:
        """Declares an array of `size` values, all `start` if that is given."""
        name = self.writer.name(f"{self.label(op)}{ending}")
        filled = start in ZEROS
        self.writer.add(Array(computed(op.dtype), name, size, zero=filled))
        if start and not filled:
            self.writer.add(Fill(name, size, start))
        return name

    def free_leaves(self, stage: Stage) -> list[int]:
        """The axes of a stage's results per row."""
        return result_axes(self.group.group, self.nest, stage)

    def bind_results(self, stage: Stage) -> Index:
        """Binds the axes of a dot's results per row to a variable of their own."""
        leaves = self.free_leaves(stage)
        free = variable(self.result, self.axes.size(leaves))
        self.digits.bind(leaves, free)
        return free

    def is_stored(self, stage: Stage) -> bool:
        """Whether a stage's value is stored in memory."""
        memory = self.access.memory
        return bool(self.access.stores(stage) or stage.cuts or stage in memory.shared)
