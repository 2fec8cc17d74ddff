"""Scatters of many updates to few elements, as bins that warps of a block keep to themselves.

    scatter-add(x, i, u)  ->  x + reduce-add(bins[P, K])   bins[p, k]: those of part p that match k

A part of the updates belongs to a block. Each of its warps goes through a stretch of them and joins
each with the element of its own that it matches, in shared memory; those of one warp that match the
same element are joined in a fixed order first. Then the block joins what its warps have, and a
reduction what the blocks have: without atomics of floats, so that sums repeat bit for bit, and
without waiting where many updates match one element.

In a region that is an op of its own, `bins`: of numbers [R, U], which say where in [K] an update
belongs, and values [R, U, W] it makes [R, K, W]. Other numbers belong nowhere.
"""

from __future__ import annotations

import math

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.scatter_sums import (
    WIDE,
    batch_dims,
    component,
    joins_elements,
    neutral_of,
    row_dims,
    windows_of,
)
from fusionstitch.codegen.text.types import C_TYPES, compute_bytes
from fusionstitch.costmodel.work import SECTOR_BYTES
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Bytes of the elements of one row, at most: a few warps of a multiprocessor each have as many.
MOST_BYTES = 1 << 15
#: Bytes of those that are not divided: eight warps of several blocks have as many.
FEW_BYTES = 1 << 12
#: Updates below which the zeroed array and the kernel of a scatter cost no more than bins.
LEAST_UPDATES = 1 << 14
#: Updates of each of several rows below which a warp would go few rounds.
LEAST_OF_ROW = 1 << 8


def fits_bins(op: Op) -> Verdict:
    """Whether bins may stand for a scatter."""
    if not (verdict := joins_elements(op)):
        return verdict
    if op.operands[0].dtype not in C_TYPES or not op.shape.size:
        return forbid("Kernels have no such elements.")
    rows, elements, width = _sizes(op)
    side = _side_by_side(elements, width, _dtype(op))
    if side is None:
        return forbid(
            "The result is too large for each warp to have a copy in shared memory.",
            elements=elements * width,
        )
    updates, rows = op.operands[2].shape.size, rows * (width // side)
    if not has_many_updates(op) or (rows > 1 and updates < LEAST_OF_ROW * rows):
        return forbid(
            "Its updates are too few for warps that go through a part of them each.",
            updates=updates,
            rows=rows,
        )
    return allow()


def has_many_updates(op: Op) -> bool:
    """Whether a scatter has enough of them for warps to go through a part each."""
    return not op.shape.is_tuple and op.operands[2].shape.size >= LEAST_UPDATES


def expand_bins(op: Op, exact: bool = False) -> list[Op] | None:
    """The ops that stand for such a scatter; None for every other op, and where each sum must be
    rounded (`exact`) for one whose sums are not."""
    if op.opcode != "scatter" or not fits_bins(op):
        return None
    if exact and op.operands[0].dtype in WIDE and op.attrs["reducer"] in ("add", "multiply"):
        return None
    chain, x = Chain(op), op.operands[0]
    reducer, dtype = op.attrs["reducer"], _dtype(op)
    rows, elements, width = _sizes(op)
    keys, values = _keys(chain, op), _ordered(chain, op)
    if values.dtype != dtype:
        values = chain.make("convert", dtype, values.dims, values)
    side, count = _side_by_side(elements, width, dtype), keys.dims[1]
    assert side is not None
    tiles = width // side
    if tiles > 1:  # each is a row of its own, with the numbers of the whole row
        values = chain.make("reshape", dtype, (rows, count, tiles, side), values)
        values = chain.in_order(values, (0, 2, 1, 3))
        values = chain.make("reshape", dtype, (rows * tiles, count, side), values)
        dims = (rows, tiles, count)
        keys = chain.make("broadcast", keys.dtype, dims, keys, dimensions=(0, 2))
        keys = chain.make("reshape", keys.dtype, (rows * tiles, count), keys)
    found = _bins(chain, keys, values, elements, reducer)
    if tiles > 1:
        found = chain.make("reshape", dtype, (rows, tiles, elements, side), found)
        found = chain.in_order(found, (0, 2, 1, 3))
    total = _as_result(chain, op, found)
    # an element without updates has what a type of fewer bits may not have: -inf
    wide = x if total.dtype == x.dtype else chain.make("convert", total.dtype, x.dims, x)
    total = chain.like(wide, reducer, wide, total)
    if total.dtype != x.dtype:
        chain.make("convert", x.dtype, x.dims, total)
    return chain.done()


def _bins(chain: Chain, keys: Op, values: Op, size: int, reducer: str) -> Op:
    rows, _, width = values.dims
    neutral = chain.scalar(neutral_of(reducer, values.dtype), values.dtype)
    dims = (rows, size, width)
    return chain.make("bins", values.dtype, dims, keys, values, neutral, size=size, reducer=reducer)


def split_bins(op: Op, parts: int) -> list[Op]:
    """Bins of each of so many parts of the updates, and the reduction that joins these."""
    chain = Chain(op)
    keys, values, neutral = op.operands
    rows, count, width = values.dims
    size, reducer = op.attrs["size"], op.attrs["reducer"]
    each = -(-count // parts)
    missing = parts * each - count
    if missing:
        keys = chain.extended(keys, 1, 0, missing, chain.scalar(-1, keys.dtype))
        values = chain.extended(values, 1, 0, missing, neutral)
    keys = chain.make("reshape", keys.dtype, (rows * parts, each), keys)
    values = chain.make("reshape", values.dtype, (rows * parts, each, width), values)
    found = _bins(chain, keys, values, size, reducer)
    apart = chain.make("reshape", values.dtype, (rows, parts, size, width), found)
    chain.like(op, "reduce", apart, neutral, dimensions=(1,), reducer=reducer)
    return chain.done()


def _dtype(op: Op) -> str:
    """The type in which elements are joined."""
    dtype = op.operands[0].dtype
    return WIDE.get(dtype, dtype)


def _sizes(op: Op) -> tuple[int, int, int]:
    """Rows of the result, elements of each, and what lies side by side for each element."""
    rows, elements, width = (math.prod(op.dims[d] for d in dims) for dims in _dims(op))
    return rows, elements, width


def _side_by_side(elements: int, width: int, dtype: str) -> int | None:
    """How much of what lies side by side a block has of each element: all of it if that is little,
    or no less than a sector of memory, so that many warps find room; None where that does not fit.
    """
    size = compute_bytes(dtype)
    most, least = MOST_BYTES // (elements * size), SECTOR_BYTES // size
    if elements * width * size <= FEW_BYTES:
        return width
    side = next((n for n in range(least, width) if width % n == 0), width)
    return side if side <= most else None


def _dims(op: Op) -> tuple[list[int], list[int], list[int]]:
    """The dims of the result that count rows, elements of a row, and what lies side by side there:
    those before what is scattered along, that itself, and those after it."""
    scattered = sorted(op.attrs["scatter_dims_to_operand_dims"])
    batching = op.attrs["input_batching_dims"]
    others = [d for d in range(op.shape.rank) if d not in scattered]
    last = max(scattered, default=-1)
    rows = [d for d in others if d in batching or d < last]
    return rows, scattered, [d for d in others if d not in rows]


def _keys(chain: Chain, op: Op) -> Op:
    """Which element of its row each update matches, [R, U]; -1 for one that matches none."""
    updates, row_of = op.operands[2], row_dims(op)
    before, scattered, _ = _dims(op)
    batch = batch_dims(op)
    counts = tuple(updates.dims[w] for w in batch)
    key, inside = chain.integers(0, counts), None
    for d in scattered:
        at = component(chain, op, op.attrs["scatter_dims_to_operand_dims"].index(d))
        low = chain.compare(at, "GE", chain.splat(0, at))
        here = chain.like(low, "and", low, chain.compare(at, "LT", chain.splat(op.dims[d], at)))
        inside = here if inside is None else chain.like(here, "and", inside, here)
        if at.dtype != key.dtype:
            at = chain.make("convert", key.dtype, counts, at)
        if d != scattered[0]:
            at = chain.like(
                at, "add", chain.like(key, "multiply", key, chain.integers(op.dims[d], counts)), at
            )
        key = at
    if inside is not None:
        key = chain.like(key, "select", inside, key, chain.integers(-1, counts))
    # rows with numbers of their own come first; those that are windows have the same
    own = sorted((n for n, w in enumerate(batch) if w in row_of), key=lambda n: row_of[batch[n]])
    key = chain.in_order(key, (*own, *(n for n in range(len(batch)) if n not in own)))
    rows = tuple(op.dims[d] for d in before)
    each = key.shape.size // math.prod(counts[n] for n in own)
    along = tuple(before.index(row_of[batch[n]]) for n in own)
    key = chain.make("reshape", key.dtype, (*(counts[n] for n in own), each), key)
    dims = (*rows, each)
    key = chain.make("broadcast", key.dtype, dims, key, dimensions=(*along, len(rows)))
    return chain.make("reshape", key.dtype, (math.prod(rows), each), key)


def _ordered(chain: Chain, op: Op) -> Op:
    """The updates as [R, U, W]."""
    updates = op.operands[2]
    before, scattered, after = _dims(op)
    dim_of = {d: w for w, d in (*row_dims(op).items(), *windows_of(op).items())}
    rows, beside = ([dim_of[d] for d in some if d in dim_of] for some in (before, after))
    counted = [w for w in batch_dims(op) if w not in rows]
    single = [dim_of[d] for d in scattered if d in dim_of]
    shape = tuple(math.prod(updates.dims[w] for w in some) for some in (rows, counted, beside))
    updates = chain.in_order(updates, (*rows, *counted, *beside, *single))
    return chain.make("reshape", updates.dtype, shape, updates)


def _as_result(chain: Chain, op: Op, found: Op) -> Op:
    """Bins [R, K, W] as the dims of the result."""
    order = [d for dims in _dims(op) for d in dims]
    found = chain.make("reshape", found.dtype, tuple(op.dims[d] for d in order), found)
    return chain.in_order(found, tuple(order.index(d) for d in range(len(order))))
