"""Ops that read and write at places the data decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.coverage.table import EVERY, FLOAT8, INTEGERS, add, draw, finished

FAMILY = "places"


def _places(dims: tuple[int, ...], most: int, dtype: str = "int32") -> np.ndarray:
    """Places of which some lie outside, some count from the end, some repeat."""
    return draw(dims, dtype, -most - 2, most + 2)


#: op -> form -> (shape of x, places, function of x and places).
READS: Mapping[str, Mapping[str, tuple[tuple[int, ...], np.ndarray, Callable[[Any, Any], Any]]]] = {
    "gather": {
        "embedding": ((29, 6), draw((5, 3), "int32", 0, 28), lambda x, i: x[i]),
        "take": ((7, 11), _places((4,), 11), lambda x, i: jnp.take(x, i, 1, mode="clip")),
        "fill": ((13, 3), _places((6,), 13), lambda x, i: jnp.take(x, i, 0)),
        "take_along_axis": (
            (9, 13),
            draw((9, 2), "int32", 0, 12),
            lambda x, i: jnp.take_along_axis(x, i, 1),
        ),
        "one per row": ((9, 13), _places((9,), 13), lambda x, i: x[jnp.arange(9), i]),
        "pairs": ((6, 7), _places((5, 2), 6), lambda x, i: x[i[:, 0], i[:, 1]]),
        "windows": (
            (12, 5),
            _places((4,), 12),
            lambda x, i: jax.vmap(lambda k: lax.dynamic_slice(x, (k, 1), (3, 4)))(i),
        ),
    },
    "dynamic_slice": {
        "inside": ((9, 14), _places((2,), 9), lambda x, i: lax.dynamic_slice(x, i, (3, 5))),
        "row": ((9, 14), _places((), 9), lambda x, i: lax.dynamic_index_in_dim(x, i)),
        "rank 4": (
            (3, 4, 2, 5),
            _places((4,), 3),
            lambda x, i: lax.dynamic_slice(x, i, (1, 3, 2, 2)),
        ),
    },
    "dynamic_update_slice": {
        "inside": (
            (9, 14),
            _places((2,), 9),
            lambda x, i: (
                lax.dynamic_update_slice(finished(lambda v: v)(x), x[:3, :5], i)
                if x.dtype != bool
                else lax.dynamic_update_slice(~x, x[:3, :5], i)
            ),
        ),
        "row": (
            (9, 14),
            _places((), 9),
            lambda x, i: lax.dynamic_update_index_in_dim(jnp.flip(x, 0), x[2], i, 0),
        ),
    },
}
for op, forms in READS.items():
    for number, (form, (dims, places, fun)) in enumerate(forms.items()):
        for place, dtype in enumerate((*EVERY, *FLOAT8)):
            if dtype in FLOAT8 and op == "dynamic_update_slice":
                continue
            if dtype == "float32" or place % len(forms) == number:
                add(FAMILY, op, dtype, finished(fun), draw(dims, dtype), places, note=form)
for dtype in INTEGERS:
    index = draw((7,), dtype, 0, 12)
    add(
        FAMILY,
        "gather",
        "float32",
        finished(lambda x, i: x[i]),
        draw((13, 5), "float32"),
        index,
        note=f"by {dtype}",
    )

Write = tuple[tuple[int, ...], np.ndarray, tuple[int, ...], Callable[[Any, Any, Any], Any]]
#: op -> form -> (shape of x, places, shape of updates, function of all three).
WRITES: Mapping[str, Mapping[str, Write]] = {
    "scatter": {
        "one per row": (
            (9, 13), _places((9,), 13), (9,),
            lambda x, i, u: x.at[jnp.arange(9), i].set(u),
        ),
        "one element": ((17,), _places((), 17), (), lambda x, i, u: x.at[i].set(u)),
        "rows": (
            (9, 5), np.array([7, 2, 4], np.int32), (3, 5),
            lambda x, i, u: x.at[i].set(u, unique_indices=True),
        ),
    },
    "scatter add": {
        "one per row": (
            (9, 13), _places((9,), 13), (9,),
            lambda x, i, u: x.at[jnp.arange(9), i].add(u),
        ),
        "rows": ((9, 5), _places((6,), 9), (6, 5), lambda x, i, u: x.at[i].add(u)),
        "bins": (
            (6,), draw((120,), "int32", -1, 7), (120,), lambda x, i, u: x.at[i].add(u),
        ),
        "embedding": (
            (290, 7), draw((80,), "int32", 0, 289), (80, 7), lambda x, i, u: x.at[i].add(u),
        ),
    },
    "scatter max": {
        "one per row": (
            (9, 13), _places((9,), 13), (9,),
            lambda x, i, u: x.at[jnp.arange(9), i].max(u),
        ),
        "rows": ((9, 5), _places((6,), 9), (6, 5), lambda x, i, u: x.at[i].max(u)),
    },
    "scatter multiply": {
        "rows": ((9, 5), _places((6,), 9), (6, 5), lambda x, i, u: x.at[i].multiply(u)),
    },
    "segment_sum": {
        "few": (
            (), draw((60,), "int32", 0, 7), (60, 5),
            lambda x, i, u: jax.ops.segment_sum(u * x, i, 8),
        ),
        "sorted": (
            (), np.sort(draw((60,), "int32", 0, 7)), (60,),
            lambda x, i, u: jax.ops.segment_sum(u * x, i, 8, indices_are_sorted=True),
        ),
    },
    "segment_max": {
        "few": (
            (), draw((60,), "int32", 0, 7), (60, 3),
            lambda x, i, u: jax.ops.segment_max(u * x, i, 8),
        ),
    },
}  # fmt: skip
for op, written in WRITES.items():
    for dtype in ("float32", "bfloat16", "int32", "uint8", "float64"):
        for number, (form, (dims, places, rows, fun)) in enumerate(written.items()):
            if dtype in ("float32", "int32") or number == 0:
                args = draw(dims, dtype, 1, 4), places, draw(rows, dtype, 0, 3)
                add(FAMILY, op, dtype, finished(fun), *args, note=form)
