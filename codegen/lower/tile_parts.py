"""Parts of the sums of a lone dot: threads that walked the parts of its summed elements join what
they have, and each goes on with some of the elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from fusionstitch.codegen.index_maps.index import Index, linearize, render, variable
from fusionstitch.codegen.index_maps.maps import in_range
from fusionstitch.codegen.index_maps.vectors import Vector
from fusionstitch.codegen.ir.expressions import (
    Expr,
    Integer,
    Name,
    element,
    infix,
    least,
)
from fusionstitch.codegen.ir.intrinsics import JOIN_PARTS
from fusionstitch.codegen.ir.statements import Call
from fusionstitch.codegen.ir.types import INT
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.tile_rows import TileRows
from fusionstitch.codegen.schedule.tiled_walks import reached
from fusionstitch.hlo.graph import Op

#: Values of ops and stages.
Elements = list[tuple[Op, Stage, Expr]]
#: Vectors for its elements that a thread loads before the dots.
MOST_EARLY = 4


class Parts:
    """What a thread joined with others, and what it loaded for its elements before."""

    def __init__(self, rows: TileRows):
        self.rows = rows
        self.joined: list[tuple[Op, Stage, str]] = []
        #: the unit of elements that it joins, if one, and the vectors it loaded for them before
        self.early: tuple[Index, dict[tuple[str, Index], Expr]] | None = None

    def join(self, dot: Stage, op: Op, name: str) -> tuple[str, int]:
        """The array with the elements of `op`, a sum of dots of which `dot` is one, where all that
        a thread added up are in `name`; and its size. As many units of neighbours are a thread's as
        there are for each."""
        rows, tile = self.rows, self.rows.tile
        size = tile.rows * tile.steps
        if tile.shares == 1:
            return name, size
        own = -(-size // (tile.unit * tile.shares)) * tile.unit
        array = rows.array(op, "_own", own)
        threads = rows.block // tile.shares
        arguments = Name(name), Name(array), Name(rows.access.exchanges[dot])
        rows.writer.add(Call(JOIN_PARTS, (threads, tile.shares, tile.unit), arguments))
        self.joined.append((op, dot, array))
        return array, own

    def load_early(self, sweep: Sequence[Stage]) -> None:
        """Vectors of the elements that a thread will have joined: loaded before the dots, which
        hide their latency."""
        rows, tile, access = self.rows, self.rows.tile, self.rows.access
        units = tile.rows * tile.steps // tile.unit
        outer = rows.row, rows.step, rows.pair
        unit = rows.share
        if units < tile.shares:
            unit = variable(rows.writer.name("unit"), units)
            if units > 1:  # a variable of one value is its number
                name = rows.writer.declare(render(unit))
                rows.writer.let(INT, name, least(INT, Integer(rows.share), units - 1))
        near = self._bind_unit(unit)
        rows.bind_row()
        rows.digits.bind_column(rows.column_index())
        for lane in near.variables:
            access.elements.vector = Vector(tile.unit, lane, rows.writer.depth)
        self.early = unit, {}
        for stage in (s for s in sweep if s not in rows.nest.products):
            for (op, at), _ in reached(stage.op, *rows.digits.indices(stage), access.whole):
                if access.located(op, at) is None or len(self.early[1]) == MOST_EARLY:
                    continue
                name, at = access.memory.buffer(op), rows.values.named(at)
                base = (
                    access.elements.vector_base(linearize(at, op.dims))
                    if in_range(op, at)
                    else None
                )
                if base is not None:
                    self.early[1][name, base] = access.elements.vector_of(op, name, base)
        access.elements.vector = None
        rows.row, rows.step, rows.pair = outer
        rows.bind_row()

    def _bind_unit(self, unit: Index) -> Index:
        """Makes the current row, step and pair those of a `unit` of elements stored together; what
        runs through it."""
        rows, tile = self.rows, self.rows.tile
        in_row = tile.steps // tile.unit
        rows.row, rows.step = unit // in_row, unit % in_row
        if tile.lot == 1:
            return rows.pair
        rows.step, rows.pair = rows.step // tile.pairs, rows.step % tile.pairs
        return rows.next

    def elements(self) -> AbstractContextManager[Elements]:
        """The loop over the elements of a tile that a thread has, with the values it joined."""
        return self._own() if self.joined else self._all()

    @contextmanager
    def _all(self) -> Iterator[Elements]:
        """All elements of the tile."""
        rows = self.rows
        with (
            rows.loop(rows.step),
            rows.loop(rows.pair),
            rows.rows(),
            self._neighbours(rows.next),
        ):
            rows.know_elements()
            yield []

    @contextmanager
    def _own(self) -> Iterator[Elements]:
        """The elements of the tile that a thread has joined."""
        rows, tile = self.rows, self.rows.tile
        units = tile.rows * tile.steps // tile.unit
        own = variable(rows.writer.name("own"), -(-units // tile.shares))
        with ExitStack() as opened:
            if self.early:
                unit = self.early[0]
                guard = infix("<", Integer(rows.share), units) if units < tile.shares else None
                opened.enter_context(rows.guarded(guard))
            else:
                opened.enter_context(rows.loop(own))
                number = own * tile.shares + rows.share
                unit = opened.enter_context(rows.existing(number, units))
            near = self._bind_unit(unit)
            rows.bind_row()
            rows.declare_row()
            opened.enter_context(self._neighbours(near))
            if self.early:
                rows.access.elements.vectors_before().update(self.early[1])
            at = own * tile.unit + near
            yield [(op, stage, element(array, at)) for op, stage, array in self.joined]

    @contextmanager
    def _neighbours(self, index: Index) -> Iterator[None]:
        """The loop over neighbouring columns, as vectors if all of them are there."""
        rows, tile = self.rows, self.rows.tile
        if rows.plan.inner % (tile.lanes * tile.steps):
            with rows.loop(index), rows.columns(guarded=True):
                yield
            return
        with rows.access.elements.vector_loop(index):
            rows.digits.bind_column(rows.column_index())
            yield
