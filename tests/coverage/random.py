"""Random bits and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tests.coverage.table import add, draw, finished

FAMILY = "random"


def _dropout(key: Any, x: Any) -> Any:
    kept = jax.random.bernoulli(key, 0.7, x.shape)
    return jnp.where(kept, x / 0.7, 0)


#: op -> function of a key and an array of the shape and type wanted.
DRAWS: Mapping[str, Callable[[Any, Any], Any]] = {
    "dropout": _dropout,
    "uniform": lambda key, x: x + jax.random.uniform(key, x.shape, x.dtype),
    "normal": lambda key, x: x * jax.random.normal(key, x.shape, x.dtype),
    "bernoulli": lambda key, x: x * jax.random.bernoulli(key, 0.3, x.shape),
    "gumbel": lambda key, x: x - jax.random.gumbel(key, x.shape, x.dtype),
    "exponential": lambda key, x: x + jax.random.exponential(key, x.shape, x.dtype),
    "truncated_normal": lambda key, x: (
        x + jax.random.truncated_normal(key, -2, 2, x.shape, x.dtype)
    ),
}
for op, fun in DRAWS.items():
    for dtype in ("float32", "bfloat16", "float64", "float16"):
        for dims in ((33,), (5, 13)) if dtype == "float32" else ((7, 9),):
            x = draw(dims, dtype, 0.5, 2)
            add(
                FAMILY,
                op,
                dtype,
                finished(fun),
                jax.random.key(1),
                x,
                note="x".join(map(str, dims)),
            )
for dtype in ("uint32", "uint8", "uint16", "uint64"):
    bits = finished(lambda key, x: x ^ jax.random.bits(key, x.shape, x.dtype))
    add(FAMILY, "bits", dtype, bits, jax.random.key(2), draw((19, 3), dtype))
for dtype in ("int32", "uint8", "int64"):
    whole = finished(lambda key, x: x + jax.random.randint(key, x.shape, 0, 100, x.dtype))
    add(FAMILY, "randint", dtype, whole, jax.random.key(2), draw((19, 3), dtype))
