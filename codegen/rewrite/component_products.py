"""Products of components and a small matrix, as sums of components times elements of it.

    dot(stack(x, y, z), m[3, 2])    ->    x * m[0, 0] + y * m[1, 0] + z * m[2, 0],  ... m[., 1]

A loop over the items has their components in registers (codegen/rewrite/sunk.py); the elements of
the matrix are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.joined import MOST_PIECES
from fusionstitch.hlo.graph import Op, Shape

#: Elements of a matrix of which each is a factor of its own.
SMALL_MATRIX = 1 << 10
#: Types whose sums are computed in f32.
_NARROW = ("bf16", "f16")


def columns(op: Op, side: int, matrix: Op) -> tuple[int, Shape, list[tuple[int, ...]]] | None:
    """The pieces of a dot whose operand number `side` is summed over its components, if the other
    operand is a `matrix`. Gives the dim of the result along which they lie, the shape of one, and
    the index in the matrix of the factor of its first component. None otherwise."""
    contract, batch = (_both(op, what) for what in ("contract", "batch"))
    theirs = 1 - side
    if len(contract[theirs]) != 1 or batch[theirs] or matrix.shape.size > SMALL_MATRIX:
        return None
    free = [d for d in range(matrix.shape.rank) if d != contract[theirs][0]]
    if len(free) > 1 or (free and matrix.dims[free[0]] > MOST_PIECES):
        return None
    if not free:
        return 0, op.shape, [(0,)]
    axis = _result_dims(op, theirs)[free[0]]
    shape = Shape(op.dtype, tuple(1 if d == axis else n for d, n in enumerate(op.dims)))
    starts = (tuple(n if d in free else 0 for d in range(2)) for n in range(matrix.dims[free[0]]))
    return axis, shape, list(starts)


def product(
    op: Op, side: int, components: Sequence[Op], matrix: Op, shape: Shape, start: Sequence[int]
) -> list[Op]:
    """The ops of one piece, its value last: `components` times what begins at `start` in the matrix
    and goes on along the dim that is summed over."""
    [axis], [summed] = (_both(op, "contract")[n] for n in (side, 1 - side))
    result_dims, wide = _result_dims(op, side), "f32" if op.dtype in _NARROW else op.dtype
    chain = Chain(op)
    make, dims = chain.make, shape.dims

    def spread(value: Op, kept_dims: Sequence[int], to: Sequence[int]) -> Op:
        """A value without its dims of one element but those that are `kept_dims`, along others."""
        value = make("reshape", value.dtype, tuple(value.dims[d] for d in kept_dims), value)
        value = make("broadcast", value.dtype, dims, value, dimensions=tuple(to))
        return value if value.dtype == wide else make("convert", wide, dims, value)

    total: Op | None = None
    for number, one in enumerate(components):
        kept_dims = [d for d in range(one.shape.rank) if d != axis]
        item = spread(one, kept_dims, [result_dims[d] for d in kept_dims])
        at = tuple(number if d == summed else n for d, n in enumerate(start))
        limits = {"start": at, "limit": tuple(n + 1 for n in at), "stride": (1,) * len(at)}
        factor = spread(make("slice", matrix.dtype, (1,) * len(at), matrix, **limits), (), ())
        term = make("multiply", wide, dims, item, factor)
        total = term if total is None else make("add", wide, dims, total, term)
    assert total is not None
    if wide != op.dtype:
        make("convert", op.dtype, dims, total)
    return chain.ops


def _both(op: Op, what: str) -> list[tuple[int, ...]]:
    """An attribute of both operands of a dot."""
    return [tuple(op.attrs[f"{side}_{what}"]) for side in ("lhs", "rhs")]


def _result_dims(op: Op, side: int) -> dict[int, int]:
    """Which dim of a dot's result each dim of an operand is that is not summed over."""
    contract, batch = (_both(op, what) for what in ("contract", "batch"))
    free = [
        [d for d in range(o.shape.rank) if d not in (*batch[n], *contract[n])]
        for n, o in enumerate(op.operands)
    ]
    first = len(batch[0]) + (len(free[0]) if side else 0)
    return {d: n for n, d in enumerate(batch[side])} | {
        d: first + n for n, d in enumerate(free[side])
    }
