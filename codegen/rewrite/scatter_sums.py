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
from fusionstitch.hlo.graph import FLOATS, FLOATS8, Op
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Elements of the result times index vectors, at most. On an H200 the model prefers XLA's scatter
#: from half of that on, or less, and where it does not, both take as long (docs/limits.md).
MOST = 1 << 24
#: The same where each row has elements and index vectors of its own, of so few elements: XLA's
#: scatter takes as long for each update, whatever it may collide with.
MOST_OF_ROWS, FEW_ELEMENTS = 1 << 30, 64
#: Floats that are joined in a wider type: some of them have no infinity to start a maximum from.
WIDE = dict.fromkeys(("bf16", "f16", *FLOATS8), "f32")
#: Index types whose values all fit into s32.
NARROW = frozenset({"s8", "u8", "s16", "u16", "s32"})


def joins_elements(op: Op) -> Verdict:
    """Whether each update of a scatter is joined with one element, by a reducer of ours."""
    if op.shape.is_tuple or op.attrs["reducer"] not in FUNCTORS:
        return forbid(
            "Several updates may write the same element, and it has no reduction to combine them."
        )
    if not _whole_windows(op):
        return forbid("It scatters windows of several elements.")
    return allow()


def comparable(op: Op) -> Verdict:
    """Whether a scatter may become a reduction of what matches."""
    if not (verdict := joins_elements(op)):
        return verdict
    x, _, updates = op.operands
    rows = row_dims(op)
    vectors = math.prod(updates.dims[w] for w in batch_dims(op) if w not in rows)
    of_row = x.shape.size // math.prod(x.dims[d] for d in rows.values())
    most = MOST_OF_ROWS if rows and of_row <= FEW_ELEMENTS else MOST
    if x.shape.size * vectors > most:
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
    rows, windows = row_dims(op), windows_of(op)
    batch = [w for w in batch_dims(op) if w not in rows]
    # the updates before the dims that windows lie along: neighbouring elements are read together
    before = max(scattered, default=-1) + 1
    dims = (*x.dims[:before], *(updates.dims[w] for w in batch), *x.dims[before:])
    summed = tuple(range(before, before + len(batch)))
    moved = {d: d + len(batch) * (d >= before) for d in range(x.shape.rank)}
    along = dict(zip(batch, summed, strict=True))
    along |= {w: moved[d] for w, d in rows.items()}
    counted = tuple(along[w] for w in batch_dims(op))
    along |= {w: moved[d] for w, d in windows.items() if d not in scattered}
    kept_dims = tuple(w for w in range(updates.shape.rank) if w in along)
    if len(kept_dims) < updates.shape.rank:
        updates = chain.make("reshape", x.dtype, tuple(updates.dims[w] for w in kept_dims), updates)
    value = _spread(chain, updates, dims, tuple(along[w] for w in kept_dims))
    here = None
    for k, d in enumerate(scattered):
        index = _spread(chain, component(chain, op, k), dims, counted)
        iota = chain.like(index, "iota", dimension=moved[d])
        equal = chain.compare(iota, "EQ", index)
        here = equal if here is None else chain.like(here, "and", here, equal)
    neutral = neutral_of(reducer, x.dtype)
    if here is not None:
        value = chain.like(value, "select", here, value, chain.splat(neutral, value))
    init = chain.scalar(neutral, x.dtype)
    total = chain.like(x, "reduce", value, init, dimensions=summed, reducer=reducer)
    chain.ops[-1] = annotated(total, matches=True)
    chain.like(x, reducer, x, chain.ops[-1])
    return chain.done()


def neutral_of(reducer: str, dtype: str) -> bool | int | float:
    """What an element without updates is joined with, which stays what it is: -0 as well."""
    return -0.0 if reducer == "add" and dtype in FLOATS | FLOATS8 else identity(reducer, dtype)


def _whole_windows(op: Op) -> bool:
    """Whether an update is one element along what is scattered, and all along the rest."""
    x, _, updates = op.operands
    extents = dict.fromkeys(op.attrs["inserted_window_dims"], 1)
    extents |= {d: updates.dims[w] for w, d in windows_of(op).items()}
    scattered = op.attrs["scatter_dims_to_operand_dims"]
    return all(n == (1 if d in scattered else x.dims[d]) for d, n in extents.items())


def windows_of(op: Op) -> dict[int, int]:
    """Window dims of the updates and the dims of the result along which they lie."""
    dropped = (*op.attrs["inserted_window_dims"], *op.attrs["input_batching_dims"])
    kept_dims = [d for d in range(op.operands[0].shape.rank) if d not in dropped]
    return dict(zip(op.attrs["update_window_dims"], kept_dims, strict=True))


def batch_dims(op: Op) -> list[int]:
    """The dims of the updates that count index vectors."""
    rank = op.operands[2].shape.rank
    return [w for w in range(rank) if w not in op.attrs["update_window_dims"]]


def row_dims(op: Op) -> dict[int, int]:
    """Those of them that count rows with index vectors of their own, and the dims of the result."""
    attrs, batch = op.attrs, batch_dims(op)
    vector_dim = attrs["index_vector_dim"]
    pairs = zip(attrs["input_batching_dims"], attrs["scatter_indices_batching_dims"], strict=True)
    return {batch[i - (i > vector_dim)]: d for d, i in pairs}


def component(chain: Chain, op: Op, k: int) -> Op:
    """Component k of every index vector, over the dims that count these, in a signed type that
    holds its values."""
    indices, vector_dim = op.operands[1], op.attrs["index_vector_dim"]
    if vector_dim < indices.shape.rank:
        indices = chain.part(indices, vector_dim, k, k + 1)
        rest = tuple(n for d, n in enumerate(indices.dims) if d != vector_dim)
        indices = chain.make("reshape", indices.dtype, rest, indices)
    wide = "s32" if indices.dtype in NARROW else "s64"
    return indices if indices.dtype == wide else chain.make("convert", wide, indices.dims, indices)


def _spread(chain: Chain, x: Op, dims: tuple[int, ...], along: tuple[int, ...]) -> Op:
    """`x` over `dims`, its own dims along these."""
    order = tuple(sorted(range(len(along)), key=along.__getitem__))
    at = tuple(along[d] for d in order)
    return chain.make("broadcast", x.dtype, dims, chain.in_order(x, order), dimensions=at)
