"""Rules of updates of slices whose start is known, as `x.at[2:-2].set(u)` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.one_window import window_of
from fusionstitch.hlo.rewrite import Make, RuleBook, splat

UPDATES = RuleBook()
rule = UPDATES.rule


@rule("scatter")
def scatter_of_one_window(op: Op) -> Make | None:
    """scatter(x, start, u) by f -> dynamic-update-slice(x, f(x[window], u), start), for a constant
    start with which the window is inside of x"""
    window = window_of(op)
    if window is None:
        return None
    x, indices, updates = op.operands
    vector = _integers(indices)
    if vector is None:
        return None
    start = dict(zip(op.attrs["scatter_dims_to_operand_dims"], vector, strict=True))
    starts = [start.get(d, 0) for d in range(x.shape.rank)]
    if not _is_inside(starts, window, x.dims):
        return None
    of_window = Shape(x.dtype, window)
    value: Op | Make = updates
    if updates.dims != window:
        value = Make("reshape", (updates,), shape=of_window)
    if op.attrs["reducer"] != REPLACE:
        limits = tuple(i + n for i, n in zip(starts, window, strict=True))
        bounds = {"start": tuple(starts), "limit": limits, "stride": (1,) * len(window)}
        before = Make("slice", (x,), bounds, of_window)
        value = Make(op.attrs["reducer"], (before, value), shape=of_window)
    known = (_constant(i, indices.dtype) for i in starts)
    return Make("dynamic-update-slice", (x, value, *known))


@rule("dynamic-update-slice")
def update_of_one_value(op: Op) -> Make | None:
    """dynamic-update-slice(broadcast(c), u, start) -> pad(u, c), for constants"""
    x, update, *starts = op.operands
    value = splat(x)
    found = [_integers(start) for start in starts]
    if value is None or any(one is None for one in found):
        return None
    low = [
        min(max(int(one[0]), 0), n - size)
        for one, n, size in zip(found, x.dims, update.dims, strict=True)
        if one is not None
    ]
    sizes = zip(x.dims, update.dims, low, strict=True)
    edges = {
        "low": tuple(low),
        "high": tuple(n - size - i for n, size, i in sizes),
        "interior": (0,) * len(low),
    }
    return Make("pad", (update, _constant(value, op.dtype)), edges)


def _integers(op: Op) -> list[int] | None:
    """The elements of a constant vector or scalar; None of others."""
    if op.opcode == "constant":
        return [int(i) for i in op.attrs["value"].ravel()]
    value = splat(op)
    return None if value is None else [int(value)] * op.shape.size


def _constant(value: Any, dtype: str) -> Make:
    found = np.array(value, NUMPY_DTYPES[dtype])
    found.flags.writeable = False
    return Make("constant", (), {"value": found}, Shape(dtype, ()))


def _is_inside(starts: Sequence[int], window: Sequence[int], dims: Sequence[int]) -> bool:
    return all(0 <= i <= n - size for i, size, n in zip(starts, window, dims, strict=True))
