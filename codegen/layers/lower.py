"""Layers as statements: what a block does with its rows, value by value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from fusionstitch.codegen.dots.tile import TENSOR_GROUPS, TENSOR_LANES
from fusionstitch.codegen.index_maps.index import Index, constant, linearize, variable
from fusionstitch.codegen.index_maps.maps import Indices, in_range
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
    apply,
    element,
    infix,
    least,
    number,
    pointer_at,
)
from fusionstitch.codegen.ir.intrinsics import (
    JOIN,
    MMA_ALONG,
    PACK,
    REDUCE_LANES,
    STORE_PACKED,
)
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Blank,
    Call,
    Fill,
    For,
    If,
    Shared,
    Statement,
    Store,
    unrolled,
)
from fusionstitch.codegen.ir.types import BOOL, FLOAT, INT, WORD, IndexType, computed, stored
from fusionstitch.codegen.layers.columns import LANE_ROWS, WARP_ROWS, Columns
from fusionstitch.codegen.layers.sizes import Shape
from fusionstitch.codegen.layers.sums import Sums
from fusionstitch.codegen.layers.values import ENDS, Role, Value, side_of_rows
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.codegen.lower.context import describe
from fusionstitch.codegen.lower.known import AtDepth, Known, Located
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.lower.vector_access import VectorAccess
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.graph import Op

#: What is beside the elements of a row that is multiplied.
NOTHING = Number("0.0f")
#: What is done at a column of a row: a step, the neighbour in it, the column.
Body = Callable[[Index, Index, Index], None]


class Rows(VectorAccess):
    """Where a lane is: its rows, the columns that a loop is at, and what it holds of values."""

    owned: frozenset[int] = frozenset()

    def __init__(self, shape: Shape, buffers: dict[int, str], numerics: str, writer: Writer):
        super().__init__(writer)
        self.shape, self.layers, self.buffers = shape, shape.layers, buffers
        self.int: IndexType = INT
        known = Known(writer, self.label, self.int)
        self.values = Values(known, self, numerics, {})
        self.by_op = {value.op.id: value for value in self.layers.values}
        self.held: dict[Value, str] = {}
        self.spread: dict[Value, str] = {}
        self.warp = self.group = self.member = Index()
        #: the rows of a lane, in all and in the block, and whether they are there (None: they are)
        self.rows: list[Index] = []
        self.local: list[Index] = []
        self.live: list[Expr | None] = []
        #: the column that is computed, its step and which of the neighbours it is
        self.column = self.step = self.near = Index()
        #: whether the row has it (None: it does)
        self.inside: Expr | None = None

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
        lane = self.integer("lane", infix("%", THREAD, WARP), WARP)
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
        with self.vector_loop(near):
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
            return self.loaded(op, self.buffers[op.id], index), self.values.depth_of(op, index)
        value = self.by_op.get(op.id)
        if value is None or value.role in ENDS:
            return None
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


class Lowering:
    """The statements of a kernel of layers."""

    def __init__(
        self,
        shape: Shape,
        inputs: dict[int, str],
        outputs: dict[int, list[str]],
        scratch: str,
        numerics: str,
        writer: Writer,
    ):
        self.shape, self.layers, self.outputs, self.writer = shape, shape.layers, outputs, writer
        self.rows = Rows(shape, inputs, numerics, writer)
        self.values = self.rows.values
        self.sums = Sums(self.rows, outputs, scratch)
        self.matrices: dict[Value, str] = {}
        self.read = {v for value in self.layers.values for v, _ in value.reads}

    def body(self) -> tuple[Statement, ...]:
        """All statements: matrices, rows, and what all rows add up to."""
        rows, writer = self.rows, self.writer
        rows.bind_lane()
        copied: dict[int, str] = {}
        for value, matrix in self.shape.matrices.items():
            if matrix.offset not in copied:
                copied[matrix.offset] = self._copy_matrix(value)
            self.matrices[value] = copied[matrix.offset]
        for value, (offset, stride) in self.shape.rows.items():
            name = writer.name(f"{rows.label(value.op)}_rows")
            size = self.shape.block_rows * stride
            writer.add(Shared(computed(value.op.dtype), name, offset, size))
            rows.spread[value] = name
        self.sums.declare()
        writer.add(Blank())
        write = {
            Role.PRODUCT: self._product,
            Role.FOLD: self._fold,
            Role.ELEMENTS: self._elements,
            Role.SUM: self.sums.add_products,
            Role.TOTAL: self.sums.add,
        }
        with rows.tiles():
            for value in self.layers.values:
                if value.role is not Role.LATE:
                    writer.note(comment(describe(value.op)), (rows.label(value.op),))
                    write[value.role](value)
        self.sums.finish()
        return writer.body

    # ---- matrices --------------------------------------------------------------------------------

    def _copy_matrix(self, value: Value) -> str:
        """Copies what a product multiplies rows with to shared memory, as tensor cores read it."""
        rows, writer, matrix = self.rows, self.writer, self.shape.matrices[value]
        kind, inner, outer = stored(matrix.element), matrix.inner, matrix.outer
        side = 1 - side_of_rows(value)
        name = writer.name(f"{rows.label(value.op.operands[side])}_matrix")
        writer.note(comment(f"{rows.label(value.op)} multiplies by this"))
        writer.add(Shared(kind, name, matrix.offset, matrix.size))
        lots = inner.padded // inner.lot
        count = outer.padded * lots
        item = writer.name("i")
        with writer.nested(
            For(INT, item, THREAD, number(count), step=self.shape.block), pinned=True
        ):
            writer.declare(item)
            at = variable(item, count)
            column, lot = at % outer.padded, at // outer.padded
            part = writer.name("part")
            writer.add(Array(FLOAT, part, inner.lot, zero=inner.ragged or outer.ragged))
            near = variable(writer.name("v"), inner.lot)
            with rows.vector_loop(near):
                depth = lot * inner.lot + near
                with (
                    rows.below(outer.extent, column) as column,
                    rows.below(inner.extent, depth, "depth") as depth,
                ):
                    place = value.place((value.free, column), (value.along, depth))
                    source, index = body_reads(value.op, *place)[side]
                    writer.add(Assign(element(part, near), self.values.value(source, index)))
            to = pointer_at(Name(name), at % outer.padded * matrix.stride + lot * inner.lot)
            writer.add(Call(STORE_PACKED, (kind, inner.lot), (to, Name(part))))
        return name

    # ---- values of rows --------------------------------------------------------------------------

    def _product(self, value: Value) -> None:
        """A row times a matrix: what lanes hold of the row is an operand as it is."""
        rows, writer, matrix = self.rows, self.writer, self.shape.matrices[value]
        kind, inner, outer = stored(matrix.element), matrix.inner, matrix.outer
        side, words = side_of_rows(value), matrix.words
        name = writer.name(rows.label(value.op))
        writer.add(Array(FLOAT, name, outer.held, zero=True))
        counted = variable(writer.name("k"), inner.steps)
        steps = [constant(n) for n in range(inner.steps)] if value.stepwise else [counted]
        for step in steps:
            with rows.loop(step):
                part, packed = writer.name("part"), writer.name("words")
                writer.add(Array(FLOAT, part, LANE_ROWS * inner.lot))

                def multiply(step: Index, near: Index, column: Index, part: str = part) -> None:
                    for row in range(LANE_ROWS):
                        at = value.place((value.rows, rows.rows[row]), (value.along, column))
                        source, index = body_reads(value.op, *at)[side]
                        own = rows.chosen(self.values.value(source, index), NOTHING)
                        writer.add(Assign(element(part, near + row * inner.lot), own))

                rows.at_step(inner, step, multiply)
                writer.add(Array(WORD, packed, LANE_ROWS * words))
                for row in range(LANE_ROWS):
                    to = pointer_at(Name(packed), constant(row * words))
                    given = pointer_at(Name(part), constant(row * inner.lot))
                    writer.add(Call(PACK, (kind, inner.lot), (to, given)))
                tile = variable(writer.name("n"), outer.tiles)
                with rows.loop(tile):
                    place = outer.result(tile, rows.group) * matrix.stride
                    place = place + inner.column(step, rows.member, Index())
                    arguments = (
                        pointer_at(Name(name), tile * (2 * LANE_ROWS)),
                        pointer_at(Name(name), tile * (2 * LANE_ROWS) + LANE_ROWS),
                        Name(packed),
                        pointer_at(Name(packed), constant(words)),
                        pointer_at(Name(self.matrices[value]), place),
                    )
                    writer.add(Call(MMA_ALONG, (kind, words), arguments))
        self._keep(value, self._of_first_lane(value, name) if outer.extent == 1 else name)

    def _of_first_lane(self, value: Value, name: str) -> str:
        """The only element of a row, which its first lane has, in all of its lanes."""
        rows, writer = self.rows, self.writer
        first = infix("==", Integer(rows.member), 0)
        alone = writer.name(f"{rows.label(value.op)}_alone")
        writer.add(Array(FLOAT, alone, LANE_ROWS))
        for row in range(LANE_ROWS):
            own = element(name, self.layers.of(value).at(Index(), Index(), row))
            chosen = Choice(((first, own),), NOTHING)
            total = apply(REDUCE_LANES, chosen, template=(TENSOR_LANES, "FsAdd"))
            writer.add(Assign(element(alone, constant(row)), total))
        return alone

    def _fold(self, value: Value) -> None:
        """All elements of a row joined."""
        rows, writer, op = self.rows, self.writer, value.op
        start, functor = joins(op)
        name = writer.name(rows.label(op))
        writer.add(Array(computed(op.dtype), name, LANE_ROWS))
        writer.add(Fill(name, LANE_ROWS, Number(start)))

        def join(step: Index, near: Index, column: Index) -> None:
            for row in range(LANE_ROWS):
                at = value.place((value.rows, rows.rows[row]), (value.along, column))
                term = rows.chosen(self.values.accumulated(op, *at), Number(start))
                own = element(name, constant(row))
                writer.add(Assign(own, apply(JOIN, own, term, template=(functor,))))

        rows.along(self.layers.columns(value.size(value.along)), value.stepwise, join)
        for row in range(LANE_ROWS):
            own = element(name, constant(row))
            total = apply(REDUCE_LANES, own, template=(TENSOR_LANES, functor))
            writer.add(Assign(own, self.values.finished(op, total)))
        self._keep(value, name)

    def _elements(self, value: Value) -> None:
        """Computed element by element."""
        rows, writer, op = self.rows, self.writer, value.op
        if value not in self.read:
            self._store(value, lambda index: self.values.computed(op, index)[0])
            return
        name = writer.name(rows.label(op))
        writer.add(Array(computed(op.dtype), name, self._size(value)))
        zero = Number(literal(0, op.dtype))

        def compute(step: Index, near: Index, column: Index) -> None:
            for row in range(LANE_ROWS):
                index, _ = value.place((value.rows, rows.rows[row]), (value.free, column))
                own = rows.chosen(self.values.computed(op, index)[0], zero)
                writer.add(Assign(element(name, self._place(value, step, near, row)), own))

        self._each(value, compute)
        self._keep(value, name)

    def _each(self, value: Value, body: Body) -> None:
        """Each column of a value; once where it has one."""
        columns = self.layers.of(value)
        if columns.extent == 1:
            body(Index(), Index(), Index())
        else:
            self.rows.along(columns, value.stepwise, body)

    def _size(self, value: Value) -> int:
        columns = self.layers.of(value)
        return LANE_ROWS if columns.extent == 1 else columns.held

    def _place(self, value: Value, step: Index, near: Index, row: int) -> Index:
        columns = self.layers.of(value)
        return constant(row) if columns.extent == 1 else columns.at(step, near, row)

    def _keep(self, value: Value, name: str) -> None:
        """What is in registers, from now on known; where other lanes read it, to shared memory, and
        where it is an output, to its buffers."""
        rows = self.rows
        rows.held[value] = name
        spread = rows.spread.pop(value, None)

        def known(index: Indices) -> Expr:
            found = rows.stored(value.op, index)
            assert found is not None
            return (
                self.values.finished(value.op, found[0]) if value.op.opcode == "dot" else found[0]
            )

        if spread is not None:

            def share(step: Index, near: Index, column: Index) -> None:
                for row in range(LANE_ROWS):
                    index, _ = value.place((value.rows, rows.rows[row]), (value.free, column))
                    place = rows.local[row] * self.shape.rows[value][1] + column
                    own = known(index)
                    with rows.where(rows.inside):
                        self.writer.add(Store(spread, Integer(place), own))

            self._each(value, share)
        if value.op.id in self.outputs:
            self._store(value, known)
        if spread is not None:
            rows.spread[value] = spread

    def _store(self, value: Value, known: Callable[[Indices], Expr]) -> None:
        """Writes a value of the rows to its outputs."""
        rows, writer, op = self.rows, self.writer, value.op
        alone = self.layers.of(value).extent == 1

        def store(step: Index, near: Index, column: Index) -> None:
            for row in range(LANE_ROWS):
                index, _ = value.place((value.rows, rows.rows[row]), (value.free, column))
                first = infix("==", Integer(rows.member), 0) if alone else None
                condition = all_of([rows.inside, rows.live[row], first])
                address, own = linearize(index, op.dims), known(index)
                stores = rows.written(self.outputs[op.id], op, address, own, condition)
                if stores:
                    with rows.where(condition):
                        for one in stores:
                            writer.add(one)

        self._each(value, store)
