"""Sums over the rows of a block, in registers from its first row to its last.

Weights' gradients are products of two values of a row, summed. Lanes hold rows; tensor cores sum
along what lanes hold. So both values of the rows of a block go to shared memory, from where warps
read them the other way, and add up a part of the sums each.
"""

from __future__ import annotations

from fusionstitch.codegen.dots.tile import (
    TENSOR_COLUMNS,
    TENSOR_LANES,
    TENSOR_ROWS,
)
from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.expressions import (
    Integer,
    Name,
    Number,
    apply,
    element,
    infix,
    least,
    number,
    pointer_at,
)
from fusionstitch.codegen.ir.intrinsics import (
    JOIN,
    MMA_DOWN,
    SCATTER_LANES,
    STORE_PACKED,
)
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Call,
    Fill,
    For,
    Shared,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, computed, stored
from fusionstitch.codegen.layers.columns import LANE_ROWS
from fusionstitch.codegen.layers.rows import Rows
from fusionstitch.codegen.layers.sizes import Outer, spread_over
from fusionstitch.codegen.layers.values import Role, Value, columns_of
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.codegen.rewrite.monoids import joins

#: Instructions between two loads of the operands of a sum that are written out.
STEPS_AT_ONCE = 2


class Sums:
    """The sums over all rows of a kernel."""

    def __init__(self, rows: Rows):
        self.rows = rows
        self.shape, self.layers, self.writer = rows.shape, rows.layers, rows.writer
        self.values = rows.values
        self.names: dict[Value, str] = {}
        self.sides: dict[Value, tuple[str, str]] = {}
        #: by sum of products, which tile of all the first of a warp's is
        self.first: dict[Value, tuple[Index, Index]] = {}

    def declare(self) -> None:
        """Begins the sums of a lane, and says which are a warp's."""
        writer, rows = self.writer, self.rows
        for value in self.layers.with_role(Role.SUM, Role.TOTAL):
            name = writer.name(f"{rows.label(value.op)}_sums")
            self.names[value] = name
            size = self.size(value)
            if value.role is Role.SUM:
                writer.add(Array(FLOAT, name, size, zero=True))
                outer = self.shape.outers[value]
                self.first[value] = (
                    rows.warp % outer.down * outer.high,
                    rows.warp // outer.down * outer.wide,
                )
            else:
                writer.add(Array(computed(value.op.dtype), name, size))
                writer.add(Fill(name, size, Number(joins(value.op)[0])))

    def size(self, value: Value) -> int:
        if value.role is Role.SUM:
            return self.shape.outers[value].held
        if value.op.shape.size == 1:
            return 1
        return -(-self._parts(value) // spread_over(self.layers, value))

    def _parts(self, value: Value) -> int:
        """Totals of a lane for the rows that it has: as many as groups can share."""
        own = self.layers.of(value).held // LANE_ROWS
        return 1 << (own - 1).bit_length() if spread_over(self.layers, value) > 1 else own

    # ---- rows ------------------------------------------------------------------------------------

    def add(self, value: Value) -> None:
        """Adds a lane's elements of its rows to its sums."""
        rows, writer, op = self.rows, self.writer, value.op
        (start, functor), total = joins(op), self.names[value]
        spread = spread_over(self.layers, value) if op.shape.size > 1 else 1
        name = total
        if spread > 1:
            name, size = writer.name("part"), self._parts(value)
            writer.add(Array(FLOAT, name, size))
            writer.add(Fill(name, size, Number(start)))
        columns = self.layers.columns(value.size(value.along))
        alone = columns.extent == 1

        def join(step: Index, near: Index, column: Index) -> None:
            own = element(name, step * columns.lot + near if value.op.shape.size > 1 else Index())
            for row in range(LANE_ROWS):
                first = infix("==", Integer(rows.member), 0) if alone else None
                at = value.place((value.rows, rows.rows[row]), (value.along, column))
                term = self.values.accumulated(op, *at)
                term = rows.chosen(term, Number(start), rows.live[row], first)
                writer.add(Assign(own, apply(JOIN, own, term, template=(functor,))))

        if alone:
            join(Index(), Index(), Index())
        else:
            rows.along(columns, value.stepwise, join)
        if spread > 1:
            given = spread, self._parts(value), functor, TENSOR_LANES
            writer.add(Call(SCATTER_LANES, given, (Name(name),)))
            each = variable(writer.name("e"), self.size(value))
            with rows.loop(each):
                own = element(total, each)
                both = apply(JOIN, own, element(name, each), template=(functor,))
                writer.add(Assign(own, both))

    def add_products(self, value: Value) -> None:
        """Adds the products of the rows of a block to the sums of its warps."""
        outer = self.shape.outers[value]
        names = tuple(self._side(value, outer, side) for side in range(2))
        rows, writer, kind = self.rows, self.writer, stored(outer.element)
        downs = [self._clamped(self.first[value][0] + i, outer.tiles[0]) for i in range(outer.high)]
        asides = [
            self._clamped(self.first[value][1] + j, outer.tiles[1]) for j in range(outer.wide)
        ]
        for i, down in enumerate(downs):
            part = writer.name("part")
            size = outer.wide * outer.tile
            writer.add(Array(FLOAT, part, size, zero=True))
            step = writer.name("k")
            count = self.shape.block_rows // outer.depth
            frame = For(INT, step, number(0), number(count), unroll=STEPS_AT_ONCE)
            with writer.nested(frame):
                writer.declare(step)
                row = variable(step, count) * outer.depth + rows.member * 2
                left = row * outer.strides[0] + down * TENSOR_ROWS + rows.group
                for j, aside in enumerate(asides):
                    column = aside * (TENSOR_COLUMNS * outer.across) + rows.group * outer.across
                    top = j * outer.tile
                    arguments = (
                        pointer_at(Name(part), constant(top)),
                        pointer_at(Name(part), constant(top + outer.tile // 2)),
                        pointer_at(Name(names[0]), left),
                        pointer_at(Name(names[1]), row * outer.strides[1] + column),
                    )
                    given = kind, outer.words, *outer.strides
                    writer.add(Call(MMA_DOWN, given, arguments))
            each = variable(writer.name("e"), size)
            with rows.loop(each):
                total = element(self.names[value], each + i * size)
                writer.add(Assign(total, element(part, each), "+"))

    def _clamped(self, tile: Index, tiles: int) -> Index:
        """A tile of a warp: beyond the last the last one, whose sums are left out in the end."""
        if tile.hi < tiles:
            return tile
        return self.rows.integer("at", least(INT, Integer(tile), tiles - 1), tiles)

    def _side(self, value: Value, outer: Outer, side: int) -> str:
        """Copies what the rows of a block have of an operand to shared memory."""
        rows, writer, columns = self.rows, self.writer, outer.sides[side]
        kind, stride, own = stored(outer.element), outer.strides[side], columns_of(value)[side]
        name = writer.name(f"{rows.label(value.op.operands[side])}_rows")
        size = self.shape.block_rows * stride
        writer.add(Shared(kind, name, outer.offsets[side], size))
        counted = variable(writer.name("s"), columns.steps)
        steps = [constant(n) for n in range(columns.steps)] if value.stepwise else [counted]
        for step in steps:
            with rows.loop(step):
                part = writer.name("part")
                writer.add(Array(FLOAT, part, LANE_ROWS * columns.lot))

                def copy(step: Index, near: Index, column: Index, part: str = part) -> None:
                    for row in range(LANE_ROWS):
                        at = value.place((value.rows, rows.rows[row]), (own, column))
                        source, index = body_reads(value.op, *at)[side]
                        found = self.values.value(source, index)
                        found = rows.chosen(found, Number("0.0f"), rows.live[row])
                        writer.add(Assign(element(part, near + row * columns.lot), found))

                rows.at_step(columns, step, copy)
                self._pack(name, outer, side, step, part)
        if side == 0 and outer.empty:
            part = writer.name("part")
            writer.add(Array(FLOAT, part, LANE_ROWS * columns.lot, zero=True))
            self._pack(name, outer, side, constant(columns.steps), part)
        return name

    def _pack(self, name: str, outer: Outer, side: int, step: Index, part: str) -> None:
        """Writes what a lane has of a step of its rows to shared memory."""
        rows, columns = self.rows, outer.sides[side]
        given = stored(outer.element), columns.lot
        for row in range(LANE_ROWS):
            to = rows.local[row] * outer.strides[side]
            to = to + columns.column(step, rows.member, Index())
            own = pointer_at(Name(part), constant(row * columns.lot))
            self.writer.add(Call(STORE_PACKED, given, (pointer_at(Name(name), to), own)))
