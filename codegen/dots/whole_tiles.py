"""Rows of streamed chains whose number has no good divisor, padded to whole tiles.

    s[257, C] = a[257, k] b[C, k]    ->    s[288, C] = pad(a)[288, k] b[C, k]
    o[257, n]                              o[288, n], of which 257 rows are stored

Blocks share out rows in equal parts, and a warp takes 16: 257 is a prime number, 288 are three
blocks of 96. Every op that has the rows gets more of them; the outputs are sliced, which the loops
that compute them do as they store (codegen/loops/cuts.py). Only rows that nothing sums over or
takes apart are padded, so that no element of an output knows of those beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusionstitch.codegen.annotations import like
from fusionstitch.codegen.dots.streams import rows_among, suits_more
from fusionstitch.codegen.dots.tile import TENSOR_ROWS
from fusionstitch.codegen.loops.once import BLOCK_ROWS
from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.extents import inner_extents
from fusionstitch.codegen.rewrite.region import rebuilt, with_used
from fusionstitch.hlo.dots import result_dims
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.semantics import Kind, kind_of

#: Rows whose work a block does beside its own: it loads all columns.
LOADING_ROWS = 16
#: Elements of 16 bits in a row up to which a block has `BLOCK_ROWS` rows, and up to which it has if
#: more columns are in registers at a time (codegen/dots/streams.py); or there are so many that
#: blocks of half the rows have no more warps. All others have half as many.
MOST_NARROW, MOST_OF_MORE, WIDE_NARROW = 64, 32, 128
#: What padded rows have to take at most, as a share of what the parts that there are take.
WORTH = 0.95


def fill_tiles(graph: Graph, stream: Stream) -> Graph:
    """The region with the rows of its streamed chains in whole tiles."""
    for number in sorted(stream.products):
        product = graph.ops[number]
        for dim in _rows(product):
            extent = product.dims[dim]
            padded = padded_rows(extent, _most(product, dim))
            if padded is None:
                continue
            rows = _rows_below(graph, product, dim)
            if rows is not None:
                return _Extended(graph, rows, padded).graph()
    return graph


def padded_rows(extent: int, most: int) -> int | None:
    """How many rows there should be instead of so many, for blocks of at most `most`; None where
    those that there are will do."""
    sizes = range(TENSOR_ROWS, most + 1, TENSOR_ROWS)
    divisors = [part for part in range(1, min(extent, most) + 1) if extent % part == 0]
    now = min(_work(extent, part) for part in divisors)
    best = min(reversed(sizes), key=lambda part: _work(extent, part))
    return -(-extent // best) * best if _work(extent, best) < WORTH * now else None


def _work(extent: int, part: int) -> int:
    """What blocks do that have so many rows each, counted in rows."""
    blocks, warps = -(-extent // part), -(-part // TENSOR_ROWS)
    return blocks * (warps * TENSOR_ROWS + LOADING_ROWS)


def _most(product: Op, dim: int) -> int:
    """The most rows, along a dim, of a block, whose registers hold the operand of its rows."""
    wide = max(inner_extents(product), default=1)
    whole = wide <= MOST_NARROW
    if suits_more(wide, math.prod(_across(product, dim))):
        whole = wide <= MOST_OF_MORE or wide == WIDE_NARROW
    narrow = all(o.shape.bytes <= 2 * o.shape.size for o in product.operands)
    return BLOCK_ROWS if whole and narrow else BLOCK_ROWS // 2


def _across(product: Op, dim: int) -> Sequence[int]:
    """The extents of the dims of a dot that come from the other operand than a dim does."""
    sides = _sides(product)
    return [product.dims[d] for d in sides[dim in sides[0]]]


def _sides(product: Op) -> tuple[range, range]:
    """The dims of a dot that come from one operand, and those from the other."""
    batch = len(product.attrs["lhs_batch"])
    left = product.operands[0].shape.rank - len(product.attrs["lhs_contract"])
    return range(batch, left), range(left, product.shape.rank)


def _rows(product: Op) -> list[int]:
    """The dims of a dot that may be its rows, one of either operand."""
    long = ([d for d in dims if product.dims[d] > 1] for dims in _sides(product))
    rows = (rows_among(dims, product.dims.__getitem__) for dims in long)
    return [dim for dim in rows if dim is not None]


# ---- which dims of which ops are the rows --------------------------------------------------------


def _rows_below(graph: Graph, start: Op, dim: int) -> dict[int, int] | None:
    """The dim of each op that has the rows of one of an op that it is computed from, by number.
    None where an op needs to know how many there are: a sum over them, a slice of them."""
    found = {start.id: dim}
    for op in graph.ops[start.id + 1 : -1]:
        read = {(o.id, found[o.id]) for o in op.operands if o.id in found}
        if not read:
            continue
        links = _links(op)
        if links is None:
            return None
        own = {
            d
            for (_, d), *others in links
            if any((other.id, place) in read for other, place in others)
        }
        met = {(o.id, d) for _, *others in links for o, d in others}
        if len(own) != 1 or not read <= met:
            return None
        [found[op.id]] = own
    return found


#: A dim of an op, and those of its operands that run with it.
Link = Sequence[tuple[Op, int]]


def _links(op: Op) -> Sequence[Link] | None:
    """Which dims of an op and of its operands run together. None for what knows more of them than
    where they lead."""
    if op.shape.elements:
        return None
    match op.opcode:
        case "broadcast":
            [x] = op.operands
            return [((op, d), (x, n)) for n, d in enumerate(op.attrs["dimensions"])]
        case "transpose":
            [x] = op.operands
            return [((op, n), (x, d)) for n, d in enumerate(op.attrs["dimensions"])]
        case "reduce":
            x = op.operands[0]
            kept = (d for d in range(x.shape.rank) if d not in op.attrs["dimensions"])
            return [((op, n), (x, d)) for n, d in enumerate(kept)]
        case "reshape":
            return _of_reshape(op)
        case "dot":
            return _of_dot(op)
        case "gather":
            return _of_gather(op)
    if kind_of(op.opcode) is not Kind.ELEMENTWISE:
        return None
    arrays = [o for o in op.operands if o.shape.rank]
    return [((op, d), *((o, d) for o in arrays)) for d in range(op.shape.rank)]


def _of_reshape(op: Op) -> list[Link]:
    """The dims that stay as they are: with as many elements before and after them."""
    [x] = op.operands
    places: list[dict[tuple[int, int], int]] = [{}, {}]
    for side, known in zip((op, x), places, strict=True):
        before = 1
        for d, extent in enumerate(side.dims):
            if extent > 1:
                known[before, extent] = d
            before *= extent
    own, read = places
    return [((op, d), (x, read[place])) for place, d in own.items() if place in read]


def _of_dot(op: Op) -> Sequence[Link]:
    links: dict[int, list[tuple[Op, int]]] = {}
    for side, x in enumerate(op.operands):
        for d, number in result_dims(op, side).items():
            links.setdefault(number, [(op, number)]).append((x, d))
    return list(links.values())


def _of_gather(op: Op) -> list[Link]:
    """The dims of its indices: what it gathers by them is for each alone."""
    indices = op.operands[1]
    kept = (d for d in range(indices.shape.rank) if d != op.attrs["index_vector_dim"])
    batch = (d for d in range(op.shape.rank) if d not in op.attrs["offset_dims"])
    return [((op, n), (indices, d)) for n, d in zip(batch, kept, strict=True)]


# ---- the region with more of them ----------------------------------------------------------------


class _Extended:
    """A region with `padded` rows along a dim of some ops (`rows`, by number)."""

    def __init__(self, graph: Graph, rows: dict[int, int], padded: int):
        self.given, self.rows, self.padded = graph, rows, padded
        self.ops: list[Op] = []
        #: as they are, and with more rows along a dim
        self.copies: dict[int, Op] = {}
        self.longer: dict[tuple[int, int], Op] = {}

    def graph(self) -> Graph:
        """All of it, with the outputs as they were."""
        for op in self.given.ops[:-1]:
            if op.id in self.rows:
                self.copies[op.id] = self._cut(op, self._more(op, self.rows[op.id]))
            else:
                self.copies[op.id] = self._kept(rebuilt(op, self._operands(op)))
        outputs = [self.copies[o.id] for o in self.given.root.operands]
        return with_used(self.given.name, self.ops, outputs)

    def _operands(self, op: Op) -> list[Op]:
        return [self.copies[o.id] for o in op.operands]

    def _kept(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _more(self, op: Op, dim: int) -> Op:
        """A value with more rows, whatever is in these."""
        key = op.id, dim
        if key not in self.longer:
            self.longer[key] = self._made(op, dim)
        return self.longer[key]

    def _made(self, op: Op, dim: int) -> Op:
        links = _links(op) if op.id in self.rows or _is_cheap(op) else None
        link = next((link for link in links or () if link[0][1] == dim), None)
        if link is None and op.opcode not in ("iota", "broadcast"):
            chain = Chain(op)
            chain.extended(self.copies[op.id], dim, 0, self.padded - op.dims[dim])
            self.ops += chain.ops
            return chain.ops[-1]
        read = {other.id: d for other, d in link[1:]} if link else {}
        operands = [
            self._more(o, read[o.id]) if o.id in read else self.copies[o.id] for o in op.operands
        ]
        dims = tuple(self.padded if d == dim else n for d, n in enumerate(op.dims))
        shape = Shape(op.dtype, dims)
        made = Op(op.opcode, shape, tuple(operands), op.attrs, op.name, source=op.source)
        return self._kept(like(made, op))

    def _cut(self, op: Op, more: Op) -> Op:
        """The rows that there were."""
        chain = Chain(op)
        chain.part(more, self.rows[op.id], 0, op.dims[self.rows[op.id]])
        chain.done()
        self.ops += chain.ops
        return chain.ops[-1]


def _is_cheap(op: Op) -> bool:
    """Whether an op is rather computed for more rows than padded: what indices say, mostly."""
    return kind_of(op.opcode) is Kind.ELEMENTWISE or op.opcode in (
        *("iota", "broadcast", "transpose", "reshape"),
    )
