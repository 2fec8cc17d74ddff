"""Reductions over windows: cumulative ones and pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.coverage.table import FLOATS, INTEGERS, NUMBERS, add, draw, finished

FAMILY = "windows"

CUMULATIVE: Mapping[str, tuple[Callable[..., Any], Sequence[str]]] = {
    "cumsum": (lax.cumsum, NUMBERS),
    "cumprod": (lax.cumprod, ("float32", "int32", "float64")),
    "cummax": (lax.cummax, ("float32", "int32", "bfloat16")),
    "cummin": (lax.cummin, ("float32", "uint8")),
    "cumlogsumexp": (lax.cumlogsumexp, ("float32",)),
}
_WHERE = (((5, 37), 1, False), ((40, 6), 0, False), ((3, 50), 1, True), ((131,), 0, False))
for op, (fun, dtypes) in CUMULATIVE.items():
    for number, dtype in enumerate(dtypes):
        for place, (dims, axis, reverse) in enumerate(_WHERE):
            if dtype == "float32" or place == number % len(_WHERE):
                low, high = (0.8, 1.2) if op == "cumprod" and dtype in FLOATS else (-2, 2)
                cumulative = finished(lambda x, f=fun, a=axis, r=reverse: f(x, a, r))
                add(FAMILY, op, dtype, cumulative, draw(dims, dtype, low, high))
add(FAMILY, "cumsum", "float32", finished(lambda x: lax.cumsum(x, 1)), draw((2, 3001), "float32"))


def _pool(
    init: float, body: Callable[[Any, Any], Any], size: Sequence[int], **more: Any
) -> Callable[[Any], Any]:
    keywords = {"window_strides": (1,) * len(size), "padding": "VALID", **more}

    def pool(x: Any) -> Any:
        start = init
        if not jnp.issubdtype(x.dtype, jnp.floating) and np.isinf(init):
            start = jnp.iinfo(x.dtype).min
        return lax.reduce_window(x, np.asarray(start, x.dtype), body, tuple(size), **keywords)

    return pool


POOLS: Mapping[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "sum": ((9, 14), _pool(0, lax.add, (2, 3))),
    "strides": ((9, 14), _pool(0, lax.add, (3, 3), window_strides=(2, 3))),
    "same": ((9, 14), _pool(0, lax.add, (3, 3), padding="SAME")),
    "maximum": ((2, 8, 8, 3), _pool(-np.inf, lax.max, (1, 2, 2, 1), window_strides=(1, 2, 2, 1))),
    "dilated": ((20, 5), _pool(0, lax.add, (3, 1), window_dilation=(4, 1))),
    "spread": ((7, 5), _pool(0, lax.add, (3, 2), base_dilation=(2, 3))),
    "padded": ((11,), _pool(0, lax.add, (5,), padding=((4, 2),))),
    "product": ((30,), _pool(1, lax.mul, (4,))),
    "long": ((300,), _pool(0, lax.add, (64,))),
}
for number, (form, (dims, fun)) in enumerate(POOLS.items()):
    for place, dtype in enumerate(("float32", "bfloat16", "int32", "float64", "uint8", "float16")):
        if dtype == "float32" or place == number % 5 + 1:
            x = draw(dims, dtype, 0.5, 2)
            add(FAMILY, "reduce_window", dtype, finished(lambda x, f=fun: f(x + x)), x, note=form)
for dtype in INTEGERS[:3]:
    scanned = finished(lambda x: lax.associative_scan(lax.add, x, axis=0))
    add(FAMILY, "associative_scan", dtype, scanned, draw((21, 3), dtype))
for dtype in FLOATS:
    scanned = finished(lambda x: lax.associative_scan(jnp.maximum, x, axis=1))
    add(FAMILY, "associative_scan", dtype, scanned, draw((3, 21), dtype))
