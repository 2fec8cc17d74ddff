"""Where a lane is in its rows, and how it reads what is known there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from fusionstitch.codegen.dots.tile import TENSOR_GROUPS, TENSOR_LANES
from fusionstitch.codegen.index_maps.index import Index, constant, linearize, variable
from fusionstitch.codegen.index_maps.maps import Indices, in_range
from fusionstitch.codegen.index_maps.vectors import Vector
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Choice,
    Expr,
    Integer,
    Load,
    Name,
    Number,
    all_of,
    element,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.statements import (
    For,
    If,
    unrolled,
)
from fusionstitch.codegen.ir.types import BOOL, INT, LONG, IndexType
from fusionstitch.codegen.layers.columns import LANE_ROWS, WARP_ROWS, Columns
from fusionstitch.codegen.layers.sizes import Shape
from fusionstitch.codegen.layers.values import ENDS, Role, Value
from fusionstitch.codegen.lower.buffers import is_wide
from fusionstitch.codegen.lower.known import AtDepth, Known, Located
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.lower.vector_access import VectorAccess
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.graph import Op

#: What is done at a column of a row: a step, the neighbour in it, the column.
Body = Callable[[Index, Index, Index], None]


class Rows:
    """Where a lane is: its rows, the columns that a loop is at, and what it holds of values."""

    def __init__(self, shape: Shape, buffers: dict[int, str], numerics: str, writer: Writer):
        self.writer, self.elements = writer, VectorAccess(writer)
        self.shape, self.layers, self.buffers = shape, shape.layers, buffers
        self.int: IndexType = LONG if is_wide(self.layers.graph) else INT
        known = Known(writer, self.label, self.int)
        self.values = Values(known, self, numerics, {})
        self.by_op = {value.op.id: value for value in self.layers.values}
        #: what lanes have in registers is read at no other place, as the nearest that there is
        self.owned = frozenset(op for op, value in self.by_op.items() if not value.scattered)
        self.held: dict[Value, str] = {}
        self.spread: dict[Value, str] = {}
        self.lane = self.warp = self.group = self.member = Index()
        #: the rows of a lane, in all and in the block, and whether they are there (None: they are)
        self.rows: list[Index] = []
        self.local: list[Index] = []
        self.live: list[Expr | None] = []
        #: the column that is computed, its step and which of the neighbours it is
        self.column = self.step = self.near = Index()
        #: whether the row has it (None: it does)
        self.inside: Expr | None = None
        #: after the last row, an element of a sum over all of them
        self.total: Callable[[Value, Index], Expr] | None = None

    def label(self, op: Op) -> str:
        """What a value is called."""
        return op.name or op.opcode

    # ---- where a lane is -------------------------------------------------------------------------

    def integer(self, hint: str, value: Expr, extent: int) -> Index:
        """A variable of so many values."""
        name = self.writer.name(hint)
        self.writer.let(self.int, name, value)
        self.writer.declare(name)
        return variable(name, extent)

    def bind_lane(self) -> None:
        """Declares the lane's place in its warp, and that of the warp."""
        self.lane = lane = self.integer("lane", infix("%", THREAD, WARP), WARP)
        if self.shape.warps > 1:
            self.warp = self.integer("warp", infix("/", THREAD, WARP), self.shape.warps)
        self.group = self.integer("group", Integer(lane // TENSOR_LANES), TENSOR_GROUPS)
        self.member = self.integer("member", Integer(lane % TENSOR_LANES), TENSOR_LANES)
        local = self.warp * WARP_ROWS + self.group
        self.local = [local + row * TENSOR_GROUPS for row in range(LANE_ROWS)]

    @contextmanager
    def tiles(self) -> Iterator[None]:
        """The loop over the rows of a block, so many at a time."""
        shape, count = self.shape, self.layers.rows
        tile = self.writer.name("tile")
        frame = For(self.int, tile, BLOCK, number(shape.tiles), step=shape.grid)
        with self.writer.nested(frame, pinned=True):
            self.writer.declare(tile)
            self.rows, self.live = [], []
            for local in self.local:
                row = variable(tile, shape.tiles) * shape.block_rows + local
                value: Expr = Integer(row)
                live: Expr | None = None
                if row.hi >= count:
                    name = self.writer.name("live")
                    self.writer.let(BOOL, name, infix("<", value, count))
                    live, value = Name(name), least(self.int, value, count - 1)
                self.rows.append(self.integer("row", value, count))
                self.live.append(live)
            yield

    def along(self, columns: Columns, stepwise: bool, body: Body) -> None:
        """The loop over a lane's columns of a row: of steps that are alike, and of neighbours."""
        counted = variable(self.writer.name("s"), columns.steps)
        steps = [constant(n) for n in range(columns.steps)] if stepwise else [counted]
        for step in steps:
            with self.loop(step):
                self.at_step(columns, step, body)

    @contextmanager
    def loop(self, index: Index) -> Iterator[None]:
        """The loop over the one variable of `index`, written out; none if it has no variable."""
        frames: list[For] = [unrolled(v.name, v.extent) for v in index.variables]
        with self.writer.nested(frames[0]) if frames else nullcontext():
            if frames:
                self.writer.declare(frames[0].variable)
            yield

    def at_step(self, columns: Columns, step: Index, body: Body) -> None:
        """The neighbouring columns of one step. Those beyond the last are the last one again, and
        not `inside`: a branch would make each wait for the one before."""
        near = variable(self.writer.name("v"), columns.lot)
        with self.elements.vector_loop(near):
            column, self.inside = columns.column(step, self.member, near), None
            if column.hi >= columns.extent:
                self.inside = infix("<", Integer(column), columns.extent)
                last = least(INT, Integer(column), columns.extent - 1)
                column = self.integer("column", last, columns.extent)
            self.column, self.step, self.near = column, step, near
            body(step, near, column)
            self.column, self.inside = Index(), None

    def chosen(self, value: Expr, otherwise: Number, *conditions: Expr | None) -> Expr:
        """A value where the column is inside and all conditions hold."""
        condition = all_of([self.inside, *conditions])
        return value if condition is None else Choice(((condition, value),), otherwise)

    @contextmanager
    def below(self, extent: int, index: Index, hint: str = "column") -> Iterator[Index]:
        """`index` as a number below `extent`; what is beyond is left out."""
        guard: Expr | None = None
        if index.hi >= extent:
            name = self.writer.name(hint)
            self.writer.let(self.int, name, Integer(index))
            self.writer.declare(name)
            guard, index = infix("<", Name(name), extent), variable(name, extent)
        with self.where(guard):
            yield index

    def where(self, condition: Expr | None) -> AbstractContextManager[object]:
        """A block that runs where `condition` holds; none if that is always."""
        return self.writer.nested(If(condition), pinned=True) if condition else nullcontext()

    # ---- what reads values -----------------------------------------------------------------------

    @property
    def int_(self) -> IndexType:
        return self.int

    def stored(self, op: Op, index: Indices) -> AtDepth | None:
        """How to read `op` at `index`: an input from its buffer, a value where lanes hold it."""
        if op.opcode == "parameter":
            return self.elements.loaded(op, self.buffers[op.id], index), self.values.depth_of(
                op, index
            )
        value = self.by_op.get(op.id)
        if value is None or value.role is Role.LATE:
            return None
        if value.role in ENDS:
            assert self.total is not None
            return self.total(value, linearize(index, op.dims)), self.writer.depth
        extents = value.extents
        at = linearize([index[d] for d in value.rows], [extents[d] for d in value.rows])
        row = self.rows.index(at)
        column = linearize([index[d] for d in value.free], [extents[d] for d in value.free])
        depth = self.values.known.depth_of((at, column))
        if value in self.spread or not in_range(op, index):
            depth = max(depth, self.writer.ordered_depth)  # what asks for the place is around it
        held = self._held(value, row, column)
        return self.values.finished(op, held) if op.opcode == "dot" else held, depth

    def _held(self, value: Value, row: int, column: Index) -> Expr:
        if value in self.spread:
            place = self.local[row] * self.shape.rows[value][1] + column
            return Load(Name(self.spread[value]), Integer(place))
        array = self.held[value]
        if not value.free or value.size(value.free) == 1:
            return element(array, constant(row))
        ahead = column - self.column
        columns = self.layers.of(value)
        assert not ahead.terms
        step = self.step + ahead.const // columns.unit
        if not step.terms and not 0 <= step.const < columns.steps:
            return Number(literal(0, value.op.dtype))  # a branch that is not taken there
        return element(array, columns.at(step, self.near, row))

    def located(self, op: Op, index: Indices) -> Located | None:
        """In which buffer a value lies, if it lies in one."""
        if op.opcode != "parameter":
            return None
        return Located(Name(self.buffers[op.id]), linearize(index, op.dims))

    @property
    def vector(self) -> Vector | None:
        """What the loop is over that is open."""
        return self.elements.vector

    def bases(self, addresses: Sequence[Index]) -> tuple[list[Index], Index]:
        """As `VectorAccess.bases`."""
        return self.elements.bases(addresses)

    def loaded_from(self, op: Op, start: str, depth: int, address: Index, aligned: bool) -> Expr:
        """As `VectorAccess.loaded_from`."""
        return self.elements.loaded_from(op, start, depth, address, aligned)
