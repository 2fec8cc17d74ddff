"""Factors of rows that dots of streamed chains apply after their sums, not before.

    dot(e[R, C] / s[R], v)                      ->    dot(e, v) / s
    dot(select(mask, e / s, 0), v)              ->    o = dot(select(mask, e, 0), v)
                                                      select(o == 0, o, o / s)

A softmax divides by a sum that is known after the row; its dot need not wait for it then. A mask
that makes elements zero once more does not depend on the factor. Where it leaves none of a row, the
program has zeros whatever the factor is, which is no number in a row of a softmax without
elements. So a sum that is zero stays as it is; a divisor that is known not to be zero would not
change it either. Where a mask leaves a softmax rows without elements (-inf), and the one outside
shows some of these, they are no numbers: there factors stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.rewrite.factors import take_factor
from fusionstitch.codegen.rewrite.region import rebuilt, rewrite
from fusionstitch.codegen.rewrite.scales import NARROW, may_leave
from fusionstitch.codegen.rewrite.sizes import least, most
from fusionstitch.hlo.dots import result_dims
from fusionstitch.hlo.graph import FLOATS, Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: Factors that leave one operand of a dot, and ops between it and such a factor.
MOST_FACTORS, MOST_DEEP = 8, 64


def without_factors(graph: Graph, stream: Stream) -> Graph:
    """`graph` with the dots of a stream free of factors that do not vary along what they sum.

    What a dot sums without the factors may be beyond f16, so it is one of f32 until they are
    applied.
    """
    if not stream.sums:
        return graph
    return rewrite(graph, lambda op: _without_factors(op) if op.id in stream.sums else None)


#: A condition, and whether it has to hold.
Literal = tuple[Op, bool]


@dataclass(frozen=True)
class _Outside:
    """A factor of an operand's rows. Masks around it show elements where all of `shown` is true;
    none: they are all shown."""

    opcode: str
    factor: tuple[Op, ...]
    shown: frozenset[Literal] = frozenset()


@dataclass(frozen=True)
class _Free:
    """An operand of a dot without its factors, which are in order from the inside out. `chain` has
    the ops that were made."""

    rest: Op
    factors: tuple[_Outside, ...] = ()
    chain: tuple[Op, ...] = ()


def _without_factors(dot: Op) -> list[Op] | None:
    if dot.opcode != "dot":
        return None
    chain: list[Op] = []
    operands = list(dot.operands)
    wide = Shape("f32" if dot.dtype in NARROW else dot.dtype, dot.dims)
    outside: list[_Outside] = []
    for side, contracted in enumerate((dot.attrs["lhs_contract"], dot.attrs["rhs_contract"])):
        kept = result_dims(dot, side)
        source, types, made = _unconverted(operands[side])
        if source.dtype not in FLOATS:
            continue  # the factor decides what a float of one byte is rounded to
        free = _free(source, list(kept), contracted, operands[1 - side], types)
        if not free.factors:
            continue
        chain += [*made, *free.chain]
        for one in free.factors:
            spread = tuple(_spread(x, wide, list(kept.values()), chain) for x in one.factor)
            outside.append(replace(one, factor=spread))
        operands[side] = _converted(free.rest, types, chain)
    if not outside:
        return None
    total = value = Op("dot", wide, tuple(operands), dot.attrs, f"{dot.name}_sum")
    chain.append(total)
    outside.sort(key=lambda one: not one.shown)
    masked = sum(bool(one.shown) for one in outside)
    for number, one in enumerate(outside, 1):
        name = f"{dot.name}_{one.opcode}"
        value = Op(one.opcode, wide, (value, *one.factor), name=name)
        chain.append(value)
        if number == masked:
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
    bare: set[Op] = set()
    while len(found.factors) < MOST_FACTORS:
        summed = Op("reduce", shape, (found.rest,), {"dimensions": tuple(contracted)})
        more = _taken(found.rest, summed, bare)
        if more is None or not all(map(_is_known, more.factors)):
            break
        found = _Free(more.rest, more.factors + found.factors, found.chain + more.chain)
        factors = [(one.opcode, one.factor) for one in found.factors]
        in_range = not narrowed or most(found.rest) <= 1
        if in_range and may_leave(factors, found.rest, other):
            free = found
    return free


def _taken(source: Op, summed: Op, bare: set[Op], deep: int = MOST_DEEP) -> _Free | None:
    """A summed value without its outermost factor; None if it has none, and is added to `bare`.
    The factor may be inside a mask, or a product with what varies, as in dropped weights."""
    if source in bare or not deep:
        return None
    made: list[Op] = []
    found = take_factor(source, summed, made)
    if found is not None:
        rest, opcode, operands = found
        return _Free(rest, (_Outside(opcode, operands),), tuple(made))
    for side in _sides(source):
        inside = _taken(source.operands[side], summed, bare, deep - 1)
        if inside is None:
            continue
        [factor] = inside.factors
        if source.opcode == "select":
            if not _is_number(factor):
                continue
            factor = replace(factor, shown=factor.shown | _literals(source.operands[0], side == 1))
        elif not may_leave(
            [(factor.opcode, factor.factor)], inside.rest, source.operands[1 - side]
        ):
            continue
        rest = rebuilt(source, _with(source.operands, side, inside.rest))
        return _Free(rest, (factor,), (*inside.chain, rest))
    bare.add(source)
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


def _is_number(one: _Outside) -> bool:
    """Whether a factor leaves a 0 as it is wherever it is a number itself."""
    if one.opcode == "divide":
        return least(one.factor[0]) > 0
    return all(splat(x) is not None for x in one.factor)


def _is_known(one: _Outside) -> bool:
    """Whether a masked factor is a number wherever the mask shows anything: none of a row of a
    softmax that another mask leaves no elements."""
    return not one.shown or all(_leaves(x) <= one.shown for x in one.factor)


def _leaves(factor: Op) -> set[Literal]:
    """Where the masks inside a factor leave elements, not -inf."""
    found: set[Literal] = set()
    todo, seen = [factor], {factor}
    while todo:
        op = todo.pop()
        if op.opcode == "select":
            for side, other in ((1, 2), (2, 1)):
                if splat(op.operands[other]) == -np.inf:
                    found |= _literals(op.operands[0], side == 1)
        if kind_of(op.opcode) in (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCTION):
            todo += [x for x in op.operands if x not in seen]
            seen.update(op.operands)
    return found


def _literals(condition: Op, holds: bool) -> set[Literal]:
    """What is true where a condition holds, or does not."""
    found: set[Literal] = set()
    todo = [(condition, holds)]
    for _ in range(MOST_DEEP):
        if not todo:
            break
        op, positive = todo.pop()
        if op.opcode == "not":
            todo.append((op.operands[0], not positive))
        elif op.opcode == ("and" if positive else "or"):
            todo += [(x, positive) for x in op.operands]
        else:
            found.add((op, positive))
    return found.union(todo)


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
        if inner.opcode != "convert" or not {inner.dtype, inner.operands[0].dtype} <= FLOATS:
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


def _spread(factor: Op, like: Shape, dimensions: Sequence[int], chain: list[Op]) -> Op:
    """A factor of an operand's rows as one of the result, which is `like` this."""
    shape = Shape(factor.dtype, like.dims)
    spread = Op("broadcast", shape, (factor,), {"dimensions": tuple(dimensions)})
    chain.append(spread)
    if factor.dtype == like.dtype:
        return spread
    chain.append(Op("convert", like, (spread,)))
    return chain[-1]
