"""Chains of two dots, whose values in between may be too many to hold: streamed, block by block.

    s[R, C] = a[R, k] b[C, k]    p = f(s), elementwise ops and reductions along C    p[R, C] v[C, n]

A block of threads has rows of `a` and of the result in registers. It walks along C. The next few
columns of `b` and `v` go to shared memory, their part of s is computed, and the results of its
reductions and of the second dot are added up (codegen/dots/online.py). Nothing of the size of s is
ever stored; every op in between is computed once per element, and what the operands are computed
from once per block of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.rewrite.extents import reduced_size
from fusionstitch.codegen.rewrite.factors import take_factor
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scales import NARROW, Factor, may_leave
from fusionstitch.codegen.rewrite.sizes import most
from fusionstitch.codegen.text.types import C_TYPES
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import FLOATS, Graph, Op, Shape
from fusionstitch.hlo.semantics import Kind, kind_of

#: Columns from which on a row is streamed: of shorter ones, half of a step on tensor cores and more
#: would be empty.
LEAST_COLUMNS = 16
#: Elements summed into one of s, and results per row, that fit into registers.
MOST_DEPTH = MOST_RESULTS = 128
#: Rows per multiprocessor from which on a warp for every 16 of them takes less than teams of lanes.
MANY_ROWS = 4


@dataclass(frozen=True)
class Chain:
    """A dot that sums along elements given by others: the ids of those, and of the ops between."""

    dot: Op
    products: frozenset[int]
    between: frozenset[int]


def find_chains(graph: Graph, device: Device) -> list[Chain]:
    """The dots of `graph` that sum along elements which dots give, and can be streamed: by tensor
    cores."""
    found: list[Chain] = []
    if not device.float_tensors:
        return found
    given: set[int] = set()
    for op in graph.ops[:-1]:
        if not _sums(op) or op.id in given:
            continue
        for operand in op.operands:
            products, passed = _made_of(operand)
            enough = operand.shape.size >= MANY_ROWS * device.sm_count * reduced_size(op)
            if products and enough:
                found.append(Chain(op, frozenset(products), frozenset(passed)))
                given |= products
                break
    return found


def find_streams(graph: Graph, device: Device) -> Stream:
    """All chains of `graph` as one."""
    chains = find_chains(graph, device)
    none = frozenset[int]()
    return Stream(
        none.union(*(chain.products for chain in chains)),
        frozenset(chain.dot.id for chain in chains),
        none.union(*(chain.between for chain in chains)),
    )


def _sums(op: Op) -> bool:
    return _multiplies_floats(op) and reduced_size(op) >= LEAST_COLUMNS


def _multiplies_floats(op: Op) -> bool:
    if op.opcode != "dot" or op.attrs.get("precision") == "highest":
        return False
    kinds = [C_TYPES.get(x.dtype) for x in (op, *op.operands)]  # complex ones have none
    return all(kind is not None and kind.compute == "float" for kind in kinds)


def _made_of(operand: Op) -> tuple[set[int], set[int]]:
    """The dots of which an operand of a dot holds the elements, and the ops on the way."""
    products: set[int] = set()
    passed: set[int] = set()
    todo = [operand]
    while todo:
        op = todo.pop()
        if op.id in passed or op.id in products:
            continue
        kind = kind_of(op.opcode)
        if kind is Kind.DOT:
            if op.shape.size != operand.shape.size:
                continue
            if not _multiplies_floats(op) or reduced_size(op) > MOST_DEPTH:
                return set(), set()
            products.add(op.id)
        elif kind in (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCTION):
            if kind is not Kind.REDUCTION:
                passed.add(op.id)
            todo.extend(op.operands)
    return products, passed


def without_factors(graph: Graph, stream: Stream) -> Graph:
    """`graph` with the dots of a stream free of factors that do not vary along what they sum.

    A softmax divides by a sum that is known after the row; its dot need not wait for it then. What
    it sums without the factors may be beyond f16, so it is one of f32 until they are applied.
    """
    if not stream.sums:
        return graph
    return rewrite(graph, lambda op: _without_factors(op) if op.id in stream.sums else None)


def _without_factors(dot: Op) -> list[Op] | None:
    if dot.opcode != "dot":
        return None
    chain: list[Op] = []
    outside: list[tuple[str, Op | None]] = []
    operands = list(dot.operands)
    wide = Shape("f32" if dot.dtype in NARROW else dot.dtype, dot.dims)
    for side, contracted in enumerate((dot.attrs["lhs_contract"], dot.attrs["rhs_contract"])):
        kept_dims = [d for d in range(operands[side].shape.rank) if d not in contracted]
        dimensions = _dims_of(dot, side, kept_dims)
        source, types = _unconverted(operands[side])
        rest, factors = _free(source, kept_dims, contracted, operands[1 - side], types, chain)
        if not factors:
            continue
        for opcode, factor in factors:
            outside.append(
                (opcode, _spread(factor[0], wide, dimensions, chain) if factor else None)
            )
        source = rest
        for dtype in reversed(types):
            source = Op("convert", Shape(dtype, source.dims), (source,))
            chain.append(source)
        operands[side] = source
    if not outside:
        return None
    value = Op("dot", wide, tuple(operands), dot.attrs, f"{dot.name}_sum")
    chain.append(value)
    for opcode, factor_op in outside:
        parts = (value,) if factor_op is None else (value, factor_op)
        value = Op(opcode, wide, parts, name=f"{dot.name}_{opcode}")
        chain.append(value)
    if wide != dot.shape:
        value = Op("convert", dot.shape, (value,))
        chain.append(value)
    value.name, value.origin = dot.name, dot.origin
    for made in chain:
        made.source = dot.source
    return chain


def _free(
    source: Op,
    kept_dims: Sequence[int],
    contracted: Sequence[int],
    other: Op,
    types: Sequence[str],
    chain: list[Op],
) -> tuple[Op, list[Factor]]:
    """An operand of a dot with `other` without the outermost of its factors, as many of them as may
    leave it, and those from the inside out. `types` are what it is converted to."""
    shape = Shape(source.dtype, tuple(source.dims[d] for d in kept_dims))
    narrowed = source.dtype not in NARROW and not NARROW.isdisjoint(types)
    free: tuple[Op, list[Factor]] = (source, [])
    made: list[Op] = []
    rest, factors = free
    while True:
        summed = Op("reduce", shape, (rest,), {"dimensions": tuple(contracted)})
        found = take_factor(rest, summed, made)
        if found is None:
            return free
        rest, opcode, factor = found
        factors = [(opcode, factor), *factors]
        if (not narrowed or most(rest) <= 1) and may_leave(factors, rest, other):
            free = rest, factors
            chain += made
            made.clear()


def _unconverted(value: Op) -> tuple[Op, list[str]]:
    """What a float is converted from, and the types it passes, the last one first."""
    types: list[str] = []
    while value.opcode == "convert" and value.operands[0].dtype in FLOATS:
        types.append(value.dtype)
        value = value.operands[0]
    return value, types


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
