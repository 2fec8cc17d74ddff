"""Small and batched products of any layout."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import lax

from tests.coverage.table import FLOATS, add, draw, finish

FAMILY = "dots"

#: form -> shapes of both sides, and the dimension numbers of `lax.dot_general`.
LAYOUTS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple]] = {
    "matrix": ((9, 13), (13, 7), (((1,), (0,)), ((), ()))),
    "right transposed": ((9, 13), (7, 13), (((1,), (1,)), ((), ()))),
    "left transposed": ((13, 9), (13, 7), (((0,), (0,)), ((), ()))),
    "vectors": ((37,), (37,), (((0,), (0,)), ((), ()))),
    "matrix and vector": ((9, 33), (33,), (((1,), (0,)), ((), ()))),
    "batched": ((3, 9, 13), (3, 13, 7), (((2,), (1,)), ((0,), (0,)))),
    "batch last": ((9, 13, 3), (13, 7, 3), (((1,), (0,)), ((2,), (2,)))),
    "batch in the middle": ((9, 3, 13), (7, 3, 13), (((2,), (2,)), ((1,), (1,)))),
    "two batches": ((2, 3, 5, 8), (2, 3, 8, 6), (((3,), (2,)), ((0, 1), (0, 1)))),
    "two contracted": ((5, 6, 7), (7, 6, 4), (((1, 2), (1, 0)), ((), ()))),
    "outer": ((11,), (5,), (((), ()), ((), ()))),
    "long": ((4, 515), (515, 3), (((1,), (0,)), ((), ()))),
}
_TYPES = (*FLOATS, "int32", "int8", "uint8", "int64")
for number, (form, (left, right, numbers)) in enumerate(LAYOUTS.items()):
    for place, dtype in enumerate(_TYPES):
        if dtype == "float32" or (place + number) % 3 == 0:
            x, y = draw(left, dtype, -2, 2), draw(right, dtype, -2, 3)
            wide = jnp.float32 if dtype == "bfloat16" and number % 2 else None

            def product(x, y, numbers=numbers, wide=wide):
                return finish(lax.dot_general(finish(x), y, numbers, preferred_element_type=wide))

            add(FAMILY, "dot_general", dtype, product, x, y, note=form)
