"""The rows of a register tile: a team of lanes works on several of them at once.

Row by row the order is that of `NestEmitter`, but every statement of a row stands in an unrolled
loop over the tile's rows, and what does not depend on the row moves out of it: an operand is read
once for all of them. Values of a row are arrays over the tile's rows, values of an element arrays
over rows and steps; unrolled, both are registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Expr,
    Integer,
    Name,
    Number,
    apply,
    element,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.statements import ALL, Array, Fill, Group, If, Let, unrolled
from fusionstitch.codegen.ir.walk import mentions
from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage, body_reads, inlined_reads
from fusionstitch.codegen.lower.access import Site
from fusionstitch.codegen.lower.nest_emitter import NestEmitter
from fusionstitch.codegen.lower.rows import row_loop
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.places.index import Index, delinearize, render, variable
from fusionstitch.codegen.places.maps import Indices, in_range
from fusionstitch.codegen.text.types import c_type, compute_bytes
from fusionstitch.hlo.graph import Op

#: Registers that values kept from one sweep to the next may take beside a dot's own.
KEPT_REGISTERS = 48
#: What an array holds that is declared without values.
ZEROS = tuple(map(Number, ("0", "0.0f", "0.0", "false")))


class TiledRows(NestEmitter):
    """The loops over the rows of a tile, and the arrays that hold what is known of each."""

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
        #: whether a row is one of the tile's, and how many these are: None where all are
        self.row_live: Expr | None = None
        self.limit: Expr | None = None
        #: the row that a lane reads: of those beyond the last, the last
        self.clamped: Let | None = None
        self.result = self.writer.name("f")

    # ---- rows -----------------------------------------------------------------------------------

    def emit(self) -> None:
        writer, plan = self.writer, self.plan
        for stage in self.nest.stages:
            writer.note(self.comment(stage.op))
        if not self.shape.columns:
            self._open_rooms()
        team_rows = self.shape.team_rows
        units = -(-plan.rows // team_rows)
        limit = self._row_limit(1)
        whole = plan.rows // self.group.points % team_rows == 0
        whole = whole or (not self.group.ragged and plan.rows % team_rows == 0)
        unit = variable(writer.name("rows"), units)
        unit_limit: Expr = number(units)
        if self.group.ragged:
            above = infix("/", infix("+", limit, team_rows - 1), team_rows)
            unit_limit = above if team_rows > 1 else limit
        thread, threads = self._bind_threads()
        loop = row_loop(
            render(unit), units, unit_limit, plan.teams, threads, self.int, thread, self.together
        )
        with writer.nested(loop.frame or Group(), ordered=True):
            if loop.row:
                writer.let(self.int, render(unit), loop.row)
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

    def _bind_threads(self) -> tuple[Expr, int]:
        """A thread's number among those that the rows are for, and how many these are."""
        return THREAD, self.block

    def _bind_lanes(self, lane: Expr | None) -> None:
        """Declares the thread's place in its row."""
        if lane:
            self.lane = self.writer.declare(self.writer.name("lane"))
            self.writer.let("int", self.lane, lane)
            self.first = infix("==", Name(self.lane), 0)

    def _row_place(self, unit: Index) -> Index:
        """Row r of a team's tile number `unit`."""
        return unit * self.rows + self.row

    def _bind_tile(self, unit: Index, limit: Expr, whole: bool) -> None:
        """Binds the rows of the tile: row r of the team's `unit`."""
        self.unit, self.limit = unit, None if whole else limit
        self.row = variable(self.writer.name("r"), self.rows)
        self._bind_row()
        self.column = variable(self.writer.name("column"), self.plan.inner)
        self.step = variable(self.writer.name("s"), self.steps // self.pairs)
        self.pair = variable(self.writer.name("pair"), self.pairs)
        if self.steps == 1 and self.column.terms:
            beyond = self.lanes > self.plan.inner
            own = Name(self.lane)
            column = least("int", own, self.plan.inner - 1) if beyond else own
            self.writer.let("int", render(self.column), column)
            self.writer.declare(render(self.column))

    def _bind_row(self) -> None:
        """Binds the row axes to the current row: of those beyond the last, to the last."""
        place = row = self._row_place(self.unit)
        if self.limit:
            name = self.writer.name("row")
            clamped = least(self.int, Integer(place), infix("-", self.limit, 1))
            self.clamped = Let(self.int, name, clamped)
            self.row_live = infix("<", Integer(place), self.limit)
            row = self.row_name = variable(name, self.plan.rows)
        self._bind_rows(row, self._position(row, 1))

    @contextmanager
    def _rows(self, *arrays: dict[Key, str]) -> Iterator[None]:
        """The unrolled loop over the tile's rows, with `arrays` of rows known inside."""
        name, several = render(self.row), self.rows > 1
        with self.writer.nested(unrolled(name, self.rows)) if several else nullcontext():
            block = self.writer.block
            if several:
                self.writer.declare(name)
            if self.clamped:
                self.writer.add(self.clamped)
                self.writer.declare(render(self.row_name))
            for known in (self.row_arrays, *arrays):
                for (op, at), array in known.items():
                    block.memo[op.id, at] = element(array, self.row)
            yield
            others = [one for one in block.items if one is not self.clamped]
            if self.clamped and not mentions(others, self.clamped.name):
                block.items[:] = others

    @contextmanager
    def _loop(self, index: Index, unroll: int = ALL) -> Iterator[None]:
        """The loop over the one variable of `index`; none if it has no variable."""
        with ExitStack() as opened:
            for term in index.variables:
                name = term.name
                loop = replace(unrolled(name, term.extent), unroll=unroll)
                opened.enter_context(self.writer.nested(loop))
                self.writer.declare(name)
            yield

    def _guarded(self, condition: Expr | None) -> AbstractContextManager[object]:
        """A block that runs where `condition` holds; none if that is always."""
        return self.writer.nested(If(condition), pinned=True) if condition else nullcontext()

    @contextmanager
    def _column(self, guarded: bool) -> Iterator[None]:
        """The column of the current step. One beyond the last is left out, or is the last one again
        where that does no harm."""
        writer, inner, name = self.writer, self.plan.inner, render(self.column)
        beyond = inner % (self.lanes * self.steps) != 0
        guard = infix("<", Name(name if self.steps > 1 else self.lane), inner) if beyond else None
        if self.steps == 1 and not guarded:
            guard = None
        if self.steps > 1:
            place = self._own_column()
            if beyond and not guarded:
                guard, place = None, least("int", place, inner - 1)
            writer.let("int", name, place)
            writer.declare(name)
        self._bind_column(self.column)
        with self._guarded(guard):
            yield

    def _own_column(self) -> Expr:
        """The lane's column in the current step."""
        first = Integer(self.step * self.lanes)
        return infix("+", first, Name(self.lane)) if self.lanes > 1 else first

    def _place(self) -> Index:
        """The place in an array over rows and steps of the current element."""
        return self.row * self.steps + self.step * self.pairs + self.pair

    def _place_in_step(self) -> Index:
        """The place in an array over one step of the current element."""
        return self.pair * self.rows + self.row

    def _know_elements(self) -> None:
        for (op, at), name in self.element_arrays.items():
            self.writer.block.memo[op.id, at] = element(name, self._place())

    def _array(self, op: Op, ending: str, size: int, start: Expr | None = None) -> str:
        """Declares an array of `size` values, all `start` if that is given."""
        name = self.writer.name(f"{self.label(op)}{ending}")
        filled = start in ZEROS
        self.writer.add(Array(c_type(op.dtype).compute, name, size, zero=filled))
        if start and not filled:
            self.writer.add(Fill(name, size, start))
        return name

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

    def _buffer(self, name: str) -> Expr:
        return apply("fs_aligned", Name(name))
