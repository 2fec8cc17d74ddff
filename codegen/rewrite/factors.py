"""Factors that do not vary along a sum are taken out of it.

    reduce_add(x[R, C] * broadcast(f[R]), 1)  ->  reduce_add(x, 1) * f
    reduce_add(-x)                            ->  -reduce_add(x)

A factor is often a sum itself, for which the sum of products would have to wait: without it both
run down a row at once. The factor is rounded once instead of in every term. Sums that differ in
nothing else become equal. Factors that may be there to keep the terms in range stay where they are:
those of codegen/rewrite/scales.py, those of squares, and those on both sides of a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scales import is_scale
from fusionstitch.hlo.graph import FLOATS, Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Elementwise ops between a factor and the values it is made of.
MOST_STEPS = 4
#: Products of values that vary in whose operands factors are looked for. Deeper inside, what is
#: left of a product that others read as well would be computed twice.
MOST_PRODUCTS = 1
#: Ops between a sum and a factor that is taken out of it.
MOST_DEEP = 64
#: How a factor is applied to the sum: an opcode and its operand besides the sum, if it has one.
Factor = tuple[str, tuple[Op, ...]]


def take_out_factors(graph: Graph) -> Graph:
    """`graph` with every float sum free of the factors that do not vary along it."""
    return rewrite(graph, _without_factors)


def _without_factors(op: Op) -> list[Op] | None:
    if op.opcode != "reduce" or op.attrs.get("reducer") != "add" or op.dtype not in FLOATS:
        return None
    source, start = op.operands
    if splat(start) != 0:
        return None
    chain: list[Op] = []
    outside: list[Factor] = []
    rest = _parted(source, op, chain, outside)
    if rest is source or rest is None:
        return None
    value = Op("reduce", op.shape, (rest, start), op.attrs, f"{op.name}_sum", called=op.called)
    chain.append(value)
    for opcode, factor in outside:
        value = Op(opcode, op.shape, (value, *factor), name=f"{op.name}_{opcode}")
        chain.append(value)
    value.name, value.origin = op.name, op.origin
    for made in chain:
        made.source = op.source
    return chain


def _parted(
    value: Op,
    op: Op,
    chain: list[Op],
    outside: list[Factor],
    products: int = MOST_PRODUCTS,
    deep: int = MOST_DEEP,
) -> Op | None:
    """What is left of a summed value without its factors, which go to `outside`; None if it is one
    itself."""
    if not _stays(value, op):
        outside.append(("multiply", (kept(value, op, chain),)))
        return None
    if not deep:
        return value
    if value.opcode == "negate":
        rest = _parted(value.operands[0], op, chain, outside, products, deep - 1)
        outside.append(("negate", ()))
        return rest
    if value.opcode not in ("multiply", "divide"):
        return value
    left, right = value.operands
    if value.opcode == "divide":
        if _stays(right, op):
            return value
        rest = _parted(left, op, chain, outside, products, deep - 1)
        outside.append(("divide", (kept(right, op, chain),)))
        return rest
    steady = [not _stays(side, op) for side in value.operands]
    if not any(steady) and (left is right or not products):
        return value
    products -= not any(steady)
    sides = [_Side(side) for side in value.operands]
    for side in sides:
        side.rest = _parted(side.whole, op, side.chain, side.outside, products, deep - 1)
    if all(side.is_scaled for side in sides) or not any(side.outside for side in sides):
        return value
    for side in sides:
        chain += side.chain
        outside += side.outside
    rests = [side.rest for side in sides]
    remaining = [rest for rest in rests if rest is not None]
    if len(remaining) < 2:
        return remaining[0] if remaining else None
    return _made(chain, "multiply", value.shape, tuple(remaining), {})


@dataclass
class _Side:
    """An operand of a product: its factors, `outside`, and what is left without them."""

    whole: Op
    rest: Op | None = None
    chain: list[Op] = field(default_factory=list)
    outside: list[Factor] = field(default_factory=list)

    @property
    def is_scaled(self) -> bool:
        """Whether what varies of it has a factor besides signs and constants."""
        given = (x for _, factor in self.outside for x in factor)
        return self.rest is not None and any(splat(x) is None for x in given)


def take_factor(source: Op, op: Op, chain: list[Op]) -> tuple[Op, str, tuple[Op, ...]] | None:
    """What is left of what the reduction `op` sums without its outermost factor, and how to apply
    that; None if it has none. Ops that make the factor are added to `chain`."""
    if source.opcode == "negate":
        return source.operands[0], "negate", ()
    if source.opcode not in ("multiply", "divide"):
        return None
    left, right = source.operands
    sides = [(left, right)] if source.opcode == "divide" else [(left, right), (right, left)]
    for rest, factor in sides:
        if not _stays(factor, op):
            return rest, source.opcode, (kept(factor, op, chain),)
    return None


def _stays(factor: Op, op: Op) -> bool:
    """Whether a factor cannot be taken out of the sum `op`."""
    return varies(factor, op) or is_scale(factor)


def varies(value: Op, op: Op, steps: int = MOST_STEPS) -> bool:
    """False if `value` is known to be the same along all dims that `op` sums over."""
    if value.opcode == "broadcast":
        summed = op.attrs["dimensions"]
        return any(d in summed and extent != 1 for d, extent in _dims(value))
    if kind_of(value.opcode) is not Kind.ELEMENTWISE or not steps:
        return splat(value) is None
    return any(varies(x, op, steps - 1) for x in value.operands)


def kept(value: Op, op: Op, chain: list[Op]) -> Op:
    """`value`, which does not vary along the sum, at the dims that the sum keeps."""
    shape = Shape(value.dtype, op.dims)
    if value.opcode == "broadcast":
        return _narrower(value, op, chain)
    if kind_of(value.opcode) is Kind.ELEMENTWISE:
        operands = tuple(kept(x, op, chain) for x in value.operands)
        return _made(chain, value.opcode, shape, operands, value.attrs)
    everywhere = np.broadcast_to(np.asarray(splat(value), NUMPY_DTYPES[value.dtype]), op.dims)
    return _made(chain, "constant", shape, (), {"value": everywhere})


def _narrower(broadcast: Op, op: Op, chain: list[Op]) -> Op:
    """The same broadcast, without the dims that are summed over."""
    (inner,) = broadcast.operands
    summed = op.attrs["dimensions"]
    left = [d for d in range(len(broadcast.dims)) if d not in summed]
    places = [d for d in broadcast.attrs["dimensions"] if d not in summed]
    if len(places) < inner.shape.rank:
        dims = tuple(extent for d, extent in _dims(broadcast) if d in left)
        inner = _made(chain, "reshape", Shape(inner.dtype, dims), (inner,), {})
    if inner.dims == op.dims:
        return inner
    attrs = {"dimensions": tuple(left.index(d) for d in places)}
    return _made(chain, "broadcast", Shape(inner.dtype, op.dims), (inner,), attrs)


def _dims(broadcast: Op) -> Iterator[tuple[int, int]]:
    """(dim of the result, extent) of every dim of what is broadcast."""
    return zip(broadcast.attrs["dimensions"], broadcast.operands[0].dims, strict=True)


def _made(
    chain: list[Op], opcode: str, shape: Shape, operands: tuple[Op, ...], attrs: Mapping[str, Any]
) -> Op:
    chain.append(Op(opcode, shape, operands, attrs))
    return chain[-1]
