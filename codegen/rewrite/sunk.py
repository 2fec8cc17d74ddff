"""Concatenates sink towards the outputs: what is computed of one is computed of each of its pieces.

    multiply(concatenate(a, b), c)    ->    concatenate(multiply(a, c[:n]), multiply(b, c[n:]))
    reduce(stack(a, b), axis)         ->    add(a, b)

A value of a few components (a position, a quaternion, the directions of a lattice) is often stacked
in between. A loop over the elements of the stack has each of them alone: it computes what they have
in common for each, and meets the others in memory. A loop over the items has all of an item's
components in registers, and none of them asks which one it is. The price is longer text. Pieces of
different shapes are no components: a border stays beside what it surrounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from fusionstitch.codegen.annotations import like
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.component_products import columns, product
from fusionstitch.codegen.rewrite.joined import MOST_PIECES
from fusionstitch.codegen.rewrite.region import rebuilt, with_used
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops of the region that comes of it, at most; and by what it grows.
MOST_OPS, MOST_TIMES = 2000, 16
#: What a reducer is as an op of two values.
_JOINS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or"})


@dataclass(frozen=True)
class _Pieces:
    """A value as what follows each other along its dim `axis`."""

    axis: int
    ops: tuple[Op, ...]

    @property
    def ends(self) -> list[int]:
        """Where each ends."""
        return list(accumulate(op.dims[self.axis] for op in self.ops))

    @property
    def single(self) -> bool:
        """Whether each is one component."""
        return all(op.dims[self.axis] == 1 for op in self.ops)


def sink_concatenates(graph: Graph) -> Graph:
    """The region with its concatenates as near to its outputs as they come, or the very graph if
    they are there, or it would become too long."""
    made = _Sinking()
    for op in graph.ops[:-1]:
        made.add(op)
        if len(made.ops) > min(MOST_OPS, MOST_TIMES * len(graph.ops)):
            return graph
    if not made.sunk:
        return graph
    outputs = [made.whole(op) for op in graph.root.operands]
    return with_used(graph.name, made.ops, outputs)


class _Sinking:
    """A region on the way: its ops so far, and which values are there in pieces."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
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

    def whole(self, op: Op) -> Op:
        """A value of the region as one."""
        if op not in self._whole:
            found = self._pieces[op]
            copy = Op("concatenate", op.shape, found.ops, {"dimension": found.axis}, op.name)
            self._whole[op] = self._new(like(replace(copy, source=op.source), op))
        return self._whole[op]

    def _new(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _in_pieces(self, op: Op) -> _Pieces | None:
        """An op computed piece by piece, if what it reads is there so and it can be."""
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

    def _concatenate(self, op: Op) -> _Pieces | None:
        axis = op.attrs["dimension"]
        ops: list[Op] = []
        for operand in op.operands:
            inside = self._pieces.get(operand)
            same = inside is not None and inside.axis == axis
            ops += inside.ops if inside is not None and same else [self.whole(operand)]
        alike = len({one.dims[axis] for one in ops}) == 1
        return _Pieces(axis, tuple(ops)) if alike and len(ops) <= MOST_PIECES else None

    def _elementwise(self, op: Op) -> _Pieces | None:
        first = next(self._pieces[o] for o in op.operands if o in self._pieces)
        axis, ends = first.axis, first.ends
        if op.shape.is_tuple:
            return None
        pieces = []
        for begin, end in zip([0, *ends], ends, strict=False):
            operands = [self._piece(o, op, axis, begin, end) for o in op.operands]
            shape = _cut(op.shape, axis, end - begin)
            pieces.append(self._new(_copy(op, shape, operands)))
        return _Pieces(axis, tuple(pieces))

    def _piece(self, operand: Op, op: Op, axis: int, begin: int, end: int) -> Op:
        """The elements of an operand of `op` from `begin` to `end` along a dim."""
        if operand.dims != op.dims:  # a scalar, for all
            return self.whole(operand)
        found = self._pieces.get(operand)
        if found is not None and found.axis == axis:
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
        if op.attrs["stride"][axis] != 1:
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
            or tuple(attrs["collapsed_slice_dims"]) != (axis,)
            or tuple(attrs["start_index_map"]) != (axis,)
            or tuple(attrs["offset_dims"]) != others
            or tuple(attrs["slice_sizes"]) != sizes
            or order.shape.size != op.dims[axis]
        ):
            return None
        last = len(found.ops) - 1
        places = order.attrs["value"].reshape(-1).astype(int).clip(0, last)
        few = len(places) <= MOST_PIECES
        return _Pieces(axis, tuple(found.ops[n] for n in places)) if few else None

    def _reshape(self, op: Op, found: _Pieces) -> _Pieces | None:
        """The dim must be one of the result's as well."""
        source = op.operands[0].dims
        before, size = math.prod(source[: found.axis]), source[found.axis]
        if size == 1:
            return None
        axis = next(
            (d for d, n in enumerate(op.dims) if n == size and math.prod(op.dims[:d]) == before),
            None,
        )
        return None if axis is None else self._each(op, found, axis)

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
        return _Pieces(axis, tuple(made))

    def _reduce(self, op: Op, found: _Pieces) -> _Pieces | None:
        reducer, summed = op.attrs.get("reducer"), op.attrs["dimensions"]
        if reducer not in _JOINS or len(op.operands) != 2:
            return None
        if found.axis not in summed:
            return self._each(op, found, found.axis - sum(d < found.axis for d in summed))
        init = splat(op.operands[1])
        if init is None or init != identity(reducer, op.dtype):
            return None
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


def _with(values: Sequence[int], place: int, value: int) -> tuple[int, ...]:
    return tuple(value if n == place else one for n, one in enumerate(values))
