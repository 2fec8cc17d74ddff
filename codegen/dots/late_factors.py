"""Factors of rows that dots of streamed chains apply after their sums, not before.

    dot(e[R, C] / s[R], v)                      ->    dot(e, v) / s
    dot(select(mask, e / s, 0), v)              ->    o = dot(select(mask, e, 0), v)
                                                      select(o == 0, o, o / s)

A softmax divides by a sum that is known after the row; its dot need not wait for it then. A mask
that makes elements zero once more does not depend on the factor. Where it leaves none of a row, the
program has zeros whatever the factor is, which is no number in a row of a softmax without
elements. So a sum that is zero stays as it is; a divisor that is known not to be zero would not
change it either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.rewrite.factors import take_factor
from fusionstitch.codegen.rewrite.region import rebuilt, rewrite
from fusionstitch.codegen.rewrite.scales import NARROW, Factor, may_leave
from fusionstitch.codegen.rewrite.sizes import least, most
from fusionstitch.hlo.graph import FLOATS, Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat


def without_factors(graph: Graph, stream: Stream) -> Graph:
    """`graph` with the dots of a stream free of factors that do not vary along what they sum.

    What a dot sums without the factors may be beyond f16, so it is one of f32 until they are
    applied.
    """
    if not stream.sums:
        return graph
    return rewrite(graph, lambda op: _without_factors(op) if op.id in stream.sums else None)


@dataclass
class _Free:
    """An operand of a dot without its factors, which are in order from the inside out.

    `chain` has the ops that were made; `masked`: whether a mask leaves out elements that had the
    factors.
    """

    rest: Op
    factors: list[Factor] = field(default_factory=list)
    masked: bool = False
    chain: list[Op] = field(default_factory=list)


def _without_factors(dot: Op) -> list[Op] | None:
    if dot.opcode != "dot":
        return None
    chain: list[Op] = []
    outside: list[tuple[str, Op | None]] = []
    operands = list(dot.operands)
    wide = Shape("f32" if dot.dtype in NARROW else dot.dtype, dot.dims)
    masked = False
    for side, contracted in enumerate((dot.attrs["lhs_contract"], dot.attrs["rhs_contract"])):
        kept_dims = [d for d in range(operands[side].shape.rank) if d not in contracted]
        dimensions = _dims_of(dot, side, kept_dims)
        source, types, made = _unconverted(operands[side])
        free = _free(source, kept_dims, contracted, operands[1 - side], types)
        if not free.factors:
            continue
        chain += [*made, *free.chain]
        masked |= free.masked
        for opcode, factor in free.factors:
            outside.append(
                (opcode, _spread(factor[0], wide, dimensions, chain) if factor else None)
            )
        operands[side] = _converted(free.rest, types, chain)
    if not outside:
        return None
    total = Op("dot", wide, tuple(operands), dot.attrs, f"{dot.name}_sum")
    chain.append(total)
    value = total
    for opcode, factor_op in outside:
        parts = (value,) if factor_op is None else (value, factor_op)
        value = Op(opcode, wide, parts, name=f"{dot.name}_{opcode}")
        chain.append(value)
    if masked:
        value = _unless_zero(total, value, chain)
    if wide != dot.shape:
        value = Op("convert", dot.shape, (value,))
        chain.append(value)
    value.name, value.origin = dot.name, dot.origin
    for made_op in chain:
        made_op.source = dot.source
    return chain


def _unless_zero(total: Op, value: Op, chain: list[Op]) -> Op:
    """`value`, or `total` where that is 0."""
    zero = _zeros(total.shape, chain)
    where = Op(
        "compare",
        Shape("pred", total.dims),
        (total, zero),
        {"direction": "EQ", "total_order": False},
    )
    chain += [where, Op("select", total.shape, (where, total, value))]
    return chain[-1]


def _zeros(shape: Shape, chain: list[Op]) -> Op:
    value = np.zeros((), NUMPY_DTYPES[shape.dtype])
    zero = Op("constant", Shape(shape.dtype), (), {"value": value})
    chain += [zero, Op("broadcast", shape, (zero,), {"dimensions": ()})]
    return chain[-1]


# ---- which factors -------------------------------------------------------------------------------


def _free(
    source: Op, kept_dims: Sequence[int], contracted: Sequence[int], other: Op, types: Sequence[str]
) -> _Free:
    """An operand of a dot with `other` without the outermost of its factors, as many of them as may
    leave it. `types` are what it is converted to."""
    shape = Shape(source.dtype, tuple(source.dims[d] for d in kept_dims))
    narrowed = source.dtype not in NARROW and not NARROW.isdisjoint(types)
    free = found = _Free(source)
    while True:
        summed = Op("reduce", shape, (found.rest,), {"dimensions": tuple(contracted)})
        more = _taken(found.rest, summed)
        if more is None:
            return free
        found = _Free(
            more.rest,
            [*more.factors, *found.factors],
            more.masked or found.masked,
            [*found.chain, *more.chain],
        )
        in_range = not narrowed or most(found.rest) <= 1
        if in_range and may_leave(found.factors, found.rest, other):
            free = found


def _taken(source: Op, summed: Op) -> _Free | None:
    """A summed value without its outermost factor; None if it has none. That may be inside a mask,
    or a product with what varies, as in dropped weights."""
    chain: list[Op] = []
    found = take_factor(source, summed, chain)
    if found is not None:
        rest, opcode, factor = found
        return _Free(rest, [(opcode, factor)], chain=chain)
    for side in _sides(source):
        inside = _taken(source.operands[side], summed)
        if inside is None:
            continue
        masks = source.opcode == "select"
        if masks and not all(_is_number(*one) for one in inside.factors):
            continue
        rest = rebuilt(source, _with(source.operands, side, inside.rest))
        chain = [*inside.chain, rest]
        return _Free(rest, inside.factors, masks or inside.masked, chain)
    return None


def _sides(value: Op) -> Sequence[int]:
    """The operands of a value whose factors may be its own."""
    if value.opcode == "multiply":
        return (0, 1)
    side = _shown(value) if value.opcode == "select" else None
    return () if side is None else (side,)


def _shown(select: Op) -> int | None:
    """The operand of a select that it gives where it does not give 0."""
    zero = [splat(x) == 0 for x in select.operands[1:]]
    return 1 + zero.index(False) if sum(zero) == 1 else None


def _is_number(opcode: str, factor: tuple[Op, ...] = ()) -> bool:
    """Whether a factor leaves a 0 as it is wherever it is a number itself."""
    if opcode == "divide":
        return least(factor[0]) > 0
    return all(splat(x) is not None for x in factor)


def _with(operands: Sequence[Op], side: int, other: Op) -> list[Op]:
    return [other if n == side else x for n, x in enumerate(operands)]


# ---- types and dims ------------------------------------------------------------------------------


def _unconverted(value: Op) -> tuple[Op, list[str], list[Op]]:
    """What a float is converted from, the types it passes, the last one first, and ops made for
    that: a mask applies before a conversion as it does after it."""
    types: list[str] = []
    made: list[Op] = []
    while True:
        side = _shown(value) if value.opcode == "select" else None
        inner = value if side is None else value.operands[side]
        if inner.opcode != "convert" or inner.operands[0].dtype not in FLOATS:
            return value, types, made
        types.append(inner.dtype)
        wide = inner.operands[0]
        if side is not None:
            zero = _zeros(wide.shape, made)
            both = (wide, zero) if side == 1 else (zero, wide)
            made.append(Op("select", wide.shape, (value.operands[0], *both)))
            wide = made[-1]
        value = wide


def _converted(value: Op, types: Sequence[str], chain: list[Op]) -> Op:
    """A value through those types, the last one first."""
    for dtype in reversed(types):
        value = Op("convert", Shape(dtype, value.dims), (value,))
        chain.append(value)
    return value


def _dims_of(dot: Op, side: int, kept_dims: Sequence[int]) -> list[int]:
    """The result's dim of each dim of an operand that is not summed over."""
    batch = dot.attrs["lhs_batch" if side == 0 else "rhs_batch"]
    free = len(batch)
    if side == 1:
        left = dot.operands[0].shape.rank - len(dot.attrs["lhs_contract"])
        free = left
    dimensions = []
    for d in kept_dims:
        if d in batch:
            dimensions.append(batch.index(d))
        else:
            dimensions.append(free)
            free += 1
    return dimensions


def _spread(factor: Op, like: Shape, dimensions: Sequence[int], chain: list[Op]) -> Op:
    """A factor of an operand's rows as one of the result, which is `like` this."""
    shape = Shape(factor.dtype, like.dims)
    spread = Op("broadcast", shape, (factor,), {"dimensions": tuple(dimensions)})
    chain.append(spread)
    if factor.dtype == like.dtype:
        return spread
    chain.append(Op("convert", like, (spread,)))
    return chain[-1]
