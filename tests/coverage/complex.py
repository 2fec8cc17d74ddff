"""Complex numbers: arithmetic, parts, movement, sums, products, functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.coverage.table import add, draw, finished, shape

FAMILY = "complex"
DTYPE = "complex64"

#: op -> function of two arrays of three rows or more.
OF_TWO: Mapping[str, Callable[..., Any]] = {
    "add": lax.add,
    "subtract": lax.sub,
    "multiply": lax.mul,
    "divide": lax.div,
    "compare": lambda x, y: x == y,
    "select": lambda x, y: jnp.where(x.real < 0, x, y),
    "concatenate": lambda x, y: jnp.concatenate([x, y]),
    "dot": lambda x, y: jnp.tensordot(x, y.conj(), x.ndim),
}
#: op -> function of one.
OF_ONE: Mapping[str, Callable[..., Any]] = {
    "negate": lax.neg,
    "abs": lax.abs,
    "real": lax.real,
    "imag": lax.imag,
    "conj": lax.conj,
    "complex": lambda x: lax.complex(x.imag, x.real),
    "exponential": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "angle": jnp.angle,
    "integer power": lambda x: x**3,
    "sign": lax.sign,
    "sine": jnp.sin,
    "tanh": jnp.tanh,
    "power": lambda x: x**0.3,
    "reverse": lambda x: jnp.flip(x, 0),
    "pad": lambda x: jnp.pad(x, 1, constant_values=1j),
    "sum": lambda x: x.sum(0),
    "product": lambda x: x.prod(0),
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "gather": lambda x: x[jnp.array([2, 0, 2])],
    "sort": lambda x: jnp.sort(x, 0),
}


def numbers(dims: tuple[int, ...], seed: float) -> np.ndarray:
    real, imag = (draw(dims, "float32", low, 3) for low in (-3 - seed, -3.25 - seed))
    return (real + 1j * imag).astype(np.complex64)


for op, fun in OF_TWO.items():
    dims = (5, *shape(1))
    add(FAMILY, op, DTYPE, finished(fun), numbers(dims, 0), numbers(dims, 0.5))
for op, fun in OF_ONE.items():
    add(FAMILY, op, DTYPE, finished(fun), numbers((5, *shape(1)), 0))
for dtype in ("float32", "int32"):
    add(FAMILY, "convert", dtype, finished(lambda x: x.astype(DTYPE)), draw((5, 13), dtype))
