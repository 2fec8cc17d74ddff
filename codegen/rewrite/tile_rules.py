"""Tiles of an op, from the tiles of what it reads: a rule for each opcode (`halo_tiles.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusionstitch.codegen.annotations import like
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.tile_needs import Pins, Tiles
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.semantics import Kind, kind_of


@dataclass(frozen=True)
class TiledOp:
    """An op to be made in tiles: the values that it reads, in tiles, and its own dims, of which the
    first `before` count tiles."""

    op: Op
    pins: Pins
    values: tuple[Op, ...]
    dims: tuple[int, ...]
    before: int


def made_of_tiles(found: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    """What stands for an op that is no reduction, no broadcast, and not rolled."""
    rule = _computed if kind_of(tiled.op.opcode) is Kind.ELEMENTWISE else _RULES[tiled.op.opcode]
    return rule(found, chain, tiled)


def is_inside(
    chain: Chain, dims: tuple[int, ...], at: tuple[int, int], low: int, bounds: range
) -> Op:
    """Which elements of a value of these dims, `at` two of which tiles of `bounds.step` and the
    elements of a tile are counted, lie within `bounds`, where tile 0 begins at `low`."""
    pair = (dims[at[0]], dims[at[1]])
    tile = chain.make("iota", "s32", pair, dimension=0)
    element = chain.make("iota", "s32", pair, dimension=1)
    begin = chain.make("multiply", "s32", pair, tile, chain.integers(bounds.step, pair))
    position = chain.make("add", "s32", pair, begin, element)
    begun = chain.compare(position, "GE", chain.integers(bounds.start - low, pair))
    ended = chain.compare(position, "LT", chain.integers(bounds.stop - low, pair))
    both = chain.make("and", "pred", pair, begun, ended)
    return chain.make("broadcast", "pred", dims, both, dimensions=at)


def _computed(_: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    """An elementwise op of other dims, of which as much is known."""
    op = tiled.op
    made = Op(op.opcode, Shape(op.dtype, tiled.dims), tiled.values, dict(op.attrs), op.name)
    made.called, made.source = op.called, op.source
    chain.ops.append(like(made, op))
    return chain.ops[-1]


def _transposed(found: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    before = tiled.before
    order = (*range(before), *(before + d for d in tiled.op.attrs["dimensions"]))
    [x] = tiled.values
    return chain.make("transpose", x.dtype, tiled.dims, x, dimensions=order)


def _reshaped(found: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    return chain.make("reshape", tiled.op.dtype, tiled.dims, *tiled.values)


def _sliced(found: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    [x], attrs = tiled.values, tiled.op.attrs
    read = {tiled.before + d for d in found.followed(tiled.op, tiled.pins)}
    read |= set(range(tiled.before))
    bounds = {
        key: tuple(
            (0, n, 1)[k] if d in read else attrs[key][d - tiled.before]
            for d, n in enumerate(x.dims)
        )
        for k, key in enumerate(("start", "limit", "stride"))
    }
    return chain.make("slice", x.dtype, tiled.dims, x, **bounds)


def _padded(found: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    op, dims, before = tiled.op, tiled.dims, tiled.before
    x, value = tiled.values
    own = found.dims(op, tiled.pins)
    attrs = {
        key: (0,) * before + tuple(0 if d in own.values() else n for d, n in enumerate(each))
        for key, each in op.attrs.items()
        if key in ("low", "high", "interior")
    }
    if any(map(any, attrs.values())):
        x = chain.make("pad", op.dtype, dims, x, value, **attrs)
    outside = chain.make("broadcast", op.dtype, dims, value, dimensions=())
    counted = found.counted(op, tiled.pins)
    for number, dim in own.items():
        low, high = op.attrs["low"][dim], op.attrs["high"][dim]
        if low <= 0 and high <= 0:
            continue
        bounds = range(low, low + op.operands[0].dims[dim], found.sizes[number])
        at = counted.index(number), before + dim
        begin = found.needs[op][tiled.pins][number].low
        here = is_inside(chain, dims, at, begin, bounds)
        x = chain.make("select", op.dtype, dims, here, x, outside)
    return x


def _concatenated(found: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    op, before, along = tiled.op, tiled.before, tiled.op.attrs["dimension"]
    own = found.dims(op, tiled.pins)
    number = next((n for n, d in own.items() if d == along), None)
    if number is None:
        dims, at = tiled.dims, before + along
        return chain.make("concatenate", op.dtype, dims, *tiled.values, dimension=at)
    main, made = found.main(op), tiled.values[found.main(op)]
    size, last = found.sizes[number], found.count(number) - 1
    low = found.needs[op][tiled.pins][number].low
    at_two = found.counted(op, tiled.pins).index(number), before + along
    begin = 0
    for k, (x, value) in enumerate(zip(op.operands, tiled.values, strict=True)):
        extent = x.dims[along]
        if k != main:  # a border, which is right in the first tile, or in the last
            first = begin - low - (last * size if k > main else 0)
            left = tiled.dims[before + along] - first - extent
            padded = chain.extended(value, before + along, first, left)
            bounds = range(begin, begin + extent, size)
            here = is_inside(chain, tiled.dims, at_two, low, bounds)
            made = chain.make("select", op.dtype, tiled.dims, here, padded, made)
        begin += extent
    return made


def _reversed(found: Tiles, chain: Chain, tiled: TiledOp) -> Op:
    order = tuple(tiled.before + d for d in tiled.op.attrs["dimensions"])
    [x] = tiled.values
    return chain.make("reverse", x.dtype, tiled.dims, x, dimensions=order)


_RULES: Mapping[str, Callable[[Tiles, Chain, TiledOp], Op]] = {
    "transpose": _transposed,
    "reshape": _reshaped,
    "slice": _sliced,
    "pad": _padded,
    "concatenate": _concatenated,
    "reverse": _reversed,
}
