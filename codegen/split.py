"""Splitting reductions that would leave most of the device idle into two.

    reduce(x[N, C], 0)  ->  reduce(reduce(reshape(x, [P, N / P, C]), 1), 0)

The first part spreads over P times as many blocks, the second sums P partials behind a grid
barrier. When P does not divide N, x is padded with the reducer's identity; inside a kernel
neither the pad nor the reshape moves anything.
"""

from __future__ import annotations

import math

import numpy as np

from codegen.expressions import identity
from codegen.groups import BUSY_THREADS
from codegen.region import rewrite
from codegen.stages import reduced_size
from costmodel.devices import Device
from hlo.graph import Graph, Op, Shape
from hlo.literals import NUMPY_DTYPES

#: Reductions of fewer elements are not worth a grid barrier.
SMALL = 1 << 16
#: A thread should still have this many elements of its own.
LEAST_PER_PART = 64
#: Threads that share a column of a coalesced column reduction in one block.
COLUMN_THREADS = 8


def split_reductions(graph: Graph, device: Device) -> Graph:
    """`graph` with each large, narrow reduction as a reduction of partial reductions."""
    return rewrite(graph, lambda op: _split(op, device))


def parts(op: Op, device: Device) -> int:
    """Into how many parts a reduction should be split (1: leave it)."""
    if op.opcode != "reduce" or op.shape.is_tuple or op.attrs["reducer"] is None:
        return 1
    source, size = op.operands[0], reduced_size(op)
    if source.shape.size < SMALL or size < 2 * LEAST_PER_PART:
        return 1
    minor = max((d for d, extent in enumerate(source.dims) if extent > 1), default=0)
    by_row = minor in op.attrs["dimensions"]
    threads = min(size // COLUMN_THREADS, BUSY_THREADS) if by_row else COLUMN_THREADS
    wanted = device.sm_count * BUSY_THREADS // max(1, op.shape.size * threads)
    if wanted < 2:
        return 1
    count = 1 << int(math.log2(min(wanted, size // LEAST_PER_PART)))
    return min(count, source.dims[_split_dim(op)])


def _split_dim(op: Op) -> int:
    """The major-most reduced dim with more than one element."""
    dims = op.operands[0].dims
    return next(d for d in sorted(op.attrs["dimensions"]) if dims[d] > 1)


def _split(op: Op, device: Device) -> list[Op] | None:
    count = parts(op, device)
    if count < 2:
        return None
    source, init = op.operands
    axis = _split_dim(op)
    chain: list[Op] = []
    each = -(-source.dims[axis] // count)
    count = -(-source.dims[axis] // each)  # no part is all padding
    missing = each * count - source.dims[axis]
    dtype = NUMPY_DTYPES[op.dtype]
    zero = Op(
        "constant",
        Shape(op.dtype),
        attrs={"value": np.asarray(identity(op.attrs["reducer"], op.dtype), dtype)},
        name=f"{op.name}_identity",
        source=op.source,
    )
    if missing:
        source = _padded(source, zero, axis, missing, op)
        chain += [zero, source]
    dims = source.dims
    shape = Shape(source.dtype, (*dims[:axis], count, each, *dims[axis + 1 :]))
    source = Op("reshape", shape, (source,), name=f"{op.name}_parts", source=op.source)
    reduced = {d if d < axis else d + 1 for d in op.attrs["dimensions"]}
    kept = [d for d in range(shape.rank) if d not in reduced]
    if not missing:
        chain.append(zero)
    partial = Op(
        "reduce",
        Shape(op.dtype, tuple(shape.dims[d] for d in kept)),
        (source, zero),
        {"dimensions": tuple(sorted(reduced)), "reducer": op.attrs["reducer"]},
        f"{op.name}_split",
        called=op.called,
        source=op.source,
    )
    final = Op(
        "reduce",
        op.shape,
        (partial, init),
        {"dimensions": (kept.index(axis),), "reducer": op.attrs["reducer"]},
        op.name,
        op.origin,
        op.called,
        op.source,
    )
    return [*chain, source, partial, final]


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
