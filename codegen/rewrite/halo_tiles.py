"""Tiles with a halo: a region in which every value has a dim that counts the tiles of an axis.

    y[p] = f(x[p - 1], x[p], x[p + 1])    ->    y'[t, i] = f(x'[t, i], x'[t, i + 1], x'[t, i + 2])
                                                where x'[t, i] = x[t n - 1 + i], n + 2 of them

Of each value a block computes what its tile of the output stands on, a margin (the halo) that it
shares with its neighbours included: then the tiles do not depend on each other, t is an axis of the
grid, and whatever is stored on the way lies in shared memory. The price is that a margin is
computed by both neighbours. Which elements a value needs is found from the outputs back
(`tile_needs.py`). Inputs, and what elements do not follow through, are views: a window of n + 2
elements every n (`tile_views.py`). What lies outside of an array is computed, too, and read by
nobody: a pad asks each element whether it is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.annotations import like
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
from fusionstitch.codegen.rewrite.tile_views import Window, view
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops that only say where elements of a value lie.
_PLACES = ("slice", "reshape", "transpose")


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


@dataclass(frozen=True)
class _Place:
    """An op whose tiles are made: the values that it reads, and the dims of its own, of which
    `before` count tiles."""

    op: Op
    pins: Pins
    values: tuple[Op, ...]
    dims: tuple[int, ...]
    before: int


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
        while value.opcode in _PLACES:
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

    def counted(self, op: Op, pins: Pins) -> tuple[int, ...]:
        """The axes whose tiles the first dims of a value count."""
        return tuple(sorted({*self.found.dims(op, pins), *(number for number, _ in pins)}))

    def dims(self, op: Op, pins: Pins) -> tuple[int, ...]:
        """The dims of a value in tiles."""
        lengths = list(op.dims)
        for number, dim in self.found.dims(op, pins).items():
            lengths[dim] = self.found.length(op, pins, number)
        return (*map(self.found.count, self.counted(op, pins)), *lengths)

    def tile_of(self, chain: Chain, op: Op, pins: Pins) -> _Tile:
        """The tiles of a value."""
        counted, dims = self.counted(op, pins), self.dims(op, pins)
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
            places = [counted.index(n) for n in x.counted]
            places += [len(counted) + d for d in op.attrs["dimensions"]]
            made = chain.make("broadcast", op.dtype, dims, x.op, dimensions=tuple(places))
            return _Tile(made, counted)
        values = tuple(
            x.op if x.op.shape.rank == 0 else self.spread(chain, x, counted).op for x in tiles_read
        )
        if op.opcode == "concatenate" and len(values) == 1:  # it is rolled
            return _Tile(values[0], counted)
        place = _Place(op, pins, values, dims, len(counted))
        if kind_of(op.opcode) is Kind.ELEMENTWISE:
            return _Tile(_computed(chain, place), counted)
        return _Tile(_RULES[op.opcode](self, chain, place), counted)

    def read(self, chain: Chain, need: Need) -> _Tile:
        """A tile of a value with the elements that are needed of it, and no others."""
        value, pins = need.value, need.pins
        if (value, pins) not in self.tile:
            return _Tile(self.whole[value])
        tile = self.tile[value, pins]
        op, before = tile.op, len(tile.counted)
        for number, dim in self.found.dims(value, pins).items():
            has, wanted = self.found.needs[value][pins][number], need.intervals[number]
            begin = wanted.low - has.low
            end = begin + self.found.sizes[number] + wanted.high - wanted.low
            if (begin, end) != (0, op.dims[before + dim]):
                op = chain.part(op, before + dim, begin, end)
        return _Tile(op, tile.counted)

    def spread(self, chain: Chain, tile: _Tile, counted: tuple[int, ...]) -> _Tile:
        """The same for each tile of more axes."""
        if tile.counted == counted:
            return tile
        own = tile.op.dims[len(tile.counted) :]
        dims = (*map(self.found.count, counted), *own)
        places = [counted.index(n) for n in tile.counted]
        places += range(len(counted), len(dims))
        op = chain.make("broadcast", tile.op.dtype, dims, tile.op, dimensions=tuple(places))
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

    def inside(
        self, chain: Chain, dims: tuple[int, ...], at: tuple[int, int], low: int, bounds: range
    ) -> Op:
        """Which elements of a value of these dims, `at` two of which tiles of `bounds.step` and the
        elements of a tile are counted, lie within `bounds`, where tile 0 begins at `low`."""
        pair = (dims[at[0]], dims[at[1]])
        tile = chain.make("iota", "s32", pair, dimension=0)
        element = chain.make("iota", "s32", pair, dimension=1)
        begin = chain.make("multiply", "s32", pair, tile, chain.integers(bounds.step, pair))
        place = chain.make("add", "s32", pair, begin, element)
        ends = [
            chain.make(
                "compare",
                "pred",
                pair,
                place,
                chain.integers(end - low, pair),
                direction=direction,
                total_order=False,
            )
            for end, direction in ((bounds.start, "GE"), (bounds.stop, "LT"))
        ]
        both = chain.make("and", "pred", pair, *ends)
        return chain.make("broadcast", "pred", dims, both, dimensions=at)

    # ---- by opcode: each gives what stands for the op ----

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
            known = self.inside(chain, value.dims, at, 0, range(0, extent, size))
            nothing = chain.splat(identity(reducer, op.dtype), value)
            value = chain.like(value, "select", known, value, nothing)
        along = {before + d for d in op.attrs["dimensions"]}
        first = before + min((own[n] for n in inside), default=0)
        later = {d for d in along if inside and d < first} | {x.counted.index(n) for n in inside}
        start = chain.scalar(identity(reducer, op.dtype), op.dtype) if inside else init
        made = _reduction(chain, op, value, start, along - later)
        if not inside:
            return made
        kept = [d for d in range(value.shape.rank) if d not in along - later]
        return _reduction(chain, op, made, init, {kept.index(d) for d in later})

    def transposed(self, chain: Chain, place: _Place) -> Op:
        before = place.before
        order = (*range(before), *(before + d for d in place.op.attrs["dimensions"]))
        [x] = place.values
        return chain.make("transpose", x.dtype, place.dims, x, dimensions=order)

    def reshaped(self, chain: Chain, place: _Place) -> Op:
        return chain.make("reshape", place.op.dtype, place.dims, *place.values)

    def sliced(self, chain: Chain, place: _Place) -> Op:
        [x], attrs = place.values, place.op.attrs
        read = {place.before + d for d in self.found.followed(place.op, place.pins)}
        read |= set(range(place.before))
        bounds = {
            key: tuple(
                (0, n, 1)[k] if d in read else attrs[key][d - place.before]
                for d, n in enumerate(x.dims)
            )
            for k, key in enumerate(("start", "limit", "stride"))
        }
        return chain.make("slice", x.dtype, place.dims, x, **bounds)

    def padded(self, chain: Chain, place: _Place) -> Op:
        op, dims, before = place.op, place.dims, place.before
        x, value = place.values
        own = self.found.dims(op, place.pins)
        attrs = {
            key: (0,) * before + tuple(0 if d in own.values() else n for d, n in enumerate(each))
            for key, each in op.attrs.items()
            if key in ("low", "high", "interior")
        }
        if any(map(any, attrs.values())):
            x = chain.make("pad", op.dtype, dims, x, value, **attrs)
        outside = chain.make("broadcast", op.dtype, dims, value, dimensions=())
        counted = self.counted(op, place.pins)
        for number, dim in own.items():
            low, high = op.attrs["low"][dim], op.attrs["high"][dim]
            if low <= 0 and high <= 0:
                continue
            bounds = range(low, low + op.operands[0].dims[dim], self.found.sizes[number])
            at = counted.index(number), before + dim
            begin = self.found.needs[op][place.pins][number].low
            here = self.inside(chain, dims, at, begin, bounds)
            x = chain.make("select", op.dtype, dims, here, x, outside)
        return x

    def concatenated(self, chain: Chain, place: _Place) -> Op:
        op, before, along = place.op, place.before, place.op.attrs["dimension"]
        own = self.found.dims(op, place.pins)
        number = next((n for n, d in own.items() if d == along), None)
        if number is None:
            dims, at = place.dims, before + along
            return chain.make("concatenate", op.dtype, dims, *place.values, dimension=at)
        main, made = self.found.main(op), place.values[self.found.main(op)]
        size, last = self.found.sizes[number], self.found.count(number) - 1
        low = self.found.needs[op][place.pins][number].low
        at_two = self.counted(op, place.pins).index(number), before + along
        begin = 0
        for k, (x, value) in enumerate(zip(op.operands, place.values, strict=True)):
            extent = x.dims[along]
            if k != main:  # a border, which is right in the first tile, or in the last
                first = begin - low - (last * size if k > main else 0)
                left = place.dims[before + along] - first - extent
                placed = chain.extended(value, before + along, first, left)
                bounds = range(begin, begin + extent, size)
                here = self.inside(chain, place.dims, at_two, low, bounds)
                made = chain.make("select", op.dtype, place.dims, here, placed, made)
            begin += extent
        return made

    def reversed(self, chain: Chain, place: _Place) -> Op:
        order = tuple(place.before + d for d in place.op.attrs["dimensions"])
        [x] = place.values
        return chain.make("reverse", x.dtype, place.dims, x, dimensions=order)


_RULES: Mapping[str, Callable[[_Tiler, Chain, _Place], Op]] = {
    "transpose": _Tiler.transposed,
    "reshape": _Tiler.reshaped,
    "slice": _Tiler.sliced,
    "pad": _Tiler.padded,
    "concatenate": _Tiler.concatenated,
    "reverse": _Tiler.reversed,
}


def _computed(chain: Chain, place: _Place) -> Op:
    """An elementwise op of other dims, of which as much is known."""
    op = place.op
    made = Op(op.opcode, Shape(op.dtype, place.dims), place.values, dict(op.attrs), op.name)
    made.called, made.source = op.called, op.source
    chain.ops.append(like(made, op))
    return chain.ops[-1]


def _reduction(chain: Chain, op: Op, x: Op, init: Op, along: set[int]) -> Op:
    """`x` reduced as `op` does, along other dims."""
    dims = tuple(n for d, n in enumerate(x.dims) if d not in along)
    attrs = {"dimensions": tuple(sorted(along)), "reducer": op.attrs["reducer"]}
    made = chain.make("reduce", op.dtype, dims, x, init, **attrs)
    made.called = op.called
    return made
