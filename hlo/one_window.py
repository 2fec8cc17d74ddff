"""Scatters of one window: an update of a slice, whose start is an index vector.

JAX lowers `x.at[2:-2, 1:].set(u)` to one, and XLA's GPU compiler makes an update of a slice of it.
"""

from __future__ import annotations

from fusionstitch.hlo.graph import Op


def window_of(op: Op) -> tuple[int, ...] | None:
    """The sizes of the window, along each dim of the operand, of a scatter with one index vector
    and a reducer that kernels know; None of any other op."""
    if op.opcode != "scatter" or op.shape.is_tuple or op.attrs["reducer"] is None:
        return None
    x, indices, updates = op.operands
    attrs = op.attrs
    if (
        indices.shape.rank != 1
        or attrs["index_vector_dim"] != 0
        or len(attrs["update_window_dims"]) != updates.shape.rank
        or attrs["input_batching_dims"]
    ):
        return None
    sizes = iter(updates.dims)
    inserted = attrs["inserted_window_dims"]
    return tuple(1 if d in inserted else next(sizes) for d in range(x.shape.rank))
