"""Bodies of reductions as users write them: associative all, commutative some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.strangers.values import is_float


@dataclass(frozen=True)
class Body:
    """`combine` of one array or of a tuple of them; `operands` and `inits` are made of x."""

    name: str
    takes: Callable[[str], bool]
    types: tuple[str | None, ...]
    operands: Callable[[Any], Any]
    inits: Callable[[Any], Any]
    combine: Callable[[Any, Any], Any]
    exact: bool = True


def _self(x: Any) -> Any:
    return x


def _sizes(x: Any) -> Any:
    return abs(x)


def _plain(x: Any) -> Any:
    # NaN would make the body no longer associative, and the sign of zero depend on the init
    return jnp.where((x != x) | (x == 0), jnp.zeros_like(x), x)


def _integer(dtype: str) -> bool:
    return dtype in ("int32", "uint32")


def _affine(a: Any, b: Any) -> Any:
    return a[0] * b[0], a[1] * b[0] + b[1]


def _matrix(a: Any, b: Any) -> Any:
    return (
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
    )


def _pairs(x: Any) -> Any:
    return x, jnp.arange(x.size, dtype=jnp.int32).reshape(x.shape)


def _last_greatest(a: Any, b: Any) -> Any:
    later = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] > a[1])) | (b[0] != b[0])
    return jnp.where(later, b[0], a[0]), jnp.where(later, b[1], a[1])


def _first_nan_or_greatest(a: Any, b: Any) -> Any:
    mine = (a[0] > b[0]) | (a[0] != a[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return jnp.where(mine, a[0], b[0]), jnp.where(mine, a[1], b[1])


def _range(a: Any, b: Any) -> Any:
    return jnp.minimum(a[0], b[0]), jnp.maximum(a[1], b[1])


def _log_sum(a: Any, b: Any) -> Any:
    top = jnp.maximum(a[0], b[0])
    keep = jnp.where(jnp.isneginf(top), jnp.zeros_like(top), top)
    return top, a[1] * jnp.exp(a[0] - keep) + b[1] * jnp.exp(b[0] - keep)


BODIES = (
    Body("first of the largest size", is_float, (None,), _plain,
         lambda t: jnp.zeros((), t), lambda a, b: jnp.where(abs(a) >= abs(b), a, b)),
    Body("last that is a number", is_float, (None,), _self,
         lambda t: jnp.full((), jnp.nan, t), lambda a, b: jnp.where(b != b, a, b)),
    Body("first that is not zero", is_float, (None,), _sizes,
         lambda t: jnp.zeros((), t), lambda a, b: jnp.where(a != 0, a, b)),
    Body("first", _integer, (None,), _self,
         lambda t: jnp.zeros((), t), lambda a, b: jnp.where(a != 0, a, b)),
    Body("xor", _integer, (None,), _self, lambda t: jnp.zeros((), t), lax.bitwise_xor),
    Body("or", _integer, (None,), _self, lambda t: jnp.zeros((), t), lax.bitwise_or),
    Body("product", _integer, (None,), _self, lambda t: jnp.ones((), t), lax.mul),
    Body("affine maps", _integer, (None, None), lambda x: (x | 1, x),
         lambda t: (jnp.ones((), t), jnp.zeros((), t)), _affine),
    Body("matrices", _integer, (None,) * 4, lambda x: (x, x + 1, x ^ 3, -x if x.dtype == jnp.int32
         else x + 2),
         lambda t: (jnp.ones((), t), jnp.zeros((), t), jnp.zeros((), t), jnp.ones((), t)), _matrix),
    Body("last greatest", is_float, (None, "int32"), _pairs,
         lambda t: (jnp.full((), -jnp.inf, t), jnp.zeros((), jnp.int32)), _last_greatest),
    Body("first NaN or greatest", is_float, (None, "int32"), _pairs,
         lambda t: (jnp.full((), -jnp.inf, t), jnp.zeros((), jnp.int32)), _first_nan_or_greatest),
    Body("range", is_float, (None, None), lambda x: (x, x),
         lambda t: (jnp.full((), jnp.inf, t), jnp.full((), -jnp.inf, t)), _range),
    Body("log sum", lambda t: t == "float32", (None, None), lambda x: (x, jnp.ones_like(x)),
         lambda t: (jnp.full((), -jnp.inf, t), jnp.zeros((), t)), _log_sum, exact=False),
)  # fmt: skip

#: name, body and init of windows; the inits are no identities on purpose, but for two.
WINDOWS = (
    ("add", lax.add, 0.0), ("add", lax.add, 1.0), ("max", lax.max, 0.0), ("max", lax.max, 5.0),
    ("min", lax.min, 1.0), ("mul", lax.mul, 1.0), ("mul", lax.mul, 2.0), ("add", lax.add, -3.0),
)  # fmt: skip
