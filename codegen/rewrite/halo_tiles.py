"""Tiles with a halo: a region in which every value has a dim that counts the tiles of an axis.

    y[p] = f(x[p - 1], x[p], x[p + 1])    ->    y'[t, i] = f(x'[t, i], x'[t, i + 1], x'[t, i + 2])
                                                where x'[t, i] = x[t n - 1 + i], n + 2 of them

Of each value a block computes what its tile of the output depends on, including a margin (the halo)
that it shares with its neighbors. Then the tiles do not depend on each other, t is an axis of the
grid, and what is stored on the way lies in shared memory. The price is that both neighbors compute
a margin. Which elements a value needs is found from the outputs back (`tile_needs.py`). Inputs, and
what elements do not follow through, are views: a window of n + 2 elements every n
(`tile_views.py`); other ops have rules by opcode (`tile_rules.py`). Elements outside of an array
are also computed, but nothing reads them: a pad checks for each element whether it is inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.exchanges import with_exchanges
from fusionstitch.codegen.rewrite.few_terms import with_few_terms
from fusionstitch.codegen.rewrite.region import rebuilt, with_used
from fusionstitch.codegen.rewrite.stencil_axes import stencil_axes
from fusionstitch.codegen.rewrite.tile_needs import (
    NO_PINS,
    Interval,
    Need,
    Pins,
    Tiles,
    tiles,
)
from fusionstitch.codegen.rewrite.tile_rules import TiledOp, is_inside, made_of_tiles
from fusionstitch.codegen.rewrite.tile_views import Window, view
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import Graph, Op

#: Ops that only say where elements of a value lie.
_MOVES = ("slice", "reshape", "transpose")


def with_halos(graph: Graph, sizes: Sequence[int]) -> Graph:
    """The region in tiles of these sizes along its stencil axes, one of each; the same where there
    are no such axes, or a tile would need much more than its own elements."""
    if not sizes:
        return graph
    prepared = with_few_terms(graph)
    axes = stencil_axes(prepared)
    found = tiles(prepared, axes, sizes) if len(axes) == len(sizes) else None
    return graph if found is None else _Tiler(prepared, found).run()


@dataclass(frozen=True)
class _Tile:
    """A value in tiles: its dims begin with those that count the tiles of the axes `counted`."""

    op: Op
    counted: tuple[int, ...] = ()


class _Tiler:
    """Makes each value in tiles, in the order of the region."""

    def __init__(self, graph: Graph, found: Tiles):
        self.graph, self.found = graph, found
        self.ops: list[Op] = []
        #: values as they were, and in tiles
        self.whole: dict[Op, Op] = {}
        self.tile: dict[tuple[Op, Pins], _Tile] = {}
        #: ops of tiles of all axes, and those that are views of something
        self.tiled: set[Op] = set()
        self.views: set[Op] = set()

    def run(self) -> Graph:
        for op in self.graph.ops[:-1]:
            if op in self.found.plain or op.opcode == "parameter":
                self.whole[op] = self.plain(op)
            for pins in self.found.needs.get(op, ()):
                chain = Chain(op)
                made = self.tile[op, pins] = self.tile_of(chain, op, pins)
                self.ops += chain.done() if chain.ops else []
                if len(made.counted) == len(self.found.axes):
                    self.tiled.update(chain.ops)
        stored: set[Op] = set()
        outputs = [self.output(op, stored) for op in self.graph.root.operands]
        made_of = with_used(self.graph.name, self.ops, outputs)
        return with_exchanges(made_of, self.tiled, self.views & self.tiled, stored)

    def plain(self, op: Op) -> Op:
        """A value as it was."""
        inside = self.found.summed_alone(op)
        if inside:
            chain, x = Chain(op), op.operands[0]
            tile = self.read(chain, Need(x, NO_PINS, {n: Interval() for n in inside}))
            self.reduced(chain, op, tile, self.whole[op.operands[1]], inside)
            self.ops += chain.done()
        else:
            self.ops.append(rebuilt(op, [self.whole[o] for o in op.operands]))
        return self.ops[-1]

    def output(self, op: Op, stored: set[Op]) -> Op:
        """An output as it was, from its tiles, whose value is one of those that are `stored`."""
        if (op, NO_PINS) not in self.tile:
            return self.whole[op]
        chain, own = Chain(op), self.found.dims(op)
        tile = self.read(chain, Need(op, NO_PINS, {n: Interval() for n in own}))
        value = tile.op
        while value.opcode in _MOVES:
            [value] = value.operands
        stored.add(value)
        before = len(tile.counted)
        count_of = {dim: tile.counted.index(n) for n, dim in own.items()}
        pairs = [(count_of.get(d), before + d) for d in range(op.shape.rank)]
        order = tuple(d for pair in pairs for d in pair if d is not None)
        dims = tuple(tile.op.dims[d] for d in order)
        moved = chain.make("transpose", op.dtype, dims, tile.op, dimensions=order)
        joined = tuple(
            tile.op.dims[d] * (1 if count is None else tile.op.dims[count]) for count, d in pairs
        )
        whole = chain.make("reshape", op.dtype, joined, moved)
        rank = op.shape.rank
        bounds = {"start": (0,) * rank, "limit": op.dims, "stride": (1,) * rank}
        chain.make("slice", op.dtype, op.dims, whole, **bounds)
        self.ops += chain.done()
        return self.ops[-1]

    # ---- tiles of values ----

    def dims(self, op: Op, pins: Pins) -> tuple[int, ...]:
        """The dims of a value in tiles."""
        lengths = list(op.dims)
        for number, dim in self.found.dims(op, pins).items():
            lengths[dim] = self.found.length(op, pins, number)
        return (*map(self.found.count, self.found.counted(op, pins)), *lengths)

    def tile_of(self, chain: Chain, op: Op, pins: Pins) -> _Tile:
        """The tiles of a value."""
        counted, dims = self.found.counted(op, pins), self.dims(op, pins)
        reads = self.found.reads(op, pins)
        if reads is None:
            return self.spread(chain, self.view(chain, op, pins), counted)
        if op.opcode == "reduce":
            tile, init = self.read(chain, reads[0]), self.whole[op.operands[1]]
            made = self.reduced(chain, op, tile, init, self.found.summed(op))
            return _Tile(made, counted)
        tiles_read = [self.read(chain, read) for read in reads]
        if op.opcode == "broadcast":
            [x] = tiles_read
            dimensions = [counted.index(n) for n in x.counted]
            dimensions += [len(counted) + d for d in op.attrs["dimensions"]]
            made = chain.make("broadcast", op.dtype, dims, x.op, dimensions=tuple(dimensions))
            return _Tile(made, counted)
        values = tuple(
            x.op if x.op.shape.rank == 0 else self.spread(chain, x, counted).op for x in tiles_read
        )
        if op.opcode == "concatenate" and len(values) == 1:  # it is rolled
            return _Tile(values[0], counted)
        tiled = TiledOp(op, pins, values, dims, len(counted))
        return _Tile(made_of_tiles(self.found, chain, tiled), counted)

    def read(self, chain: Chain, need: Need) -> _Tile:
        """A tile of a value with the elements that are needed of it, and no others."""
        value, pins = need.value, need.pins
        if (value, pins) not in self.tile:
            return _Tile(self.whole[value])
        tile = self.tile[value, pins]
        op, before = tile.op, len(tile.counted)
        for number, dim in self.found.dims(value, pins).items():
            has, needed = self.found.needs[value][pins][number], need.intervals[number]
            begin = needed.low - has.low
            end = begin + self.found.sizes[number] + needed.high - needed.low
            if (begin, end) != (0, op.dims[before + dim]):
                op = chain.part(op, before + dim, begin, end)
        return _Tile(op, tile.counted)

    def spread(self, chain: Chain, tile: _Tile, counted: tuple[int, ...]) -> _Tile:
        """The same for each tile of more axes."""
        if tile.counted == counted:
            return tile
        own = tile.op.dims[len(tile.counted) :]
        dims = (*map(self.found.count, counted), *own)
        dimensions = [counted.index(n) for n in tile.counted]
        dimensions += range(len(counted), len(dims))
        op = chain.make("broadcast", tile.op.dtype, dims, tile.op, dimensions=tuple(dimensions))
        return _Tile(op, counted)

    def view(self, chain: Chain, op: Op, pins: Pins) -> _Tile:
        """The tiles of a value that is computed as a whole."""
        windows = {
            number: Window(
                dim,
                self.found.needs[op][pins][number].low,
                self.found.length(op, pins, number),
                self.found.sizes[number],
                self.found.count(number),
                self.found.axes[number].periodic,
            )
            for number, dim in self.found.dims(op, pins).items()
        }
        if not windows:
            return _Tile(self.whole[op])
        made = view(chain, self.whole[op], windows)
        self.views.add(made)
        return _Tile(made, tuple(sorted(windows)))

    def reduced(self, chain: Chain, op: Op, x: _Tile, init: Op, inside: Sequence[int]) -> Op:
        """A reduction. One over stencil axes is of each tile first, and then of the tiles, and of
        what lies before them, which other blocks have."""
        reducer, before = op.attrs["reducer"], len(x.counted)
        source, own = op.operands[0], self.found.dims(op.operands[0])
        value = x.op
        for n in inside:
            extent, size = source.dims[own[n]], self.found.sizes[n]
            if self.found.count(n) * size == extent:
                continue
            at = x.counted.index(n), before + own[n]
            known = is_inside(chain, value.dims, at, 0, range(0, extent, size))
            nothing = chain.splat(identity(reducer, op.dtype), value)
            value = chain.like(value, "select", known, value, nothing)
        along = {before + d for d in op.attrs["dimensions"]}
        first = before + min((own[n] for n in inside), default=0)
        later = {d for d in along if inside and d < first} | {x.counted.index(n) for n in inside}
        start = chain.scalar(identity(reducer, op.dtype), op.dtype) if inside else init
        made = _reduction(chain, op, value, start, along - later)
        if not inside:
            return made
        kept_dims = [d for d in range(value.shape.rank) if d not in along - later]
        return _reduction(chain, op, made, init, {kept_dims.index(d) for d in later})


def _reduction(chain: Chain, op: Op, x: Op, init: Op, along: set[int]) -> Op:
    """`x` reduced as `op` does, along other dims."""
    dims = tuple(n for d, n in enumerate(x.dims) if d not in along)
    attrs = {"dimensions": tuple(sorted(along)), "reducer": op.attrs["reducer"]}
    made = chain.make("reduce", op.dtype, dims, x, init, **attrs)
    made.called = op.called
    return made
