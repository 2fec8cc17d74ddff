"""Scatters of few updates to few elements, as reductions of the updates that match.

    scatter-add(x, i, u)  ->  x + reduce-add(select(iota == i, u, 0)) over the updates

Every element of the result looks at every update: no atomics, the order is fixed, and updates that
lie outside match nothing. That is less work than a scatter's zeroed array, its own kernel and its
collisions as long as elements times updates are few.
"""

from __future__ import annotations

import math

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.text.expressions import FUNCTORS, identity
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Elements of the result times index vectors, at most. On an H200 the model prefers XLA's scatter
#: from half of that on, or less, and where it does not, both take as long (docs/limits.md).
MOST = 1 << 24
#: Index types whose values all fit into s32.
NARROW = frozenset({"s8", "u8", "s16", "u16", "s32"})


def comparable(op: Op) -> Verdict:
    """Whether a scatter may become a reduction of what matches."""
    attrs = op.attrs
    if op.shape.is_tuple or attrs["reducer"] not in FUNCTORS:
        return forbid(
            "Several updates may write the same element, and it has no reduction to combine them."
        )
    if attrs["input_batching_dims"]:
        return forbid("Several updates may write the same element of a batch.")
    x, _, updates = op.operands
    for w, d in _windows(op).items():
        scattered = d in attrs["scatter_dims_to_operand_dims"]
        if updates.dims[w] != (1 if scattered else x.dims[d]):
            return forbid("It scatters windows of several elements.")
    vectors = math.prod(updates.dims[w] for w in _batch_dims(op))
    if x.shape.size * vectors > MOST:
        return forbid(
            "Its updates are too many to be compared with every element.",
            elements=x.shape.size,
            updates=vectors,
        )
    return allow()


def expand_scatter(op: Op) -> list[Op] | None:
    """The ops that stand for such a scatter; None for every other op."""
    if op.opcode != "scatter" or not comparable(op):
        return None
    chain, attrs = Chain(op), op.attrs
    x, _, updates = op.operands
    reducer, scattered = attrs["reducer"], attrs["scatter_dims_to_operand_dims"]
    batch, windows = _batch_dims(op), _windows(op)
    # the updates before the dims that windows lie along: neighbouring elements are read together
    before = max(scattered, default=-1) + 1
    dims = (*x.dims[:before], *(updates.dims[w] for w in batch), *x.dims[before:])
    summed = tuple(range(before, before + len(batch)))
    along = dict(zip(batch, summed, strict=True)) | {
        w: d + len(batch) * (d >= before) for w, d in windows.items() if d not in scattered
    }
    kept_dims = tuple(w for w in range(updates.shape.rank) if w in along)
    if len(kept_dims) < updates.shape.rank:
        updates = chain.make("reshape", x.dtype, tuple(updates.dims[w] for w in kept_dims), updates)
    value = chain.make(
        "broadcast", x.dtype, dims, updates, dimensions=tuple(along[w] for w in kept_dims)
    )
    here = None
    for k, d in enumerate(scattered):
        index = _component(chain, op, k, dims, summed)
        iota = chain.like(index, "iota", dimension=d)
        equal = chain.compare(iota, "EQ", index)
        here = equal if here is None else chain.like(here, "and", here, equal)
    neutral = identity(reducer, x.dtype)
    if here is not None:
        value = chain.like(value, "select", here, value, chain.splat(neutral, value))
    init = chain.scalar(neutral, x.dtype)
    total = chain.like(x, "reduce", value, init, dimensions=summed, reducer=reducer)
    chain.ops[-1] = annotated(total, matches=True)
    chain.like(x, reducer, x, chain.ops[-1])
    return chain.done()


def _windows(op: Op) -> dict[int, int]:
    """Window dims of the updates and the dims of the result along which they lie."""
    dropped = (*op.attrs["inserted_window_dims"], *op.attrs["input_batching_dims"])
    kept_dims = [d for d in range(op.operands[0].shape.rank) if d not in dropped]
    return dict(zip(op.attrs["update_window_dims"], kept_dims, strict=True))


def _batch_dims(op: Op) -> list[int]:
    """The dims of the updates that count index vectors."""
    rank = op.operands[2].shape.rank
    return [w for w in range(rank) if w not in op.attrs["update_window_dims"]]


def _component(chain: Chain, op: Op, k: int, dims: tuple[int, ...], counted: tuple[int, ...]) -> Op:
    """Component k of every index vector, over `dims`, of which `counted` count the vectors, in a
    type that holds its values."""
    indices, vector_dim = op.operands[1], op.attrs["index_vector_dim"]
    if vector_dim < indices.shape.rank:
        bounds = {
            "start": tuple(k if d == vector_dim else 0 for d in range(indices.shape.rank)),
            "limit": tuple(k + 1 if d == vector_dim else n for d, n in enumerate(indices.dims)),
            "stride": (1,) * indices.shape.rank,
        }
        one = tuple(1 if d == vector_dim else n for d, n in enumerate(indices.dims))
        indices = chain.make("slice", indices.dtype, one, indices, **bounds)
        rest = tuple(n for d, n in enumerate(one) if d != vector_dim)
        indices = chain.make("reshape", indices.dtype, rest, indices)
    wide = "s32" if indices.dtype in NARROW else "s64"
    if indices.dtype != wide:
        indices = chain.make("convert", wide, indices.dims, indices)
    return chain.make("broadcast", wide, dims, indices, dimensions=counted)
