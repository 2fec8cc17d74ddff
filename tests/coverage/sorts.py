"""Sorts of rows and their largest elements, as long as a thread has them, and longer."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from fusionstitch.codegen.rewrite.sorts import MOST_ELEMENTS
from tests.coverage.table import EVERY, add, draw, finished

FAMILY = "sorts"

FUNCTIONS = {
    "sort": lambda x: jnp.sort(x, 1),
    "argsort": lambda x: jnp.argsort(x, 1),
    "top_k": lambda x: lax.top_k(x, 2),
}
for op, fun in FUNCTIONS.items():
    for dtype in EVERY:
        lengths = (7,) if dtype != "float32" else (2, 7, MOST_ELEMENTS, MOST_ELEMENTS + 1, 2000)
        for n in lengths:
            add(FAMILY, op, dtype, finished(fun), draw((9, n), dtype), note=f"{n} elements")
add(
    FAMILY,
    "sort_key_val",
    "float32",
    finished(lambda x, y: lax.sort_key_val(x, y, dimension=0)),
    draw((5, 9), "float32"),
    draw((5, 9), "int32"),
)
add(
    FAMILY,
    "lexsort",
    "float32",
    finished(lambda x, y: jnp.lexsort((x, y), axis=1)),
    draw((5, 9), "float32", 0, 2),
    draw((5, 9), "float32"),
)
add(FAMILY, "median", "float32", finished(lambda x: jnp.median(x, 1)), draw((9, 5), "float32"))
