"""Sums over all rows: blocks write theirs to scratch, and all warps add up those of all blocks.

In an order that does not change: a result is the same each time. What is computed of the sums alone
is computed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.dots.tile import (
    TENSOR_COLUMNS,
    TENSOR_GROUPS,
    TENSOR_ROWS,
)
from fusionstitch.codegen.index_maps.index import Index, delinearize, variable
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
    number,
)
from fusionstitch.codegen.ir.intrinsics import (
    JOIN,
    REDUCE_LANES,
)
from fusionstitch.codegen.ir.statements import (
    Assign,
    Blank,
    For,
    Let,
    Shared,
    Store,
)
from fusionstitch.codegen.ir.types import INT, computed
from fusionstitch.codegen.layers.columns import PAIR
from fusionstitch.codegen.layers.sizes import spread_over, totals_of
from fusionstitch.codegen.layers.sums import Sums
from fusionstitch.codegen.layers.values import ENDS, Role, Value
from fusionstitch.codegen.lower.vector_access import as_stored
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.graph import Op

#: Loads under way of a thread that adds up what lanes have, and what blocks have.
LANES_AT_ONCE, BLOCKS_AT_ONCE = 8, 8


@dataclass(frozen=True)
class Parts:
    """What `count` elements of a buffer are together, which lie `stride` apart from `at` on."""

    op: Op
    buffer: str
    count: int
    stride: int
    at: Index


class Totals:
    """The sums of a kernel after its last row."""

    def __init__(self, sums: Sums, outputs: Mapping[int, Sequence[str]], scratch: str):
        self.sums, self.outputs, self.scratch = sums, outputs, scratch
        self.rows, self.shape, self.layers = sums.rows, sums.shape, sums.layers
        self.writer, self.values = sums.writer, sums.values
        self.rows.total = self._total

    def finish(self) -> None:
        """Adds up the sums of all lanes and all blocks, and stores what is computed of them."""
        for value in self.sums.names:
            self.writer.add(Blank())
            self.writer.note(comment(f"{self.rows.label(value.op)} of this block"))
            if value.role is Role.SUM:
                self._write_products(value)
            else:
                self._write_totals(value)
        self._write_outputs()

    def _store(self, value: Value, at: Index, total: Expr) -> None:
        """Writes a sum of a block to its place in scratch."""
        block = variable(BLOCK.name, self.shape.grid)
        place = block * self.shape.sums + self.shape.places[value] + at
        self.writer.add(Store(self.scratch, Integer(place), total))

    def _write_products(self, value: Value) -> None:
        rows, outer = self.rows, self.shape.outers[value]
        high, wide = outer.extents
        for i in range(outer.high):
            down = self.sums.first[value][0] + i
            for j in range(outer.wide):
                aside = self.sums.first[value][1] + j
                near = variable(self.writer.name("v"), outer.across)
                bit = variable(self.writer.name("bit"), PAIR)
                with rows.loop(near), rows.loop(bit):
                    column = aside * TENSOR_COLUMNS + rows.member * PAIR + bit
                    column = column * outer.across + near
                    for half in range(2):
                        row = down * TENSOR_ROWS + rows.group + half * TENSOR_GROUPS
                        at = (i * outer.wide + j) * outer.tile + half * (outer.tile // 2)
                        own = element(self.sums.names[value], near * PAIR + bit + at)
                        with (
                            rows.below(high, row, "sum_row") as inside,
                            rows.below(wide, column, "sum_column") as beside,
                        ):
                            self._store(value, inside * wide + beside, own)

    def _write_totals(self, value: Value) -> None:
        """Those of a block's lanes meet in shared memory, group by group."""
        rows, writer, op = self.rows, self.writer, value.op
        functor = joins(op)[1]
        kind, columns, name = computed(op.dtype), self.layers.of(value), self.sums.names[value]
        width = columns.padded if op.shape.size > 1 else 1
        groups = self.shape.warps * totals_of(self.layers, value) // width
        shared = writer.name(f"{rows.label(op)}_parts")
        writer.add(Shared(kind, shared, self.shape.totals, groups * width))
        if value.op.shape.size > 1:
            each, size = (
                variable(writer.name("e"), self.sums.size(value)),
                columns.steps * columns.lot,
            )
            with rows.loop(each):
                place, row = each, rows.warp * TENSOR_GROUPS + rows.group
                if spread_over(self.layers, value) > 1:
                    place, row = rows.group * self.sums.size(value) + each, rows.warp
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
            parts = Parts(op, shared, groups, width, at)
            total = self._joined(parts, number(0), 1, LANES_AT_ONCE)
            self._store(value, at, Name(total))

    def _joined(self, parts: Parts, first: Expr, step: int, unroll: int) -> str:
        """The variable with what every `step`-th of some parts from the first on are together."""
        writer, op = self.writer, parts.op
        start, functor = _join_of(op)
        total, part = writer.name(f"{self.rows.label(op)}_total"), writer.name("part")
        writer.add(Let(computed(op.dtype), total, Number(start), changes=True))
        frame = For(INT, part, first, number(parts.count), step=step, unroll=unroll)
        with writer.nested(frame):
            writer.declare(part)
            place = variable(part, parts.count) * parts.stride + parts.at
            term = Load(Name(parts.buffer), Integer(place))
            writer.add(Assign(Name(total), apply(JOIN, Name(total), term, template=(functor,))))
        return total

    def _write_outputs(self) -> None:
        """What is computed of the sums of all rows. A warp has an element, of which each lane adds
        up the sums of some blocks; elements of neighbouring outputs are those of other warps."""
        warps, before = self.shape.grid * self.shape.warps, 0
        for value in self.layers.with_role(*ENDS):
            if value.op.id not in self.outputs:
                continue
            self.writer.add(Blank())
            self.writer.note(comment(f"{self.rows.label(value.op)} of all rows"))
            number_of_warp = infix(
                "+", infix("*", BLOCK, self.shape.warps), Integer(self.rows.warp)
            )
            if before % warps:
                number_of_warp = infix(
                    "%", infix("+", number_of_warp, warps - before % warps), warps
                )
            self._write_output(value, number_of_warp, warps)
            before += value.op.shape.size

    def _write_output(self, value: Value, first: Expr, step: int) -> None:
        """Every `step`-th element of an output, from the first on."""
        writer, op, size = self.writer, value.op, value.op.shape.size
        name = writer.name("i")
        with writer.nested(For(self.rows.int, name, first, number(size), step=step), pinned=True):
            writer.declare(name)
            at = variable(name, size)
            index = delinearize(at, op.dims)
            late = value.role is Role.LATE
            own = self.values.computed(op, index)[0] if late else self._total(value, at)
            with self.rows.where(infix("==", Integer(self.rows.lane), 0)):
                for buffer in self.outputs[op.id]:
                    writer.add(Store(buffer, Integer(at), as_stored(op, own)))

    def _total(self, value: Value, at: Index) -> Expr:
        """An element of the sum over all blocks, in all lanes of a warp."""
        op, shape = value.op, self.shape
        parts = Parts(op, self.scratch, shape.grid, shape.sums, at + shape.places[value])
        part = self._joined(parts, Integer(self.rows.lane), WARP, BLOCKS_AT_ONCE)
        total = self.writer.name(f"{self.rows.label(op)}_all")
        joined = apply(REDUCE_LANES, Name(part), template=(WARP, _join_of(op)[1]))
        self.writer.let(computed(op.dtype), total, joined)
        return self.values.finished(op, Name(total))


def _join_of(op: Op) -> tuple[str, str]:
    """What a sum starts from, and what joins two of its parts."""
    return joins(op) if op.opcode == "reduce" else (literal(0, "f32"), "FsAdd")
