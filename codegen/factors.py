"""Factors that do not vary along a sum are taken out of it.

    reduce_add(x[R, C] * broadcast(f[R]), 1)  ->  reduce_add(x, 1) * f
    reduce_add(-x)                            ->  -reduce_add(x)

A factor is often a sum itself, for which the sum of products would have to wait: without it both
run down a row at once. The factor is rounded once instead of in every term.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from codegen.region import rewrite
from hlo.graph import FLOATS, Graph, Op, Shape
from hlo.literals import NUMPY_DTYPES
from hlo.rewrite import splat
from hlo.semantics import Kind, kind_of

#: Elementwise ops between a factor and the values it is made of.
MOST_STEPS = 4


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
    outside: list[tuple[str, tuple[Op, ...]]] = []
    while (taken := take_factor(source, op, chain)) is not None:
        source, opcode, factor = taken
        outside.append((opcode, factor))
    if not outside:
        return None
    value = Op("reduce", op.shape, (source, start), op.attrs, f"{op.name}_sum", called=op.called)
    chain.append(value)
    for opcode, factor in reversed(outside):
        value = Op(opcode, op.shape, (value, *factor), name=f"{op.name}_{opcode}")
        chain.append(value)
    value.name, value.origin = op.name, op.origin
    for made in chain:
        made.source = op.source
    return chain


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
        if not _varies(factor, op):
            return rest, source.opcode, (_kept(factor, op, chain),)
    return None


def _varies(value: Op, op: Op, steps: int = MOST_STEPS) -> bool:
    """False if `value` is known to be the same along all dims that `op` sums over."""
    if value.opcode == "broadcast":
        summed = op.attrs["dimensions"]
        return any(d in summed and extent != 1 for d, extent in _dims(value))
    if kind_of(value.opcode) is not Kind.ELEMENTWISE or not steps:
        return splat(value) is None
    return any(_varies(x, op, steps - 1) for x in value.operands)


def _kept(value: Op, op: Op, chain: list[Op]) -> Op:
    """`value`, which does not vary along the sum, at the dims that the sum keeps."""
    shape = Shape(value.dtype, op.dims)
    if value.opcode == "broadcast":
        return _narrower(value, op, chain)
    if kind_of(value.opcode) is Kind.ELEMENTWISE:
        operands = tuple(_kept(x, op, chain) for x in value.operands)
        return _made(chain, value.opcode, shape, operands, value.attrs)
    everywhere = np.full(op.dims, splat(value), NUMPY_DTYPES[value.dtype])
    return _made(chain, "constant", shape, (), {"value": everywhere})


def _narrower(broadcast: Op, op: Op, chain: list[Op]) -> Op:
    """The same broadcast, without the dims that are summed over."""
    (inner,) = broadcast.operands
    summed = op.attrs["dimensions"]
    kept = [d for d in range(len(broadcast.dims)) if d not in summed]
    places = [d for d in broadcast.attrs["dimensions"] if d not in summed]
    if len(places) < inner.shape.rank:
        dims = tuple(extent for d, extent in _dims(broadcast) if d in kept)
        inner = _made(chain, "reshape", Shape(inner.dtype, dims), (inner,), {})
    if inner.dims == op.dims:
        return inner
    attrs = {"dimensions": tuple(kept.index(d) for d in places)}
    return _made(chain, "broadcast", Shape(inner.dtype, op.dims), (inner,), attrs)


def _dims(broadcast: Op) -> Iterator[tuple[int, int]]:
    """(dim of the result, extent) of every dim of what is broadcast."""
    return zip(broadcast.attrs["dimensions"], broadcast.operands[0].dims, strict=True)


def _made(
    chain: list[Op], opcode: str, shape: Shape, operands: tuple[Op, ...], attrs: Mapping[str, Any]
) -> Op:
    chain.append(Op(opcode, shape, operands, attrs))
    return chain[-1]
