"""Scatters whose index vectors say which row an update is of, as scatters with rows of their own.

    scatter(x[B, K], [iota, i], u)  ->  scatter of each row: x[b] by i[b] and u[b]

XLA's GPU compiler writes batches of scatters as one, with the number of the batch in the index
vectors. Where the ops alone decide that number, no update leaves its row.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import constant, variable
from fusionstitch.codegen.index_maps.maps import known
from fusionstitch.codegen.index_maps.numbers import digit_of
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.scatter_sums import batch_dims, windows_of
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Row:
    """A component of the index vectors that is the number of a row: of dim `of` of the result. It
    counts the middle one of the three `digits` of dim `counted` among those that count vectors."""

    component: int
    of: int
    counted: int
    digits: tuple[int, int, int]


def row_by_index(op: Op) -> Row | None:
    """The first component of a scatter's index vectors that counts rows."""
    attrs = op.attrs
    if op.shape.is_tuple or attrs["reducer"] is None:
        return None
    x, indices, updates = op.operands
    vector_dim, scattered = attrs["index_vector_dim"], attrs["scatter_dims_to_operand_dims"]
    if vector_dim >= indices.shape.rank or len(scattered) < 2:
        return None
    sizes = [updates.dims[w] for w in batch_dims(op)]
    at = [variable(f"g{j}", size) for j, size in enumerate(sizes)]
    rows = {i - (i > vector_dim) for i in attrs["scatter_indices_batching_dims"]}
    for component, d in enumerate(scattered):
        index = known(indices, (*at[:vector_dim], constant(component), *at[vector_dim:]))
        digit = None if index is None else digit_of(index)
        beside = [updates.dims[w] for w, e in windows_of(op).items() if e == d]
        if digit is None or beside not in ([], [1]) or not digit[2] == x.dims[d] > 1:
            continue
        name, divisor, extent = digit
        counted = int(name[1:])
        more, left = divmod(sizes[counted], extent * divisor)
        if counted not in rows and not left:
            return Row(component, d, counted, (more, extent, divisor))
    return None


def in_rows(op: Op) -> list[Op] | None:
    """The ops that stand for such a scatter; None for every other op."""
    chain, found = Chain(op), op
    while found.opcode == "scatter" and (row := row_by_index(found)):
        found = _in_rows(chain, found, row)
    return chain.ops or None


def _in_rows(chain: Chain, op: Op, row: Row) -> Op:
    """The scatter whose index vectors lack that component."""
    op = _without_window(chain, op, row.of)
    attrs = op.attrs
    x, indices, updates = op.operands
    scattered, batching = attrs["scatter_dims_to_operand_dims"], attrs["input_batching_dims"]
    vector_dim, own = attrs["index_vector_dim"], batch_dims(op)
    left = [k for k in range(len(scattered)) if k != row.component]
    parts = [chain.part(indices, vector_dim, k, k + 1) for k in left]
    dims = tuple(len(left) if d == vector_dim else n for d, n in enumerate(indices.dims))
    indices = parts[0]
    if len(parts) > 1:
        indices = chain.make("concatenate", indices.dtype, dims, *parts, dimension=vector_dim)
    # the dim that counts rows becomes as many as it has digits
    i, w = row.counted + (row.counted >= vector_dim), own[row.counted]
    digits = [n for n in row.digits if n > 1]
    more, middle = len(digits) - 1, int(row.digits[0] > 1)
    indices = _split(chain, indices, i, digits)
    updates = _split(chain, updates, w, digits)

    def moved(dims: tuple[int, ...], at: int) -> tuple[int, ...]:
        return tuple(d + more * (d > at) for d in dims)

    others = moved(attrs["scatter_indices_batching_dims"], i)
    pairs = sorted([*zip(batching, others, strict=True), (row.of, i + middle)])
    changed = {
        **attrs,
        "update_window_dims": moved(attrs["update_window_dims"], w),
        "index_vector_dim": vector_dim + more * (vector_dim > i),
        "scatter_dims_to_operand_dims": tuple(scattered[k] for k in left),
        "inserted_window_dims": tuple(d for d in attrs["inserted_window_dims"] if d != row.of),
        "input_batching_dims": tuple(d for d, _ in pairs),
        "scatter_indices_batching_dims": tuple(i for _, i in pairs),
    }
    named = op.name, op.origin, op.called, op.source
    chain.ops.append(Op("scatter", op.shape, (x, indices, updates), changed, *named))
    return chain.ops[-1]


def _without_window(chain: Chain, op: Op, of: int) -> Op:
    """The scatter with a dim of its updates left out that is one element along dim `of`."""
    attrs, updates = op.attrs, op.operands[2]
    for w, d in windows_of(op).items():
        if d == of:
            windows = (v - (v > w) for v in attrs["update_window_dims"] if v != w)
            dims = (*updates.dims[:w], *updates.dims[w + 1 :])
            changed = {
                **attrs,
                "update_window_dims": tuple(windows),
                "inserted_window_dims": tuple(sorted((*attrs["inserted_window_dims"], of))),
            }
            updates = chain.make("reshape", updates.dtype, dims, updates)
            operands = (*op.operands[:2], updates)
            named = op.name, op.origin, op.called, op.source
            return Op("scatter", op.shape, operands, changed, *named)
    return op


def _split(chain: Chain, x: Op, d: int, digits: list[int]) -> Op:
    """`x` with a dim as several."""
    dims = (*x.dims[:d], *digits, *x.dims[d + 1 :])
    return x if dims == x.dims else chain.make("reshape", x.dtype, dims, x)
