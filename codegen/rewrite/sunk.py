"""Concatenates sink towards the outputs: what is computed of one is computed of each of its pieces.

    multiply(concatenate(a, b), c)    ->    concatenate(multiply(a, c[:n]), multiply(b, c[n:]))
    reduce(stack(a, b), axis)         ->    add(a, b)

A value of a few components (a position, a quaternion, the directions of a lattice) is often stacked
in between. A loop over the elements of the stack has one component at a time: it recomputes what
they have in common, and reads the others from memory. A loop over the items has all of an item's
components in registers, without checks which one an element is. The price is longer code. Pieces of
different shapes are no components, so that a border stays beside what it surrounds, unless there
are few along the dim: XLA reads neighboring components as one slice.

An input of many items of a few components each, along its minor-most dim, is such a stack as well
where components are summed up, or remain while items are summed up. Such inputs are points, boxes,
small matrices and logits of a few classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from fusionstitch.codegen.annotations import like
from fusionstitch.codegen.rewrite.chain import JOINING, Chain
from fusionstitch.codegen.rewrite.component_products import columns, product
from fusionstitch.codegen.rewrite.joined import MOST_PIECES
from fusionstitch.codegen.rewrite.region import rebuilt, with_used
from fusionstitch.codegen.rewrite.scan_forms import Moved, Scan, find_scans
from fusionstitch.codegen.rewrite.scan_pieces import Scanning, interleaved
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops of the region that comes of it, at most; and by what it grows.
MOST_OPS, MOST_TIMES = 1000, 32
#: Components of an item of an input, at most, and items from which on they are taken apart.
MOST_COMPONENTS, LEAST_ITEMS = 16, 1 << 10
#: Dims of an item: vectors have one, matrices two.
MOST_DIMS = 2


@dataclass(frozen=True)
class _Pieces:
    """A value as what follows each other along its dim `axis`, or is interleaved along it: one
    element of each after the other."""

    axis: int
    ops: tuple[Op, ...]
    interleaved: bool = False

    @property
    def ends(self) -> list[int]:
        """Where each ends."""
        return list(accumulate(op.dims[self.axis] for op in self.ops))

    @property
    def single(self) -> bool:
        """Whether each is one component."""
        return not self.interleaved and all(op.dims[self.axis] == 1 for op in self.ops)


def sink_concatenates(graph: Graph) -> Graph:
    """The region with its concatenates as near to its outputs as they come, or the very graph if
    they are there, or it would become too long."""
    found, most = graph, min(MOST_OPS, MOST_TIMES * len(graph.ops))
    for _ in range(MOST_DIMS):
        before, found = found, _sunk(found, most)
        if found is before:
            break
    return found


def scan_in_pieces(graph: Graph) -> Graph:
    """The region with its prefix scans, and what stands on them, in pieces (`scan_pieces.py`), or
    the very graph if it has none."""
    scans = find_scans(graph)
    if not scans:
        return graph
    made = _Sinking(inputs=False, concatenates=False, scans=scans)
    for op in graph.ops[:-1]:
        made.add(op)
    outputs = [made.whole(op) for op in graph.root.operands]
    return with_used(graph.name, made.ops, outputs)


def _sunk(graph: Graph, most: int) -> Graph:
    made = _Sinking(any(_meets_components(op) for op in graph.ops))
    for op in graph.ops[:-1]:
        made.add(op)
        if len(made.ops) > most:
            return graph
    if not made.sunk:
        return graph
    outputs = [made.whole(op) for op in graph.root.operands]
    return with_used(graph.name, made.ops, outputs)


def _component_dim(op: Op) -> int | None:
    """The dim of the components of a value of many items, if they are few."""
    axis = max((d for d, n in enumerate(op.dims) if n > 1), default=None)
    return axis if axis is not None and _is_of_components(op, axis) else None


def _is_of_components(op: Op, axis: int) -> bool:
    """Whether a dim has a few components of many items each."""
    few = op.dims[axis]
    return few <= MOST_COMPONENTS and op.shape.size >= few * LEAST_ITEMS


def _meets_components(op: Op) -> bool:
    """Whether a reduction sums components up, or keeps them while it sums up items."""
    return op.opcode == "reduce" and _component_dim(op.operands[0]) is not None


class _Sinking:
    """A region on the way: its ops so far, and which values are there in pieces; with `inputs`
    those of many items are, with `concatenates` these, and `scans` always."""

    def __init__(
        self,
        inputs: bool,
        concatenates: bool = True,
        scans: Mapping[Op, Scan | Moved] | None = None,
    ) -> None:
        self.ops: list[Op] = []
        self._inputs, self._concatenates, self._scans = inputs, concatenates, scans or {}
        #: whether an op was taken into the pieces of what it reads
        self.sunk = False
        self._whole: dict[Op, Op] = {}
        self._pieces: dict[Op, _Pieces] = {}

    def add(self, op: Op) -> None:
        """The next op of the region, in pieces if it can be."""
        found = self._in_pieces(op)
        if found is not None and len(found.ops) == 1:
            self._whole[op] = found.ops[0]
        elif found is not None:
            self._pieces[op] = found
        else:
            self._whole[op] = self._new(rebuilt(op, [self.whole(o) for o in op.operands]))
            self._take_apart(op)

    def _take_apart(self, op: Op) -> None:
        """The components of an input, as slices."""
        source = op.operands[0] if op.opcode == "slice" else op
        if not self._inputs or source.opcode != "parameter":
            return
        if (axis := _component_dim(op)) is not None:
            value = self._whole[op]
            ops = tuple(self._sliced(value, axis, n, n + 1) for n in range(op.dims[axis]))
            self._pieces[op] = _Pieces(axis, ops)

    def whole(self, op: Op) -> Op:
        """A value of the region as one."""
        if op not in self._whole:
            found = self._pieces[op]
            if found.interleaved:
                chain = Chain(op)
                interleaved(chain, found.axis, found.ops, op.dims)
                self.ops += chain.done()
                self._whole[op] = self.ops[-1]
                return self.ops[-1]
            copy = Op("concatenate", op.shape, found.ops, {"dimension": found.axis}, op.name)
            self._whole[op] = self._new(like(replace(copy, source=op.source), op))
        return self._whole[op]

    def _new(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _in_pieces(self, op: Op) -> _Pieces | None:
        """An op computed piece by piece, if what it reads is there so and it can be."""
        scan = self._scans.get(op)
        if isinstance(scan, Moved):
            return _Pieces(0, (self._moved(op, scan),))
        if scan is not None:
            return self._scan(op, scan)
        if op.opcode == "concatenate":
            return self._concatenate(op)
        if not any(o in self._pieces for o in op.operands):
            return None
        if kind_of(op.opcode) is Kind.ELEMENTWISE:
            found = self._elementwise(op)
        elif op.opcode == "dot":
            found = self._dot(op)
        else:
            rule, inside = _RULES.get(op.opcode), self._pieces.get(op.operands[0])
            found = rule(self, op, inside) if rule and inside else None
        self.sunk |= found is not None
        return found

    def _moved(self, op: Op, part: Moved) -> Op:
        """The part of a scan that another value is."""
        chain, dim, value = Chain(op), part.dim, self.whole(part.scan)
        begin, end = max(0, -part.by), min(value.dims[dim], op.dims[dim] - part.by)
        if (begin, end) != (0, value.dims[dim]):
            value = chain.part(value, dim, begin, end)
        low = max(0, part.by)
        high = op.dims[dim] - low - (end - begin)
        if low or high:
            nothing = chain.scalar(part.nothing, op.dtype)
            chain.extended(value, dim, low, high, nothing)
        if not chain.ops:
            return value
        self.ops += chain.done()
        return self.ops[-1]

    def _scan(self, op: Op, scan: Scan) -> _Pieces:
        made = Scanning(op, scan)
        axis, pieces = made.pieces(self.whole)
        first, last = scan.dims[0], scan.dims[-1]
        dims = (*op.dims[:first], scan.size, *op.dims[last + 1 :])
        if len(pieces) * pieces[0].dims[axis] > scan.size:
            value = interleaved(made.chain, axis, pieces, dims)
            if value.dims != op.dims:
                value = made.chain.make("reshape", op.dtype, op.dims, value)
            self.ops += made.chain.ops
            return _Pieces(0, (value,))
        self.ops += made.chain.ops
        flat = _Pieces(axis, tuple(pieces), interleaved=True)
        if first == last:
            return flat
        value = Op("reshape", Shape(op.dtype, dims), (), name=op.name, source=op.source)
        self._pieces[value] = flat
        apart = Op("reshape", op.shape, (value,), {}, op.name, source=op.source)
        found = self._reshape(apart, flat)
        return found or _Pieces(0, (self._new(rebuilt(apart, [self.whole(value)])),))

    def _concatenate(self, op: Op) -> _Pieces | None:
        if not self._concatenates:
            return None
        axis = op.attrs["dimension"]
        ops: list[Op] = []
        for operand in op.operands:
            inside = self._pieces.get(operand)
            same = inside is not None and inside.axis == axis and not inside.interleaved
            ops += inside.ops if inside is not None and same else [self.whole(operand)]
        alike = len({one.dims[axis] for one in ops}) == 1
        if not alike and _is_of_components(op, axis):
            ops = [self._sliced(o, axis, n, n + 1) for o in ops for n in range(o.dims[axis])]
            alike = True
        return _Pieces(axis, tuple(ops)) if alike and len(ops) <= MOST_PIECES else None

    def _elementwise(self, op: Op) -> _Pieces | None:
        first, of = next((self._pieces[o], o) for o in op.operands if o in self._pieces)
        axis, ends = first.axis, first.ends
        if op.shape.is_tuple or op.dims != of.dims:  # or bits of other widths
            return None
        if first.interleaved:
            return self._elementwise_interleaved(op, first)
        pieces = []
        for begin, end in zip([0, *ends], ends, strict=False):
            operands = [self._piece(o, op, axis, begin, end) for o in op.operands]
            shape = _cut(op.shape, axis, end - begin)
            pieces.append(self._new(_copy(op, shape, operands)))
        return _Pieces(axis, tuple(pieces))

    def _elementwise_interleaved(self, op: Op, first: _Pieces) -> _Pieces:
        """An elementwise op of interleaved pieces."""
        axis, count = first.axis, len(first.ops)
        shape = _cut(op.shape, axis, op.dims[axis] // count)
        pieces = []
        for number in range(count):
            operands = [self._every(o, op, axis, number, count) for o in op.operands]
            pieces.append(self._new(_copy(op, shape, operands)))
        return _Pieces(axis, tuple(pieces), interleaved=True)

    def _every(self, operand: Op, op: Op, axis: int, number: int, count: int) -> Op:
        """Every `count`-th element of an operand of `op` along a dim, from `number` on."""
        if operand.dims != op.dims:  # a scalar, for all
            return self.whole(operand)
        found = self._pieces.get(operand)
        alike = found is not None and found.interleaved and found.axis == axis
        if found is not None and alike and len(found.ops) == count:
            return found.ops[number]
        size = operand.dims[axis] // count
        if operand.opcode == "broadcast" and axis not in operand.attrs["dimensions"]:
            shape = _cut(operand.shape, axis, size)
            return self._new(_copy(operand, shape, [self.whole(operand.operands[0])]))
        chain = Chain(operand)
        self.ops.append(chain.strided(self.whole(operand), axis, number, count))
        return self.ops[-1]

    def _piece(self, operand: Op, op: Op, axis: int, begin: int, end: int) -> Op:
        """The elements of an operand of `op` from `begin` to `end` along a dim."""
        if operand.dims != op.dims:  # a scalar, for all
            return self.whole(operand)
        found = self._pieces.get(operand)
        if found is not None and found.axis == axis and not found.interleaved:
            first = 0
            for one, last in zip(found.ops, found.ends, strict=True):
                if first <= begin and end <= last:
                    return self._sliced(one, axis, begin - first, end - first)
                first = last
        if operand.opcode == "broadcast" and axis not in operand.attrs["dimensions"]:
            shape = _cut(operand.shape, axis, end - begin)
            return self._new(_copy(operand, shape, [self.whole(operand.operands[0])]))
        return self._sliced(self.whole(operand), axis, begin, end)

    def _sliced(self, value: Op, axis: int, begin: int, end: int) -> Op:
        if (begin, end) == (0, value.dims[axis]):
            return value
        chain = Chain(value)
        self.ops.append(chain.part(value, axis, begin, end))
        return self.ops[-1]

    # ---- what moves or sums pieces --------------------------------------------------------------

    def _slice(self, op: Op, found: _Pieces) -> _Pieces | None:
        axis = found.axis
        begin, end = op.attrs["start"][axis], op.attrs["limit"][axis]
        if op.attrs["stride"][axis] != 1 or found.interleaved:
            return None
        ops, first = [], 0
        for one, last in zip(found.ops, found.ends, strict=True):
            low, high = max(begin, first) - first, min(end, last) - first
            if low < high:
                start = _with(op.attrs["start"], axis, low)
                limit = _with(op.attrs["limit"], axis, high)
                attrs = {"start": start, "limit": limit, "stride": op.attrs["stride"]}
                shape = _cut(op.shape, axis, high - low)
                same = shape == one.shape
                ops.append(one if same else self._new(_copy(op, shape, [one], attrs)))
            first = last
        alike = len({one.dims[axis] for one in ops}) == 1
        return _Pieces(axis, tuple(ops)) if alike else None

    def _gather(self, op: Op, found: _Pieces) -> _Pieces | None:
        """Components in another order, which a constant says."""
        attrs, axis = op.attrs, found.axis
        others = tuple(d for d in range(op.shape.rank) if d != axis)
        sizes = _with(op.operands[0].dims, axis, 1)
        order = op.operands[1]
        while order.opcode in ("reshape", "broadcast") and order.operands[0].shape.size > 1:
            order = order.operands[0]
        if (
            order.opcode != "constant"
            or not found.single
            or op.shape.rank != op.operands[0].shape.rank
            or tuple(attrs["collapsed_slice_dims"]) != (axis,)
            or tuple(attrs["start_index_map"]) != (axis,)
            or tuple(attrs["offset_dims"]) != others
            or tuple(attrs["slice_sizes"]) != sizes
            or order.shape.size != op.dims[axis]
        ):
            return None
        last = len(found.ops) - 1
        numbers = order.attrs["value"].reshape(-1).astype(int).clip(0, last)
        few = len(numbers) <= MOST_PIECES
        return _Pieces(axis, tuple(found.ops[n] for n in numbers)) if few else None

    def _reshape(self, op: Op, found: _Pieces) -> _Pieces | None:
        """The dim must be one of the result's as well."""
        source = op.operands[0].dims
        before, size = math.prod(source[: found.axis]), source[found.axis]
        if size == 1:
            return None
        if found.single and (flat := self._flattened(op, found)):
            return flat
        if found.interleaved:
            return self._reshape_interleaved(op, found)
        axis = next(
            (d for d, n in enumerate(op.dims) if n == size and math.prod(op.dims[:d]) == before),
            None,
        )
        return None if axis is None else self._each(op, found, axis)

    def _flattened(self, op: Op, found: _Pieces) -> _Pieces | None:
        """Components that are interleaved in a result whose dim is theirs and the one before it."""
        source, axis = op.operands[0].dims, found.axis
        if not axis or op.dims != (
            *source[: axis - 1],
            source[axis - 1] * source[axis],
            *source[axis + 1 :],
        ):
            return None
        shape = _cut(op.shape, axis - 1, source[axis - 1])
        pieces = (self._new(_copy(op, shape, [one])) for one in found.ops)
        return _Pieces(axis - 1, tuple(pieces), interleaved=True)

    def _reshape_interleaved(self, op: Op, found: _Pieces) -> _Pieces | None:
        """What is interleaved along a dim of the result with as many elements after it."""
        source, count = op.operands[0].dims, len(found.ops)
        after = math.prod(source[found.axis + 1 :])
        for d, n in enumerate(op.dims):
            if n % count == 0 and math.prod(op.dims[d + 1 :]) == after:
                shape = _cut(op.shape, d, n // count)
                ops = tuple(self._new(_copy(op, shape, [one])) for one in found.ops)
                return _Pieces(d, ops, interleaved=True)
        return None

    def _broadcast(self, op: Op, found: _Pieces) -> _Pieces | None:
        axis = op.attrs["dimensions"][found.axis]
        return self._each(op, found, axis)

    def _transpose(self, op: Op, found: _Pieces) -> _Pieces | None:
        return self._each(op, found, op.attrs["dimensions"].index(found.axis))

    def _each(self, op: Op, found: _Pieces, axis: int) -> _Pieces:
        """The op of each piece, which then lies along the dim `axis` of the result."""
        shapes = (_cut(op.shape, axis, one.dims[found.axis]) for one in found.ops)
        pairs = zip(found.ops, shapes, strict=True)
        rest = [self.whole(o) for o in op.operands[1:]]
        made = (self._new(_copy(op, shape, [one, *rest])) for one, shape in pairs)
        return _Pieces(axis, tuple(made), found.interleaved)

    def _reduce(self, op: Op, found: _Pieces) -> _Pieces | None:
        reducer, summed = op.attrs.get("reducer"), op.attrs["dimensions"]
        if reducer not in JOINING or len(op.operands) != 2:
            return None
        if found.axis not in summed:
            return self._each(op, found, found.axis - sum(d < found.axis for d in summed))
        init = splat(op.operands[1])
        if init is None or init != identity(reducer, op.dtype):
            return None
        if found.interleaved:
            total = found.ops[0]
            for one in found.ops[1:]:
                joined = Op(
                    reducer, one.shape, (total, one), {}, f"{op.name}_part", source=op.source
                )
                total = self._new(joined)
            return _Pieces(0, (self._part(op, total),))
        parts = [self._part(op, one) for one in found.ops]
        last = len(parts) - 1
        total = parts[0]
        for number, part in enumerate(parts[1:], 1):
            name = op.name if number == last else f"{op.name}_part"
            total = self._new(Op(reducer, op.shape, (total, part), {}, name, source=op.source))
        return _Pieces(0, (total,))

    def _dot(self, op: Op) -> _Pieces | None:
        """A product that sums over the components, with a small matrix: a piece for each of its
        columns."""
        for side, matrix in ((0, op.operands[1]), (1, op.operands[0])):
            found = self._pieces.get(op.operands[side])
            summed = tuple(op.attrs[("lhs_contract", "rhs_contract")[side]])
            if found is None or summed != (found.axis,) or not found.single:
                continue
            if (known := columns(op, side, matrix)) is None:
                continue
            axis, shape, starts = known
            made = []
            for start in starts:
                self.ops += product(op, side, found.ops, self.whole(matrix), shape, start)
                made.append(self.ops[-1])
            return _Pieces(axis, tuple(made))
        return None

    def _part(self, op: Op, one: Op) -> Op:
        """What a reduction makes of a piece."""
        if all(one.dims[d] == 1 for d in op.attrs["dimensions"]):
            name = f"{op.name}_part"
            return self._new(Op("reshape", op.shape, (one,), {}, name, source=op.source))
        return self._new(_copy(op, op.shape, [one, self.whole(op.operands[1])]))


_RULES = {
    "slice": _Sinking._slice,
    "gather": _Sinking._gather,
    "reshape": _Sinking._reshape,
    "broadcast": _Sinking._broadcast,
    "transpose": _Sinking._transpose,
    "reduce": _Sinking._reduce,
}


def _copy(
    op: Op, shape: Shape, operands: Sequence[Op], attrs: dict[str, object] | None = None
) -> Op:
    """An op of a piece: what `op` does, for other elements of it."""
    copy = rebuilt(op, operands)
    return like(replace(copy, shape=shape, attrs=op.attrs if attrs is None else attrs), op)


def _cut(shape: Shape, axis: int, extent: int) -> Shape:
    return Shape(shape.dtype, _with(shape.dims, axis, extent))


def _with(values: Sequence[int], dim: int, value: int) -> tuple[int, ...]:
    return tuple(value if n == dim else one for n, one in enumerate(values))
