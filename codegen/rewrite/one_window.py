"""A scatter of one window is an update of a slice.

    scatter(x, start, u) by f   ->   x with f(x[window], u) at the window, if that is inside of x

XLA drops a window that is not entirely inside: its elements are then unchanged.
"""

from __future__ import annotations

from fusionstitch.codegen.index_maps.maps import known
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import Op


def is_one_window(op: Op) -> bool:
    """Whether a scatter has one index vector and a reducer that kernels know."""
    if op.opcode != "scatter" or op.shape.is_tuple or op.attrs["reducer"] is None:
        return False
    _, indices, updates = op.operands
    attrs = op.attrs
    return (
        indices.shape.rank == 1
        and attrs["index_vector_dim"] == 0
        and len(attrs["update_window_dims"]) == updates.shape.rank
        and not attrs["input_batching_dims"]
    )


def update_window(op: Op) -> list[Op] | None:
    """The ops that stand for a scatter of one window."""
    if not is_one_window(op):
        return None
    x, indices, updates = op.operands
    attrs, chain = op.attrs, Chain(op)
    inserted = attrs["inserted_window_dims"]
    sizes = iter(updates.dims)
    window = tuple(1 if d in inserted else next(sizes) for d in range(x.shape.rank))
    starts: list[Op] = []
    inside: list[Op] = []
    for d, (n, size) in enumerate(zip(x.dims, window, strict=True)):
        if d not in attrs["scatter_dims_to_operand_dims"]:
            starts.append(chain.scalar(0, indices.dtype))
            continue
        k = attrs["scatter_dims_to_operand_dims"].index(d)
        part = chain.make(
            "slice", indices.dtype, (1,), indices, start=(k,), limit=(k + 1,), stride=(1,)
        )
        start = chain.make("reshape", indices.dtype, (), part)
        starts.append(start)
        range_ = known(start, ())
        if range_ is not None and range_.lo >= 0 and range_.hi <= n - size:
            continue
        for direction, bound in (("GE", 0), ("LE", n - size)):
            limit = chain.scalar(bound, indices.dtype)
            inside.append(chain.compare(start, direction, limit))
    value = updates
    if updates.dims != window:
        value = chain.make("reshape", updates.dtype, window, updates)
    if attrs["reducer"] != REPLACE or inside:
        before = chain.make("dynamic-slice", x.dtype, window, x, *starts, sizes=window)
        if attrs["reducer"] != REPLACE:
            value = chain.like(before, attrs["reducer"], before, value)
        for condition in inside:
            whole = chain.make("broadcast", "pred", window, condition, dimensions=())
            value = chain.like(before, "select", whole, value, before)
    chain.like(x, "dynamic-update-slice", x, value, *starts)
    return chain.done()
