"""Factors that do not vary along a sum are taken out of it.

    reduce_add(x[R, C] * broadcast(f[R]), 1)  ->  reduce_add(x, 1) * f
    reduce_add(-x)                            ->  -reduce_add(x)

A factor is often a sum itself, for which the sum of products would have to wait: without it both
run down a row at once. The factor is rounded once instead of in every term. Sums that differ in
nothing else become equal.

What is left in a sum must stay in range wherever the program's terms do. Without the factors of
all of a term it is a value that the program has. Without the factor of one side of a product it is
not: x * w may overflow where x * (w / sum(w)) does not. Such a factor leaves only where bounds
show that nothing is lost (`may_leave` in codegen/rewrite/scales.py), as a softmax's divisor does.
Factors that may be there to keep the sum itself in range stay, too: those of scales.py, all in f16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fusionstitch.codegen.annotations import like
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scales import NARROW, Factor, is_scale, may_leave
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


def take_out_factors(graph: Graph) -> Graph:
    """`graph` with every float sum free of the factors that do not vary along it."""
    return rewrite(graph, _without_factors)


def _without_factors(op: Op) -> list[Op] | None:
    if op.opcode != "reduce" or op.attrs.get("reducer") != "add":
        return None
    if op.dtype not in FLOATS or op.dtype in NARROW:
        return None
    source, start = op.operands
    if splat(start) != 0:
        return None
    chain: list[Op] = []
    outside: list[Factor] = []
    rest = _parted(source, op, chain, outside)
    if rest is source or rest is None:
        return None
    total = Op("reduce", op.shape, (rest, start), op.attrs, f"{op.name}_sum", called=op.called)
    value = like(total, op)
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
        outside.append(("multiply", (at_kept_dims(value, op, chain),)))
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
        outside.append(("divide", (at_kept_dims(right, op, chain),)))
        return rest
    for varying, factor in ((left, right), (right, left)):
        if not _stays(factor, op):
            rest = _parted(varying, op, chain, outside, products, deep - 1)
            outside.append(("multiply", (at_kept_dims(factor, op, chain),)))
            return rest
    if left is right or not products:
        return value
    return _product(value, op, chain, outside, products - 1, deep - 1)


def _product(
    value: Op, op: Op, chain: list[Op], outside: list[Factor], products: int, deep: int
) -> Op:
    """What is left of a product of values that vary without those factors of theirs that are not
    needed to keep it in range."""
    rests = list(value.operands)
    for side in (0, 1):
        made: list[Op] = []
        taken: list[Factor] = []
        rest = _parted(rests[side], op, made, taken, products, deep)
        if taken and rest is not None and may_leave(taken, rest, rests[1 - side]):
            chain += made
            outside += taken
            rests[side] = rest
    if tuple(rests) == value.operands:
        return value
    return _made(chain, "multiply", value.shape, tuple(rests), {})


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
            return rest, source.opcode, (at_kept_dims(factor, op, chain),)
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


def at_kept_dims(value: Op, op: Op, chain: list[Op]) -> Op:
    """`value`, which does not vary along the sum, at the dims that the sum keeps."""
    shape = Shape(value.dtype, op.dims)
    if value.opcode == "broadcast":
        return _narrower(value, op, chain)
    if kind_of(value.opcode) is Kind.ELEMENTWISE:
        operands = tuple(at_kept_dims(x, op, chain) for x in value.operands)
        chain.append(like(Op(value.opcode, shape, operands, value.attrs), value))
        return chain[-1]
    everywhere = np.broadcast_to(np.asarray(splat(value), NUMPY_DTYPES[value.dtype]), op.dims)
    return _made(chain, "constant", shape, (), {"value": everywhere})


def _narrower(broadcast: Op, op: Op, chain: list[Op]) -> Op:
    """The same broadcast, without the dims that are summed over."""
    (inner,) = broadcast.operands
    summed = op.attrs["dimensions"]
    left = [d for d in range(len(broadcast.dims)) if d not in summed]
    dimensions = [d for d in broadcast.attrs["dimensions"] if d not in summed]
    if len(dimensions) < inner.shape.rank:
        dims = tuple(extent for d, extent in _dims(broadcast) if d in left)
        inner = _made(chain, "reshape", Shape(inner.dtype, dims), (inner,), {})
    if inner.dims == op.dims:
        return inner
    attrs = {"dimensions": tuple(left.index(d) for d in dimensions)}
    return _made(chain, "broadcast", Shape(inner.dtype, op.dims), (inner,), attrs)


def _dims(broadcast: Op) -> Iterator[tuple[int, int]]:
    """(dim of the result, extent) of every dim of what is broadcast."""
    return zip(broadcast.attrs["dimensions"], broadcast.operands[0].dims, strict=True)


def _made(
    chain: list[Op], opcode: str, shape: Shape, operands: tuple[Op, ...], attrs: Mapping[str, Any]
) -> Op:
    chain.append(Op(opcode, shape, operands, attrs))
    return chain[-1]
