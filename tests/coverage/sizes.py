"""Scatters and gathers at sizes that programs have: what decides over them is their size.

Nothing of them is run: their shapes are planned for an H200 with the default scorer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tests.coverage.table import add_large


def _segments(join: Callable[..., Any], n: int) -> Callable[..., Any]:
    """Values computed from updates, joined by segment, and what is computed from the sums."""
    return lambda updates, places: jnp.tanh(join(jnp.exp(updates), places, n))


def _of_zeros(n: int, columns: int = 0) -> Callable[..., Any]:
    """The gradient of a lookup in a table of n rows."""
    shape = (n, columns) if columns else (n,)
    return lambda updates, places: jnp.zeros(shape).at[places].add(jnp.exp(updates)) * 3


def _one_per_row(updates: Any, places: Any) -> Any:
    rows, columns = places.shape[0], 32_000
    zeros = jnp.zeros((rows, columns))
    return zeros.at[jnp.arange(rows), places].add(jnp.exp(updates)) * 3


SUM, MOST = jax.ops.segment_sum, jax.ops.segment_max
Shape = tuple[int, ...]
#: op -> sizes -> (shape of the floats, shape of the places, function of both).
LARGE: Mapping[str, Mapping[str, tuple[Shape, Shape, Callable[..., Any]]]] = {
    "segment_sum": {
        "1,024 updates, 16 segments": ((1024,), (1024,), _segments(SUM, 16)),
        "1,024 rows of 64, 64 segments": ((1024, 64), (1024,), _segments(SUM, 64)),
        "65,536 updates, 10 segments": ((65_536,), (65_536,), _segments(SUM, 10)),
        "65,536 updates, 64 segments": ((65_536,), (65_536,), _segments(SUM, 64)),
        "65,536 updates, 256 segments": ((65_536,), (65_536,), _segments(SUM, 256)),
        "65,536 updates, 1,024 segments": ((65_536,), (65_536,), _segments(SUM, 1024)),
        "65,536 rows of 64, 1,024 segments": ((65_536, 64), (65_536,), _segments(SUM, 1024)),
        "1,000,000 updates, 16 segments": ((1_000_000,), (1_000_000,), _segments(SUM, 16)),
        "1,000,000 updates, 4,096 segments": ((1_000_000,), (1_000_000,), _segments(SUM, 4096)),
        "1,000,000 updates, 100,000 segments": (
            (1_000_000,), (1_000_000,), _segments(SUM, 100_000),
        ),
    },
    "segment_max": {
        "65,536 updates, 64 segments": ((65_536,), (65_536,), _segments(MOST, 64)),
        "65,536 updates, 1,024 segments": ((65_536,), (65_536,), _segments(MOST, 1024)),
    },
    "scatter add": {
        "one of 32,000 in each of 4,096 rows": ((4096,), (4096,), _one_per_row),
        "65,536 into 256 bins": ((65_536,), (65_536,), _of_zeros(256)),
        "512 rows of 64 into 1,000": ((512, 64), (512,), _of_zeros(1000, 64)),
        "8,192 rows of 512 into 32,000": ((8192, 512), (8192,), _of_zeros(32_000, 512)),
    },
    "gather": {
        "8,192 rows of 512 out of 32,000": (
            (32_000, 512), (8192,), lambda x, i: jax.nn.standardize(x[i]),
        ),
        "one of 32,000 in each of 4,096 rows": (
            (4096, 32_000), (4096,),
            lambda x, i: -jax.nn.log_softmax(x)[jnp.arange(4096), i].mean(),
        ),
    },
}  # fmt: skip
for op, written in LARGE.items():
    for sizes, (floats, places, fun) in written.items():
        args = jax.ShapeDtypeStruct(floats, "float32"), jax.ShapeDtypeStruct(places, "int32")
        add_large("places", op, fun, *args, sizes=sizes)
