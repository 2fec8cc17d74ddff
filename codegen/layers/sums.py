"""Sums over all rows: each block adds up those of its rows, and all blocks together the rest.

Weights' gradients are products of two values of a row, summed. Lanes hold rows; tensor cores sum
along what lanes hold. So both values of the rows of a block go to shared memory, from where warps
read them the other way, and add up a part of the sums each, in registers for all rows of the block.
After the last one every block writes its sums to scratch, and all threads add up those of all
blocks, in their order: a result is the same each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusionstitch.codegen.dots.tile import (
    TENSOR_COLUMNS,
    TENSOR_GROUPS,
    TENSOR_LANES,
    TENSOR_ROWS,
)
from fusionstitch.codegen.index_maps.index import Index, constant, delinearize, linearize, variable
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Expr,
    Integer,
    Load,
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
    REDUCE_LANES,
    SCATTER_LANES,
    STORE_PACKED,
)
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Blank,
    Call,
    Fill,
    For,
    Let,
    Shared,
    Store,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, computed, stored
from fusionstitch.codegen.layers.columns import LANE_ROWS, PAIR
from fusionstitch.codegen.layers.rows import Rows
from fusionstitch.codegen.layers.sizes import Outer, spread_over, totals_of
from fusionstitch.codegen.layers.values import ENDS, Role, Value, columns_of
from fusionstitch.codegen.loops.stages import body_reads, closure
from fusionstitch.codegen.lower.vector_access import as_stored
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.text.source import comment
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.graph import Op

#: Loads under way of a thread that adds up what all blocks have, and what lanes have.
BLOCKS_AT_ONCE, LANES_AT_ONCE = 16, 8
#: Instructions between two loads of the operands of a sum that are written out.
STEPS_AT_ONCE = 2


class Sums:
    """The sums over all rows of a kernel."""

    def __init__(self, rows: Rows, outputs: Mapping[int, Sequence[str]], scratch: str):
        self.rows, self.outputs, self.scratch = rows, outputs, scratch
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
            size = self._size(value)
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

    def _size(self, value: Value) -> int:
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
            each = variable(writer.name("e"), self._size(value))
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

    # ---- all rows --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Adds up the sums of all lanes and all blocks, and stores what is computed of them."""
        for value in self.names:
            self.writer.add(Blank())
            self.writer.note(comment(f"{self.rows.label(value.op)} of this block"))
            if value.role is Role.SUM:
                self._write_products(value)
            else:
                self._write_totals(value)
        for value in self.layers.with_role(*ENDS):
            if value.op.id in self.outputs:
                self.writer.add(Blank())
                self.writer.note(comment(f"{self.rows.label(value.op)} of all rows"))
                self._write_output(value)

    def _store(self, value: Value, at: Index, total: Expr) -> None:
        """Writes a sum of a block to its place in scratch."""
        block = variable(BLOCK.name, self.shape.grid)
        place = block * self.shape.sums + self.shape.places[value] + at
        self.writer.add(Store(self.scratch, Integer(place), total))

    def _write_products(self, value: Value) -> None:
        rows, outer = self.rows, self.shape.outers[value]
        high, wide = outer.extents
        for i in range(outer.high):
            down = self.first[value][0] + i
            for j in range(outer.wide):
                aside = self.first[value][1] + j
                near = variable(self.writer.name("v"), outer.across)
                bit = variable(self.writer.name("bit"), PAIR)
                with rows.loop(near), rows.loop(bit):
                    column = aside * TENSOR_COLUMNS + rows.member * PAIR + bit
                    column = column * outer.across + near
                    for half in range(2):
                        row = down * TENSOR_ROWS + rows.group + half * TENSOR_GROUPS
                        at = (i * outer.wide + j) * outer.tile + half * (outer.tile // 2)
                        own = element(self.names[value], near * PAIR + bit + at)
                        with (
                            rows.below(high, row, "sum_row") as inside,
                            rows.below(wide, column, "sum_column") as beside,
                        ):
                            self._store(value, inside * wide + beside, own)

    def _write_totals(self, value: Value) -> None:
        """Those of a block's lanes meet in shared memory, group by group."""
        rows, writer, op = self.rows, self.writer, value.op
        start, functor = joins(op)
        kind, columns, name = computed(op.dtype), self.layers.of(value), self.names[value]
        width = columns.padded if op.shape.size > 1 else 1
        groups = self.shape.warps * totals_of(self.layers, value) // width
        shared = writer.name(f"{rows.label(op)}_parts")
        writer.add(Shared(kind, shared, self.shape.totals, groups * width))
        if value.op.shape.size > 1:
            each, size = variable(writer.name("e"), self._size(value)), columns.steps * columns.lot
            with rows.loop(each):
                place, row = each, rows.warp * TENSOR_GROUPS + rows.group
                if spread_over(self.layers, value) > 1:
                    place, row = rows.group * self._size(value) + each, rows.warp
                with rows.below(size, place, "place") as inside:
                    step, near = inside // columns.lot, inside % columns.lot
                    at = row * width + columns.column(step, rows.member, near)
                    writer.add(Store(shared, Integer(at), element(name, each)))
        else:
            total = writer.name(f"{rows.label(op)}_total")
            own = element(name, Index())
            writer.let(kind, total, apply(REDUCE_LANES, own, template=(WARP, functor)))
            with rows.where(infix("==", infix("%", THREAD, WARP), 0)):
                writer.add(Store(shared, Integer(rows.warp), Name(total)))
        at_name = writer.name("i")
        with writer.nested(
            For(INT, at_name, THREAD, number(op.shape.size), step=self.shape.block), pinned=True
        ):
            writer.declare(at_name)
            at = variable(at_name, op.shape.size)
            total = self._joined(op, start, functor, groups, LANES_AT_ONCE, shared, width, at)
            self._store(value, at, Name(total))

    def _joined(
        self,
        op: Op,
        start: str,
        functor: str,
        count: int,
        unroll: int,
        buffer: str,
        stride: int,
        at: Index,
    ) -> str:
        """The variable with what `count` elements of a buffer, `stride` apart, are together."""
        writer = self.writer
        total, part = writer.name(f"{self.rows.label(op)}_total"), writer.name("part")
        writer.add(Let(computed(op.dtype), total, Number(start), changes=True))
        with writer.nested(For(INT, part, number(0), number(count), unroll=unroll)):
            writer.declare(part)
            place = variable(part, count) * stride + at
            term = Load(Name(buffer), Integer(place))
            writer.add(Assign(Name(total), apply(JOIN, Name(total), term, template=(functor,))))
        return total

    def _write_output(self, value: Value) -> None:
        """What is computed of the sums of all rows, element by element."""
        writer, op, size = self.writer, value.op, value.op.shape.size
        name, shape = writer.name("i"), self.shape
        first = infix("+", infix("*", BLOCK, shape.block), THREAD)
        frame = For(INT, name, first, number(size), step=shape.grid * shape.block)
        with writer.nested(frame, pinned=True):
            writer.declare(name)
            at = variable(name, size)
            index = delinearize(at, op.dims)
            if value.role is Role.LATE:
                stops = {v.op.id: v for v in self.names}
                for leaf, place in closure(op, index, (), stops)[0]:
                    if leaf.id in stops:
                        self._total(stops[leaf.id], linearize(place, leaf.dims))
                        writer.block.memo[leaf.id, place] = self._known
                own = self.values.computed(op, index)[0]
            else:
                self._total(value, at)
                own = self._known
            for buffer in self.outputs[op.id]:
                writer.add(Store(buffer, Integer(at), as_stored(op, own)))

    def _total(self, value: Value, at: Index) -> None:
        op, shape = value.op, self.shape
        start, functor = joins(op) if op.opcode == "reduce" else ("0.0f", "FsAdd")
        place = at + shape.places[value]
        name = self._joined(
            op, start, functor, shape.grid, BLOCKS_AT_ONCE, self.scratch, shape.sums, place
        )
        self._known = self.values.finished(op, Name(name))
