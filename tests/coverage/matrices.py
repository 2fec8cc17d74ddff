"""Factorisations and solves of small matrices, and of one with a row more than kernels take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as linalg
import numpy as np

from fusionstitch.codegen.rewrite.small_matrices import MOST_ROWS
from tests.coverage.table import add, finish

FAMILY = "matrices"


def definite(batch: int, n: int, dtype: str) -> np.ndarray:
    a = np.random.default_rng((batch, n)).standard_normal((batch, n, n))
    return (a @ a.swapaxes(1, 2) + n * np.eye(n)).astype(dtype)


#: op -> the routine that decides its limit, the function of a matrix and a column of it.
FUNCTIONS: Mapping[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "cholesky": ("potrf", lambda a, b: jnp.linalg.cholesky(a)),
    "cho_solve": ("potrf", lambda a, b: linalg.cho_solve((jnp.linalg.cholesky(a), True), b)),
    "solve_triangular": (
        "triangular-solve",
        lambda a, b: linalg.solve_triangular(a, b, lower=True),
    ),
    "inv": ("getrf", lambda a, b: jnp.linalg.inv(a)),
    "solve": ("getrf", jnp.linalg.solve),
    "slogdet": ("getrf", lambda a, b: jnp.linalg.slogdet(a)[1]),
}
for op, (routine, fun) in FUNCTIONS.items():
    most = MOST_ROWS[routine]
    for dtype in ("float32", "float64"):
        for n in (1, 2, 3, most, most + 1):
            a = definite(5, n, dtype)

            def done(a, b, fun=fun):
                return finish(fun(a, b))

            add(FAMILY, op, dtype, done, a, a[:, :, :1].copy(), note=f"{n} rows")
