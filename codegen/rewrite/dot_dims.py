"""Products with the dims that their operands had before these were merged, and in their order.

    y = tanh(dot(k[b, t, d], reshape(q[b, d, s, g])))    o = reshape(y[b, t, s g])
    ->    o = tanh(dot(k, q))[b, t, s, g]

XLA multiplies matrices: all dims of an operand that are not summed over become one before a dot,
and are taken apart again after it, or after elementwise ops that it has moved there. Here they stay
apart, so that rows can be told from what they are grouped by, and be padded (dots/whole_tiles.py).
And a dot reads what was transposed for it in the order that it had before, so that what its operand
is computed from is seen (dots/chains.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.codegen.annotations import like
from fusionstitch.codegen.rewrite.region import rebuilt, rewrite, with_used
from fusionstitch.hlo.dots import SIDES, result_dims
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.semantics import Kind, kind_of

#: By dim of an op, the extents that it was merged from.
Parts = tuple[tuple[int, ...], ...]


def keep_dims_apart(graph: Graph) -> Graph:
    """The region with its dots like that; the same if there are none to be changed."""
    made = _Apart(graph)
    for op in graph.ops[:-1]:
        made.add(op)
    if made.apart:
        outputs = [made.copies[o.id] for o in graph.root.operands]
        graph = with_used(graph.name, made.ops, outputs)
    found = rewrite(graph, _in_order)
    return graph if found is graph else with_used(graph.name, found.ops[:-1], found.root.operands)


def parts_of(merged: Sequence[int], apart: Sequence[int]) -> Parts | None:
    """Which run of the extents `apart` each of `merged` is the product of; None where one is of
    none. Extents of 1 belong to those before them."""
    found: list[tuple[int, ...]] = []
    rest = list(apart)
    for extent in merged:
        taken = [rest.pop(0)] if rest else []
        while rest and (math.prod(taken) < extent or rest[0] == 1 != extent):
            taken.append(rest.pop(0))
        if not taken or math.prod(taken) != extent:
            return None
        found.append(tuple(taken))
    return None if rest else tuple(found)


# ---- dims that stay apart ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Value:
    """An op of the new region with the dims of one of the old apart."""

    op: Op
    parts: Parts


class _Apart:
    """The region in the making: the ops of the old one are added in order."""

    def __init__(self, graph: Graph):
        self.ops: list[Op] = []
        #: by number of an old op: the new one of its dims, and the one with its dims apart
        self.copies: dict[int, Op] = {}
        self.apart: dict[int, _Value] = {}
        self.leads = _leading(graph)

    def add(self, op: Op) -> None:
        """Adds an op, with its dims apart where they come apart after it."""
        made = None
        if op.opcode == "reshape":
            [x] = op.operands
            if x.id in self.apart:
                self.copies[op.id] = self._reshaped(self.apart[x.id].op, op)
                return
        elif op.id in self.leads:
            made = self._dot(op) if op.opcode == "dot" else self._elementwise(op)
        if made is None:
            self.copies[op.id] = self._kept(rebuilt(op, [self.copies[o.id] for o in op.operands]))
        else:
            self.apart[op.id] = made
            self.copies[op.id] = self._reshaped(made.op, op)

    def _kept(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _reshaped(self, value: Op, as_: Op) -> Op:
        if value.dims == as_.dims:
            return value
        return self._kept(Op("reshape", as_.shape, (value,), source=as_.source))

    def _made(
        self, op: Op, parts: Parts, operands: Sequence[Op], attrs: Mapping[str, Any]
    ) -> _Value:
        shape = Shape(op.dtype, _flat(parts))
        made = Op(op.opcode, shape, tuple(operands), attrs, op.name, source=op.source)
        return _Value(self._kept(like(made, op)), parts)

    def _dot(self, op: Op) -> _Value | None:
        """A dot of operands that were merged, as it is without that."""
        attrs, operands = dict(op.attrs), []
        found: dict[int, tuple[int, ...]] = {}
        for number, (old, side) in enumerate(zip(op.operands, SIDES, strict=True)):
            gone = {*op.attrs[f"{side}_batch"], *op.attrs[f"{side}_contract"]}
            x = self.copies[old.id]
            whole = tuple((n,) for n in x.dims)
            parts = parts_of(x.dims, x.operands[0].dims) if x.opcode == "reshape" else None
            if parts is None or any(len(parts[d]) > 1 for d in gone):
                parts = whole
            operands.append(x if parts == whole else x.operands[0])
            found |= {n: parts[d] for d, n in result_dims(op, number).items()}
            first = [sum(map(len, parts[:d])) for d in range(x.shape.rank)]
            for name in (f"{side}_batch", f"{side}_contract"):
                attrs[name] = tuple(first[d] for d in op.attrs[name])
        apart = tuple(found[n] for n in range(op.shape.rank))
        return self._made(op, apart, operands, attrs) if _are_apart(apart) else None

    def _elementwise(self, op: Op) -> _Value | None:
        """What is computed of a value with dims apart, element by element."""
        known = [self.apart[o.id].parts for o in op.operands if o.id in self.apart]
        if not known:
            return None
        parts = known[0]
        return self._made(op, parts, [self._as(o, parts) for o in op.operands], op.attrs)

    def _as(self, old: Op, parts: Parts) -> Op:
        """An operand with its dims like that."""
        value, copy = self.apart.get(old.id), self.copies[old.id]
        if not old.shape.rank:
            return copy
        shape = Shape(old.dtype, _flat(parts))
        if value is not None and value.op.dims == shape.dims:
            return value.op
        if copy.opcode == "broadcast" and not copy.operands[0].shape.rank:
            return self._kept(Op("broadcast", shape, copy.operands, copy.attrs, source=old.source))
        if copy.opcode == "reshape" and copy.operands[0].dims == shape.dims:
            return copy.operands[0]
        return self._kept(Op("reshape", shape, (copy,), source=old.source))


def _leading(graph: Graph) -> frozenset[int]:
    """The dots and elementwise ops that only a reshape reads, or such an op that does so."""
    found: set[int] = set()
    for op in reversed(graph.ops[:-1]):
        if op.opcode == "dot" or _is_elementwise(op):
            users = graph.users[op.id]
            if len(users) == 1 and (users[0].opcode == "reshape" or users[0].id in found):
                found.add(op.id)
    return frozenset(found)


def _is_elementwise(op: Op) -> bool:
    if kind_of(op.opcode) is not Kind.ELEMENTWISE or op.shape.elements or op.called:
        return False
    return all(o.dims in ((), op.dims) for o in op.operands)  # no bytes of numbers


def _flat(parts: Parts) -> tuple[int, ...]:
    return tuple(extent for one in parts for extent in one)


def _are_apart(parts: Parts) -> bool:
    """Whether a dim has become several that are longer than 1."""
    return any(sum(extent > 1 for extent in one) > 1 for one in parts)


# ---- dims in the order that they had -------------------------------------------------------------


def _in_order(dot: Op) -> list[Op] | None:
    """A dot without the transposes of its operands, if it has any that leave the dims which it
    keeps in their order."""
    if dot.opcode != "dot":
        return None
    attrs, operands = dict(dot.attrs), list(dot.operands)
    for number, (x, side) in enumerate(zip(dot.operands, SIDES, strict=True)):
        if x.opcode != "transpose":
            continue
        order = x.attrs["dimensions"]
        gone = {*attrs[f"{side}_batch"], *attrs[f"{side}_contract"]}
        kept = [order[d] for d in range(len(order)) if d not in gone]
        if kept == sorted(kept):
            operands[number] = x.operands[0]
            for name in (f"{side}_batch", f"{side}_contract"):
                attrs[name] = tuple(order[d] for d in attrs[name])
    if operands == list(dot.operands):
        return None
    fields = dot.opcode, dot.shape, tuple(operands), attrs, dot.name, dot.origin, dot.called
    return [like(Op(*fields, dot.source), dot)]
