"""Conversions between all element types, and the same bits as another type."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.coverage.table import (
    EVERY,
    FLOAT8,
    FLOATS,
    MORE_FLOAT8,
    WIDE,
    add,
    draw,
    finish,
    finished,
    shape,
)

FAMILY = "types"

for source in EVERY:
    for target in EVERY:
        if source == target:
            continue
        # whole numbers are the same in every type; halves show how floats are rounded
        x = draw(shape(), source, 0, 9) if source in FLOATS else draw(shape(), source, -9, 9)
        convert = finished(lambda x, t=target: lax.convert_element_type(x, jnp.dtype(t)))
        add(FAMILY, "convert", source, convert, x, note=f"to {target}", wide=target in WIDE)
for narrow in (*FLOAT8, *MORE_FLOAT8):
    there = finished(lambda x, t=narrow: lax.convert_element_type(x * 2, jnp.dtype(t)))
    back = finished(lambda x: lax.convert_element_type(x, jnp.float32))
    low = 0.0 if narrow == "float8_e8m0fnu" else -3.0
    add(FAMILY, "convert", narrow, there, draw(shape(1), "float32", low, 3), note="from float32")
    add(FAMILY, "convert", narrow, back, draw(shape(1), narrow, low, 3), note="to float32")
for narrow in FLOAT8:
    for other in ("bfloat16", "float16", "float64", "int32"):
        there = finished(lambda x, t=narrow: lax.convert_element_type(x * 2, jnp.dtype(t)))
        back = finished(lambda x, t=other: lax.convert_element_type(x, jnp.dtype(t)))
        add(FAMILY, "convert", narrow, there, draw(shape(1), other), note=f"from {other}")
        x = draw(shape(1), narrow)
        add(FAMILY, "convert", narrow, back, x, note=f"to {other}", wide=other in WIDE)
for source, target in (
    ("float64", "int32"),
    ("float32", "int8"),
    ("float32", "uint32"),
    ("bfloat16", "int16"),
):
    far = np.array([3e9, -3e9, 7.9, -7.9, np.inf, -np.inf, np.nan, 130, -130, 0.5], np.float64)
    convert = finished(lambda x, t=target: lax.convert_element_type(x, jnp.dtype(t)))
    add(FAMILY, "convert", source, convert, far.astype(jnp.dtype(source)), note=f"far {target}")

_SAME = (
    ("float32", "int32"), ("float32", "uint32"), ("int32", "float32"), ("uint32", "float32"),
    ("bfloat16", "int16"), ("uint16", "bfloat16"), ("float16", "uint16"), ("int16", "float16"),
    ("float64", "uint64"), ("int64", "float64"), ("int8", "uint8"), ("uint32", "int32"),
)  # fmt: skip
_WIDER = (
    ("float32", "uint8"), ("uint32", "uint16"), ("int64", "int32"), ("float64", "float32"),
    ("float32", "bfloat16"), ("uint16", "uint8"),
)  # fmt: skip


def _bits(dims: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype in FLOATS:
        return draw(dims, dtype)
    return draw(dims, dtype, 0, 120)  # no NaN, whose bits may change


for source, target in (*_SAME, *_WIDER, *((b, a) for a, b in _WIDER)):
    bits, new = (8 * np.dtype(jnp.dtype(t)).itemsize for t in (source, target))
    dims = (*shape(), new // bits) if new > bits else shape()
    cast = finished(lambda x, t=target: lax.bitcast_convert_type(x, jnp.dtype(t)))
    x = _bits(dims, source)
    add(FAMILY, "bitcast_convert", source, cast, x, note=f"to {target}", wide=target in WIDE)
for dtype in FLOAT8:
    cast = finished(lambda x: lax.bitcast_convert_type(x, jnp.uint8))
    add(FAMILY, "bitcast_convert", dtype, cast, draw(shape(), dtype), note="to uint8")
    back = finished(lambda x, t=dtype: lax.bitcast_convert_type(x, jnp.dtype(t)))
    add(FAMILY, "bitcast_convert", dtype, back, draw(shape(), "uint8", 0, 100), note="from uint8")
_IOTA = ("float32", "bfloat16", "float16", "float64", *(t for t in EVERY if "int" in t))
for dtype in _IOTA:
    dims = shape(1)
    axis = len(dims) - 1
    count = lambda x, t=dtype, d=axis: x + lax.broadcasted_iota(jnp.dtype(t), x.shape, d)  # noqa: E731
    add(FAMILY, "iota", dtype, count, draw(dims, dtype, 0, 3))

for implementation in ("threefry2x32", "rbg"):
    key = jax.random.key(3, impl=implementation)
    words = lambda key: finish(jax.random.key_data(key))  # noqa: E731
    add(FAMILY, "key_data", implementation, words, key)
    more = lambda key: jax.random.key_data(jax.random.fold_in(key, 7))  # noqa: E731
    add(FAMILY, "fold_in", implementation, more, key)
    add(
        FAMILY,
        "split",
        implementation,
        lambda key: jax.random.key_data(jax.random.split(key, 3)),
        key,
    )
