"""Reductions by any body, of one value or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.coverage.table import FLOATS, INTEGERS, NUMBERS, add, any_bits, draw, finished

FAMILY = "reductions"

#: Shapes and the dims summed over.
OVER: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((7, 33), (1,)), ((65, 9), (0,)), ((5, 13), (0, 1)), ((3, 17, 5), (1,)), ((2, 3, 259), (2,)),
    ((4, 6, 5, 7), (0, 2)), ((127,), (0,)), ((9, 3), (1,)), ((2, 5, 3, 4), (1, 2, 3)),
    ((1, 40), (0,)), ((2, 2, 3, 2, 1, 2, 2, 3), (1, 2, 6)), ((1031,), (0,)), ((300, 3), (0,)),
)  # fmt: skip
_turn = 0


def over() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The next of `OVER`."""
    global _turn
    _turn += 1
    return OVER[_turn % len(OVER)]


ONE: Mapping[str, tuple[Callable[..., Any], Sequence[str]]] = {
    "reduce add": (lax.reduce_sum, NUMBERS),
    "reduce multiply": (lax.reduce_prod, NUMBERS),
    "reduce maximum": (lax.reduce_max, (*NUMBERS, "bool")),
    "reduce minimum": (lax.reduce_min, (*NUMBERS, "bool")),
    "reduce and": (lax.reduce_and, (*INTEGERS, "bool")),
    "reduce or": (lax.reduce_or, (*INTEGERS, "bool")),
    "reduce xor": (lax.reduce_xor, (*INTEGERS, "bool")),
}
for op, (fun, dtypes) in ONE.items():
    for dtype in dtypes:
        dims, axes = over()
        product = op == "reduce multiply" and dtype in FLOATS
        x = draw(dims, dtype, 0.9, 1.1) if product else draw(dims, dtype)
        if dtype in INTEGERS:
            x = any_bits(dims, dtype)
        add(FAMILY, op, dtype, finished(lambda x, f=fun, a=axes: f(x, a)), x)
for dims, axes in OVER:
    note = f"{'x'.join(map(str, dims))} over {'x'.join(map(str, axes))}"
    fun = finished(lambda x, a=axes: jnp.sum(jnp.exp(x), a))
    add(FAMILY, "reduce add", "float32", fun, draw(dims, "float32"), note=f"exp {note}")
    fun = finished(lambda x, a=axes: jnp.argmax(x * 2, a[0]).astype(jnp.float32))
    add(FAMILY, "argmax", "float32", fun, draw(dims, "float32"), note=note)

for op, pick in (("argmax", lax.argmax), ("argmin", lax.argmin)):
    for dtype in NUMBERS:
        dims, axes = over()
        x = draw(dims, dtype)
        index = jnp.int32 if op == "argmax" or dtype in FLOATS else jnp.uint8
        fun = finished(lambda x, f=pick, a=axes[-1], i=index: f(x, a, i))
        add(FAMILY, op, dtype, fun, x, note="picked")

_PAIR = np.array([[1.0, np.nan, 2.0, np.nan], [np.inf, 1.0, np.inf, 0.0], [-np.inf] * 4])
add(
    FAMILY,
    "argmax",
    "float32",
    finished(lambda x: lax.argmax(x, 1, jnp.int32)),
    _PAIR.astype(np.float32),
    note="NaN",
)


def _both(x: Any, axis: int) -> tuple[Any, Any]:
    """The largest element and its place."""
    places = lax.broadcasted_iota(jnp.int32, x.shape, axis)

    def larger(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return tuple(jnp.where(first, p, q) for p, q in zip(a, b, strict=True))

    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    most = jnp.int32(2**31 - 1)
    return lax.reduce((x * 1, places), (jnp.asarray(lowest, x.dtype), most), larger, (axis,))


def _log_sum(x: Any, axis: int) -> tuple[Any, Any]:
    """(largest, sum of exponentials relative to it), joined online."""

    def join(a: Any, b: Any) -> Any:
        top = jnp.maximum(a[0], b[0])
        safe = jnp.where(jnp.isfinite(top), top, 0.0)
        return top, a[1] * jnp.exp(a[0] - safe) + b[1] * jnp.exp(b[0] - safe)

    one = jnp.ones_like(x)
    zero = jnp.zeros((), x.dtype)
    return lax.reduce((x * 2, one), (jnp.asarray(-jnp.inf, x.dtype), zero), join, (axis,))


def _welford(x: Any, axis: int) -> tuple[Any, Any, Any]:
    """(count, mean, squared distances), joined by Chan's formula."""

    def join(a: Any, b: Any) -> Any:
        n = a[0] + b[0]
        delta, total = b[1] - a[1], jnp.maximum(n, 1.0)
        return n, a[1] + delta * b[0] / total, a[2] + b[2] + delta**2 * a[0] * b[0] / total

    one, zero = jnp.ones_like(x), jnp.zeros((), x.dtype)
    return lax.reduce((one, x + 1.0, zero * x), (zero, zero, zero), join, (axis,))


PAIRS: Mapping[str, tuple[Callable[[Any, int], Any], Sequence[str]]] = {
    "reduce to value and index": (_both, ("float32", "int32", "bfloat16", "int16")),
    "reduce to log-sum-exp pairs": (_log_sum, ("float32", "float64")),
    "reduce by Chan's variance": (_welford, ("float32", "float64")),
    "reduce by logaddexp": (
        lambda x, axis: lax.reduce(x * 1.5, jnp.asarray(-jnp.inf, x.dtype), jnp.logaddexp, (axis,)),
        ("float32", "float64"),
    ),
    "reduce by absolute maximum": (
        lambda x, axis: lax.reduce(
            x + 1, jnp.zeros((), x.dtype), lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), (axis,)
        ),
        ("float32", "int32", "float16"),
    ),
}
for op, (fun, dtypes) in PAIRS.items():
    for dtype in dtypes:
        for dims, axis in (
            ((7, 33), 1),
            ((65, 9), 0),
            ((127,), 0),
            ((3, 17, 5), 1),
            ((6, 3), 1),
            ((3, 1100), 1),
        ):
            if dtype == "float32" or axis:
                x = draw(dims, dtype)
                add(FAMILY, op, dtype, finished(lambda x, f=fun, a=axis: f(x, a)), x)

WHOLE: Mapping[str, Callable[[Any], Any]] = {
    "softmax": lambda x: jax.nn.softmax(x, 1),
    "logsumexp": lambda x: jax.nn.logsumexp(x, 1),
    "log_softmax over columns": lambda x: jax.nn.log_softmax(x, 0),
    "mean and variance": lambda x: (x.mean(1), x.var(1)),
    "norm": lambda x: x / jnp.sqrt((x * x).sum(1, keepdims=True) + 1),
    "any and all": lambda x: ((x > 1).any(1), (x > -3).all(0)),
    "softmax gradient": jax.grad(lambda x: (jax.nn.softmax(x, 1)[:, 0] ** 2).sum()),
}
for op, fun in WHOLE.items():
    for dtype in FLOATS:
        add(FAMILY, op, dtype, finished(fun), draw((9, 37), dtype))
add(FAMILY, "reduce add", "float32", finished(lambda x: x.sum(1)), draw((3, 0), "float32"))
