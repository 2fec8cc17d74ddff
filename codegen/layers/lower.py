"""Layers as statements: what a block does with its rows, value by value."""

from __future__ import annotations

from collections.abc import Callable

from fusionstitch.codegen.dots.tile import TENSOR_LANES
from fusionstitch.codegen.index_maps.index import Index, constant, linearize, variable
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Choice,
    Expr,
    Integer,
    Name,
    Number,
    all_of,
    apply,
    element,
    infix,
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
    Shared,
    Statement,
    Store,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, WORD, computed, stored
from fusionstitch.codegen.layers.columns import LANE_ROWS
from fusionstitch.codegen.layers.rows import Body, Rows
from fusionstitch.codegen.layers.sizes import Shape
from fusionstitch.codegen.layers.sums import Sums
from fusionstitch.codegen.layers.totals import Totals
from fusionstitch.codegen.layers.values import Role, Value, side_of_rows
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.codegen.lower.context import describe
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment

#: What is beside the elements of a row that is multiplied.
NOTHING = Number("0.0f")


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
        self.sums = Sums(self.rows)
        self.totals = Totals(self.sums, outputs, scratch)
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
        self.totals.finish()
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
            with rows.elements.vector_loop(near):
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
                stores = rows.elements.written(self.outputs[op.id], op, address, own, condition)
                if stores:
                    with rows.where(condition):
                        for one in stores:
                            writer.add(one)

        self._each(value, store)
