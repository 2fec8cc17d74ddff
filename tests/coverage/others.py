"""What NumPy has no reference of: integers of four bits, and XLA's own random bits."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.coverage.table import FOUR_BITS, add, draw, shape

FAMILY = "others"

for dtype in FOUR_BITS:
    dims = shape(1)
    x, y = draw(dims, dtype, 0, 3), draw(dims, dtype, 0, 2)
    add(FAMILY, "add", dtype, lambda x, y: lax.add(x, y).astype(jnp.int32) * 3, x, y)
    add(FAMILY, "convert", dtype, lambda x: x.astype(jnp.int32) * 3, x, note="to int32")
    there = lambda x, t=dtype: (x * 2).astype(jnp.dtype(t))  # noqa: E731
    add(FAMILY, "convert", dtype, there, draw(shape(1), "float32", 0, 3), note="from float32")

for algorithm, words in (("RNG_THREE_FRY", 4), ("RNG_PHILOX", 4)):

    def generate(key: Any, x: Any, algorithm: str = algorithm) -> Any:
        which = getattr(lax.RandomAlgorithm, algorithm)
        state, bits = lax.rng_bit_generator(key, x.shape, x.dtype, which)
        return state, x ^ bits

    key = draw((words,), "uint32", 0, 99)
    add(
        FAMILY,
        "rng_bit_generator",
        "uint32",
        generate,
        key,
        draw((16, 3), "uint32"),
        note=algorithm,
    )
