"""NumPy references of ops that move elements: pad, gather, scatter, windows, sort."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusionstitch.hlo.numeric import total_order_key

Array = np.ndarray
Attrs = Mapping[str, Any]
#: A called scalar computation, applied to whole arrays at once.
Body = Callable[..., tuple[Array, ...]]


def broadcast(x: Array, dims: tuple[int, ...], mapping: tuple[int, ...]) -> Array:
    """`x` in shape `dims`, its dimension i along `mapping[i]`."""
    order = np.argsort(mapping)
    expanded = [1] * len(dims)
    for dim in range(x.ndim):
        expanded[mapping[dim]] = x.shape[dim]
    return np.broadcast_to(x.transpose(order).reshape(expanded), dims)


def pad(x: Array, value: Array, attrs: Attrs) -> Array:
    """Interior padding first, then edges; a negative edge cuts."""
    low, high, interior = attrs["low"], attrs["high"], attrs["interior"]
    spread = [max(0, n + (n - 1) * i) for n, i in zip(x.shape, interior, strict=True)]
    full = np.full(
        [s + max(0, a) + max(0, b) for s, a, b in zip(spread, low, high, strict=True)], value
    )
    inside = tuple(
        slice(max(0, a), max(0, a) + s, i + 1)
        for a, s, i in zip(low, spread, interior, strict=True)
    )
    full[inside] = x
    cut = tuple(
        slice(max(0, -a), full.shape[d] - max(0, -b))
        for d, (a, b) in enumerate(zip(low, high, strict=True))
    )
    return full[cut]


def _window(x: Array, starts: Sequence[Array], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The slices of a dynamic slice: starts are clamped so that all of it lies inside."""
    begin = [
        min(max(int(s), 0), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)
    ]
    return tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))


def dynamic_slice(x: Array, starts: Sequence[Array], sizes: Sequence[int]) -> Array:
    """The slice of `sizes` at `starts`, moved to lie inside."""
    return x[_window(x, starts, sizes)]


def dynamic_update_slice(x: Array, update: Array, starts: Sequence[Array]) -> Array:
    """`x` with `update` written at `starts`, moved to lie inside."""
    result = x.copy()
    result[_window(x, starts, update.shape)] = update
    return result


def _index_vectors(indices: Array, vector_dim: int) -> Array:
    """`indices` with its index vectors in the last dimension."""
    if vector_dim == indices.ndim:
        return indices[..., None]
    return np.moveaxis(indices, vector_dim, -1)


def gather(x: Array, indices: Array, attrs: Attrs) -> Array:
    """Slices of `x` at clamped `indices`; attributes as in `hlo/semantics.py`."""
    sizes = attrs["slice_sizes"]
    vectors = _index_vectors(indices, attrs["index_vector_dim"])
    batch = vectors.shape[:-1]
    dropped = {*attrs["collapsed_slice_dims"], *attrs["operand_batching_dims"]}
    kept_dims = [d for d in range(x.ndim) if d not in dropped]
    rank = len(batch) + len(kept_dims)
    offset = attrs["offset_dims"]
    batch_dims = [d for d in range(rank) if d not in offset]

    def expand(values: Array, dims: Sequence[int]) -> Array:
        shape = [1] * rank
        for size, dim in zip(values.shape, dims, strict=True):
            shape[dim] = size
        return values.reshape(shape)

    at: list[Array] = []
    for dim in range(x.ndim):
        position: Any = 0
        if dim in attrs["start_index_map"]:
            start = vectors[..., attrs["start_index_map"].index(dim)]
            if start.dtype == np.uint64:  # the largest ones would become negative
                start = np.minimum(start, np.iinfo(np.int64).max)
            start = np.clip(start.astype(np.int64), 0, x.shape[dim] - sizes[dim])
            position = expand(start, batch_dims)
        elif dim in attrs["operand_batching_dims"]:
            which = attrs["start_indices_batching_dims"][attrs["operand_batching_dims"].index(dim)]
            which -= which > attrs["index_vector_dim"]
            position = expand(np.arange(x.shape[dim]), [batch_dims[which]])
        if dim in kept_dims:
            position = position + expand(np.arange(sizes[dim]), [offset[kept_dims.index(dim)]])
        at.append(position)
    return x[tuple(np.broadcast_arrays(*at))] if at else x.reshape([1] * rank)


def scatter(
    inputs: Sequence[Array], indices: Array, updates: Sequence[Array], attrs: Attrs, body: Body
) -> tuple[Array, ...]:
    """Update windows that do not fit whole are skipped; updates apply in row-major order."""
    results = [x.copy() for x in inputs]
    vectors = _index_vectors(indices, attrs["index_vector_dim"])
    dropped = {*attrs["inserted_window_dims"], *attrs["input_batching_dims"]}
    kept_dims = [d for d in range(inputs[0].ndim) if d not in dropped]
    window_dims = attrs["update_window_dims"]
    update_shape = updates[0].shape
    scatter_dims = [d for d in range(len(update_shape)) if d not in window_dims]
    sizes = {kept_dims[i]: update_shape[d] for i, d in enumerate(window_dims)}
    for position in np.ndindex(*vectors.shape[:-1]):
        begin = [0] * inputs[0].ndim
        for value, dim in zip(
            vectors[position], attrs["scatter_dims_to_operand_dims"], strict=True
        ):
            begin[dim] = int(value)
        for dim, which in zip(
            attrs["input_batching_dims"], attrs["scatter_indices_batching_dims"], strict=True
        ):
            begin[dim] = position[which - (which > attrs["index_vector_dim"])]
        ends = [b + sizes.get(d, 1) for d, b in enumerate(begin)]
        if min(begin, default=0) < 0 or any(
            e > n for e, n in zip(ends, results[0].shape, strict=True)
        ):
            continue
        target = tuple(
            slice(b, e) if d in sizes else b
            for d, (b, e) in enumerate(zip(begin, ends, strict=True))
        )
        source: list[Any] = [slice(None)] * len(update_shape)
        for dim, index in zip(scatter_dims, position, strict=True):
            source[dim] = index
        new = body(*(r[target] for r in results), *(u[tuple(source)] for u in updates))
        for result, value in zip(results, new, strict=True):
            result[target] = value
    return tuple(results)


def fold(
    inputs: Sequence[Array], inits: Sequence[Array], dims: tuple[int, ...], body: Body
) -> tuple[Array, ...]:
    """Reduces `dims` one element after the other with any body."""
    kept_dims = [d for d in range(inputs[0].ndim) if d not in dims]
    shape = [inputs[0].shape[d] for d in kept_dims]
    rows = [x.transpose([*dims, *kept_dims]).reshape([-1, *shape]) for x in inputs]
    results = tuple(np.broadcast_to(i, shape) for i in inits)
    for step in range(rows[0].shape[0]):
        results = body(*results, *(row[step] for row in rows))
    return results


def reduce_window(
    inputs: Sequence[Array], inits: Sequence[Array], attrs: Attrs, body: Body
) -> tuple[Array, ...]:
    """Reduces each window, one element after the other; what pads the inputs is no element."""
    edges: dict[str, Any] = {"low": attrs["low"], "high": attrs["high"]}
    edges["interior"] = tuple(d - 1 for d in attrs["base_dilation"])
    padded = [pad(x, i, edges) for x, i in zip(inputs, inits, strict=True)]
    there = pad(np.ones(inputs[0].shape, bool), np.asarray(False), edges)
    sizes, strides, dilation = attrs["size"], attrs["stride"], attrs["window_dilation"]
    counts = [
        max(0, (n - (size - 1) * d - 1) // stride + 1)
        for n, size, d, stride in zip(padded[0].shape, sizes, dilation, strides, strict=True)
    ]
    results = tuple(np.broadcast_to(i, counts) for i in inits)
    for offset in np.ndindex(*sizes):
        at = tuple(
            slice(o * d, o * d + (n - 1) * stride + 1, stride)
            for o, d, n, stride in zip(offset, dilation, counts, strides, strict=True)
        )
        joined = body(*results, *(x[at] for x in padded))
        results = tuple(np.where(there[at], x, r) for x, r in zip(joined, results, strict=True))
    return results


def sort(inputs: Sequence[Array], dim: int, less: Body) -> tuple[Array, ...]:
    """Stable: an element's position is the number of elements that are `less`, or equal and
    earlier."""
    rows = [np.moveaxis(x, dim, -1) for x in inputs]
    pairs = [side for row in rows for side in (row[..., :, None], row[..., None, :])]
    [before] = less(*pairs)
    before = np.broadcast_to(before, (*rows[0].shape, rows[0].shape[-1]))
    equal = ~before & ~np.swapaxes(before, -1, -2)
    earlier = np.triu(np.ones(before.shape[-2:], bool), 1)
    position = (before | (equal & earlier)).sum(axis=-2)
    order = np.argsort(position, axis=-1)
    return tuple(np.moveaxis(np.take_along_axis(row, order, -1), -1, dim) for row in rows)


def order_of_rows(x: Array, descending: bool) -> Array:
    """The numbers of the elements of each row in their total order: of equal ones the first comes
    first."""
    keys = x if x.dtype.kind in "biu" else total_order_key(x.astype(np.float64))
    if not descending:
        return np.argsort(keys, axis=-1, kind="stable")
    last = x.shape[-1] - 1
    return last - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]


def topk(x: Array, k: int, largest: bool) -> tuple[Array, Array]:
    """The first `k` of each row, sorted by the total order of its elements, and their numbers: of
    equal ones the first comes first."""
    order = order_of_rows(x, largest)[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)
