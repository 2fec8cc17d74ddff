"""Splitting reductions and dots that would leave most of the device idle into two.

    reduce(x[N, C], 0)  ->  reduce(reduce(reshape(x, [P, N / P, C]), 1), 0)
    dot(x[N], y[N])     ->  reduce(dot(reshape(x, [P, N / P]), reshape(y, [P, N / P])), 0)

The first part spreads over P times as many blocks, the second sums P partials after a grid barrier.
When P does not divide N, x is padded with the reducer's identity; inside a kernel neither the pad
nor the reshape moves anything. Where P exceeds the extent of the first of several summed dims,
those are taken as one. Shorter sums also round less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.annotations import annotated, like
from fusionstitch.codegen.loops.groups import LEAST_COLUMNS, MOST_COLUMNS
from fusionstitch.codegen.rewrite.bins import split_bins
from fusionstitch.codegen.rewrite.extents import (
    LEAST_PAIRED,
    inner_extents,
    is_strided,
    reduced_size,
)
from fusionstitch.codegen.rewrite.monoids import Monoid, in_order
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.schedule.bins import bins_parts
from fusionstitch.codegen.schedule.defaults import CARRIERS_PER_SM, DEFAULT_BLOCK, VECTOR_ELEMENTS
from fusionstitch.codegen.schedule.shares import shares
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.codegen.text.types import c_type
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Graph, Op, Shape, ids
from fusionstitch.hlo.literals import NUMPY_DTYPES

#: Reductions of fewer elements are not worth a grid barrier.
SMALL = 1 << 16
#: A thread should still have this many elements of its own.
LEAST_PER_PART = 64
#: Threads that share a part of a sum over pairs.
PAIRED_THREADS = 256
#: Parts of such a sum, at most.
MOST_PAIRED = 1 << 13
#: Threads that share a column of a coalesced column reduction in one block.
COLUMN_THREADS = 8
#: Rows that a thread should sum where it carries sums of columns from row to row.
LEAST_ROWS = 16
#: What its share of the blocks may be rounded up by to a divisor of a sum's rows.
ROUNDED = 1.25
#: The most threads that share an element of a dot.
DOT_THREADS = 32
#: A part of a dot should still have this many steps.
LEAST_STEPS = 1024
#: Loads of steps that are far from each other in memory are short and wait for each other. So a dot
#: of a long sum, much work and few results is split until its parts have no more than so many of
#: them, or fill the device so often. By the model products of 8 x 8 summed over a million rows take
#: 41 us so on an H200; with as many parts as any other dot has, 850.
FAR_SUM, FAR_WORK, FAR_RESULTS = 4096, 1 << 22, 1 << 13
FAR_STEPS, FAR_WAVES = 256, 32


@dataclass(frozen=True)
class Split:
    """How many parts a reduction or dot becomes, and the share of the device they are meant for."""

    parts: int
    share: float = 1.0


#: Parts that hold whole indices may be so many times fewer than would fill the device.
FEW = 2

#: What becomes several, by the id of its op.
Splits = Mapping[int, Split]


def find_splits(graph: Graph, device: Device, scale: float = 1.0) -> Splits:
    """The large, narrow reductions and dots of a region that should be split.

    `scale` is a factor on the number of parts; 0 splits none.
    """
    sums = [op for op in graph if _is_large_sum(op) and _row_parts(op, device, 1.0, 1.0) > 1]
    share_of = shares(graph, sums)
    found: dict[int, Split] = {}
    for op in graph.ops[:-1]:
        share = share_of.get(op.id, 1.0)
        if _visits_pairs(graph, op):
            target = _paired_parts(op, device, scale)
        else:
            target = parts(op, device, scale, share)
        if target > 1 and (count := possible_parts(op, target)) > 1:
            found[op.id] = Split(count, share)
    return found


def _visits_pairs(graph: Graph, op: Op) -> bool:
    """Whether a reduction visits far more elements than its inputs have: arithmetic is what it
    waits for."""
    if not _is_large_sum(op):
        return False
    read = (graph.ops[i] for i in ids(graph.reach[op.id]))
    arrays = (o for o in read if o.opcode == "parameter")
    return all(o.shape.size * LEAST_PAIRED <= op.operands[0].shape.size for o in arrays)


def split_reductions(graph: Graph, splits: Splits) -> Graph:
    """`graph` with each of `splits` as a reduction of partial results."""
    return rewrite(graph, lambda op: _split(op, splits[op.id]) if op.id in splits else None)


def can_split(op: Op) -> bool:
    """Whether an op is a dot, or a reduction whose parts may be joined in any order, of several
    summed elements."""
    known = op.opcode in ("dot", "bins")
    known |= op.opcode == "reduce" and op.attrs.get("reducer") is not None
    return known and reduced_size(op) > 1 and not in_order(op)


def possible_parts(op: Op, target: int) -> int:
    """At most `target` parts of which none is all padding; a reducer without an identity has
    nothing to pad with."""
    extents = _extents(op)
    extent = extents[0] if target <= extents[0] else math.prod(extents)
    count = -(-extent // -(-extent // target))
    if isinstance(op.attrs.get("reducer"), Monoid):
        count = next(n for n in range(count, 0, -1) if extent % n == 0)
    return count


def parts(op: Op, device: Device, scale: float = 1.0, share: float = 1.0) -> int:
    """Into how many parts a reduction or dot should be split (1: leave it) that has a `share` of
    the device to itself."""
    waves = 1
    if op.opcode == "bins":
        return bins_parts(op, device, scale)
    if op.opcode == "dot" and _is_large(op):
        threads, least = DOT_THREADS, LEAST_STEPS
        if _is_far(op):
            least, waves = FAR_STEPS, FAR_WAVES
    elif _is_large_sum(op):
        threads, least = _threads(op, device), LEAST_PER_PART
    else:
        return 1
    rows = _row_parts(op, device, scale, share)
    if rows > 1:
        return rows
    return _filling(op, device, threads, scale * waves, least)


def _paired_parts(op: Op, device: Device, scale: float) -> int:
    """Parts of a sum over pairs, if possible one for each of what is paired with all others: a
    thread then has that in registers."""
    count = _filling(op, device, PAIRED_THREADS, scale)
    extents = _extents(op)
    return extents[0] if len(extents) > 1 and 1 < count <= extents[0] <= MOST_PAIRED else count


def _filling(
    op: Op, device: Device, threads: int, scale: float, least: int = LEAST_PER_PART
) -> int:
    """Parts that fill the device so often, with so many threads a result and at `least` so many
    elements a part."""
    size = reduced_size(op)
    target = int(device.sm_count * device.memory_threads // max(1, op.shape.size * threads) * scale)
    if size < 2 * least or target < 2:
        return 1
    count = 1 << int(math.log2(min(target, size // least)))
    return _nested(count, _extents(op))


def _is_large_sum(op: Op) -> bool:
    known = op.opcode == "reduce" and op.attrs.get("reducer") is not None
    return known and not in_order(op) and _is_large(op)


def _is_large(op: Op) -> bool:
    """Whether a sum is worth a grid barrier."""
    size = reduced_size(op)
    return size > 1 and op.shape.size * size >= SMALL


def _is_far(op: Op) -> bool:
    """Whether the steps of a dot's long sum are far from each other in memory: it is over other
    than the minor-most dim of one of the operands."""
    size, results = reduced_size(op), op.shape.size
    if size < FAR_SUM or results > FAR_RESULTS or size * results < FAR_WORK:
        return False
    sides = zip(op.operands, (op.attrs["lhs_contract"], op.attrs["rhs_contract"]), strict=True)
    return any(_minor(operand) not in (*contracted, None) for operand, contracted in sides)


def _minor(op: Op) -> int | None:
    """The dim whose neighbours lie side by side; None for a single element."""
    return max((d for d, extent in enumerate(op.dims) if extent > 1), default=None)


def _columns(op: Op) -> int:
    """Elements of the dims that a reduction keeps after the last it sums over."""
    if op.opcode != "reduce":
        return 1
    return math.prod(op.operands[0].dims[max(op.attrs["dimensions"]) + 1 :])


def _row_parts(op: Op, device: Device, scale: float, share: float) -> int:
    """Parts of rows, one per block: a divisor of the rows where there is one of the right size, so
    that loops over the same rows can share the blocks. 1 if they would not fill their share."""
    columns = _columns(op)
    if not LEAST_COLUMNS <= columns <= MOST_COLUMNS:
        return 1
    rows_at_once = max(1, DEFAULT_BLOCK * VECTOR_ELEMENTS // columns)
    blocks = int(device.sm_count * CARRIERS_PER_SM * columns // op.shape.size * scale)
    if share < 1:
        blocks = int(blocks * share * ROUNDED)
    extents = _extents(op)
    rows = extents[0]
    most = min(blocks, math.prod(extents), reduced_size(op) // (LEAST_ROWS * rows_at_once))
    if most * op.shape.size < int(device.sm_count * share) * columns:
        return 1
    if most > rows:
        return _nested(most, extents)
    return next((n for n in range(most, most // 2, -1) if rows % n == 0), most)


def _threads(op: Op, device: Device) -> int:
    """Threads that share an element of a reduction."""
    if is_strided(op):
        return COLUMN_THREADS
    return min(reduced_size(op) // COLUMN_THREADS, device.memory_threads)


def _summed(op: Op) -> tuple[int, ...]:
    """The dim to split, of each operand: the major-most summed one with several elements."""
    dims = op.operands[0].dims
    if op.opcode == "reduce":
        return (next(d for d in sorted(op.attrs["dimensions"]) if dims[d] > 1),)
    pairs = zip(op.attrs["lhs_contract"], op.attrs["rhs_contract"], strict=True)
    return max(pairs, key=lambda pair: dims[pair[0]])


def _extents(op: Op) -> list[int]:
    """Extents of the dim to split and of the summed ones right after it."""
    if op.opcode == "bins":
        return list(inner_extents(op))
    dims, first = op.operands[0].dims, _summed(op)[0]
    last = first + 1
    while op.opcode == "reduce" and last in op.attrs["dimensions"]:
        last += 1
    return list(dims[first:last])


def _nested(count: int, extents: Sequence[int]) -> int:
    """At most `count` parts. Beyond the first of the extents, their number is such that a part
    holds whole indices of the later dims, so that loops over those dims stay as they are. The
    exception is where that leaves more than half of the device idle, as for a prime extent."""
    if count <= extents[0]:
        return count
    whole = 1
    for extent in extents:
        if whole * extent > count:
            whole *= max(d for d in range(1, count // whole + 1) if extent % d == 0)
            break
        whole *= extent
    return whole if FEW * whole >= count else count


def _as_one(op: Op, chain: list[Op]) -> Op:
    """The reduction `op` with the dim to split and the summed ones right after it as one."""
    source, axis, extents = op.operands[0], _summed(op)[0], _extents(op)
    last = axis + len(extents)
    dims = (*source.dims[:axis], math.prod(extents), *source.dims[last:])
    flat = Op("reshape", Shape(source.dtype, dims), (source,), name=f"{op.name}_rows")
    flat.source = op.source
    chain.append(flat)
    summed = [d for d in op.attrs["dimensions"] if not axis < d < last]
    moved = tuple(d if d <= axis else d - len(extents) + 1 for d in sorted(summed))
    attrs = {**op.attrs, "dimensions": moved}
    operands = (flat, *op.operands[1:])
    fields = "reduce", op.shape, operands, attrs, op.name, op.origin, op.called, op.source
    return like(Op(*fields), op)


def _split(op: Op, split: Split) -> list[Op]:
    if op.opcode == "bins":
        return split_bins(op, split.parts)
    count = split.parts
    part_of = op.id if split.share < 1 else None
    rows: list[Op] = []
    if count > _extents(op)[0]:
        op = _as_one(op, rows)
    axes = _summed(op)
    each = -(-op.operands[0].dims[axes[0]] // count)
    reducer = op.attrs["reducer"] if op.opcode == "reduce" else "add"
    # partial sums of narrow floats stay wide: they are rounded once, when complete
    wide = c_type(op.dtype).compute == "float" and reducer in ("add", "multiply")
    dtype = "f32" if wide else op.dtype
    rounded = dtype != op.dtype
    known = not isinstance(reducer, Monoid)
    zero = _neutral(reducer, dtype, op) if known else op.operands[1]
    chain = [zero, *rows] if known else rows
    operands = op.operands
    if op.opcode == "reduce" and rounded:
        operands = tuple(_widened(operand, op, chain) for operand in operands)
    sources = [
        _in_parts(source, axis, count, each, op, chain)
        for source, axis in zip(operands, axes, strict=False)
    ]
    if op.opcode == "reduce":
        partial, dim = _partial_reduce(op, sources[0], zero, axes[0], part_of)
        init = operands[1]
    else:
        partial, dim, init = _partial_dot(op, sources, axes, count, dtype), 0, zero
    final = Op(
        "reduce",
        Shape(dtype, op.dims),
        (partial, init),
        {"dimensions": (dim,), "reducer": reducer},
        f"{op.name}_sum" if rounded else op.name,
        None if rounded else op.origin,
        op.called if op.opcode == "reduce" and not rounded else (),
        op.source,
    )
    chain += [partial, final]
    if rounded:
        chain.append(Op("convert", op.shape, (final,), {}, op.name, op.origin, source=op.source))
    return chain


def _neutral(reducer: str, dtype: str, op: Op) -> Op:
    value = np.asarray(identity(reducer, dtype), NUMPY_DTYPES[dtype])
    return Op(
        "constant",
        Shape(dtype),
        attrs={"value": value},
        name=f"{op.name}_identity",
        source=op.source,
    )


def _widened(source: Op, op: Op, chain: list[Op]) -> Op:
    shape = Shape("f32", source.dims)
    chain.append(Op("convert", shape, (source,), name=f"{op.name}_wide", source=op.source))
    return chain[-1]


def _in_parts(source: Op, axis: int, count: int, each: int, op: Op, chain: list[Op]) -> Op:
    """`source` with `axis` as the two dims [count, each]; what makes it is appended to `chain`."""
    missing = count * each - source.dims[axis]
    if missing:
        value = chain[0]
        if value.dtype != source.dtype:
            value = _neutral("add", source.dtype, op)
            chain.append(value)
        source = _padded(source, value, axis, missing, op)
        chain.append(source)
    dims = source.dims
    shape = Shape(source.dtype, (*dims[:axis], count, each, *dims[axis + 1 :]))
    chain.append(Op("reshape", shape, (source,), name=f"{op.name}_parts", source=op.source))
    return chain[-1]


def _moved(dims: Iterable[int], axis: int) -> tuple[int, ...]:
    """Dims of the unsplit operand in the split one; `axis` itself is the second of its two."""
    return tuple(d if d < axis else d + 1 for d in dims)


def _partial_reduce(op: Op, source: Op, zero: Op, axis: int, part_of: int | None) -> tuple[Op, int]:
    """The reduction of each part, and the dim of its result that counts parts."""
    reduced = _moved(sorted(op.attrs["dimensions"]), axis)
    kept_dims = [d for d in range(source.shape.rank) if d not in reduced]
    attrs = {"dimensions": reduced, "reducer": op.attrs["reducer"]}
    partial = Op(
        "reduce",
        Shape(source.dtype, tuple(source.dims[d] for d in kept_dims)),
        (source, zero),
        attrs,
        f"{op.name}_split",
        called=op.called if source.dtype == op.dtype else (),
        source=op.source,
    )
    return annotated(partial, part_of=part_of), kept_dims.index(axis)


def _partial_dot(op: Op, sources: list[Op], axes: tuple[int, ...], count: int, dtype: str) -> Op:
    """The dot of each part: parts are the major-most batch dim."""
    attrs = dict(op.attrs)
    for side, axis in zip(("lhs", "rhs"), axes, strict=True):
        attrs[f"{side}_batch"] = (axis, *_moved(op.attrs[f"{side}_batch"], axis))
        attrs[f"{side}_contract"] = _moved(op.attrs[f"{side}_contract"], axis)
    shape = Shape(dtype, (count, *op.dims))
    return Op("dot", shape, tuple(sources), attrs, f"{op.name}_split", source=op.source)


def _padded(source: Op, value: Op, axis: int, missing: int, op: Op) -> Op:
    dims = list(source.dims)
    dims[axis] += missing
    none = (0,) * len(dims)
    high = tuple(missing if d == axis else 0 for d in range(len(dims)))
    return Op(
        "pad",
        Shape(source.dtype, tuple(dims)),
        (source, value),
        {"low": none, "high": high, "interior": none},
        f"{op.name}_padded",
        source=op.source,
    )
