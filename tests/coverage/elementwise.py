"""Elementwise ops of StableHLO and CHLO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.coverage.table import (
    EVERY,
    FLOAT8,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    add,
    any_bits,
    draw,
    finished,
    shape,
)

FAMILY = "elementwise"
Function = Callable[..., Any]

#: op -> function, lowest and highest argument; of every float type.
OF_FLOATS: Mapping[str, tuple[Function, float, float]] = {
    "abs": (lax.abs, -4, 4),
    "floor": (lax.floor, -4, 4),
    "ceil": (lax.ceil, -4, 4),
    "round_nearest_afz": (partial(lax.round, rounding_method=lax.RoundingMethod(0)), -4, 4),
    "round_nearest_even": (partial(lax.round, rounding_method=lax.RoundingMethod(1)), -4, 4),
    "sign": (lax.sign, -4, 4),
    "is_finite": (lax.is_finite, -4, 4),
    "exponential": (lax.exp, -4, 4),
    "exp2": (lax.exp2, -4, 4),
    "exponential_minus_one": (lax.expm1, -2, 2),
    "log": (lax.log, 0.1, 9),
    "log_plus_one": (lax.log1p, -0.5, 4),
    "logistic": (lax.logistic, -6, 6),
    "tanh": (lax.tanh, -3, 3),
    "sine": (lax.sin, -6, 6),
    "cosine": (lax.cos, -6, 6),
    "tan": (lax.tan, -1.2, 1.2),
    "sqrt": (lax.sqrt, 0, 9),
    "rsqrt": (lax.rsqrt, 0.1, 9),
    "cbrt": (lax.cbrt, -9, 9),
    "chlo.square": (lax.square, -4, 4),
    "chlo.acos": (lax.acos, -0.9, 0.9),
    "chlo.asin": (lax.asin, -0.9, 0.9),
    "chlo.atan": (lax.atan, -4, 4),
    "chlo.acosh": (lax.acosh, 1.2, 5),
    "chlo.asinh": (lax.asinh, -4, 4),
    "chlo.atanh": (lax.atanh, -0.9, 0.9),
    "chlo.sinh": (lax.sinh, -3, 3),
    "chlo.cosh": (lax.cosh, -3, 3),
    "chlo.erf": (lax.erf, -2, 2),
    "chlo.erfc": (lax.erfc, -2, 2),
    "chlo.erf_inv": (lax.erf_inv, -0.9, 0.9),
    "chlo.lgamma": (lax.lgamma, 0.2, 8),
    "chlo.digamma": (lax.digamma, 0.2, 8),
    "chlo.bessel_i0e": (lax.bessel_i0e, -4, 4),
    "chlo.bessel_i1e": (lax.bessel_i1e, -4, 4),
    "integer_pow": (lambda x: lax.integer_pow(x, 3), -2, 2),
    "reciprocal": (lax.reciprocal, 0.3, 4),
    "gelu": (jax.nn.gelu, -3, 3),
    "silu": (jax.nn.silu, -3, 3),
    "softplus": (jax.nn.softplus, -3, 3),
    "sinc": (jnp.sinc, 0.1, 2),
}
for op, (fun, low, high) in OF_FLOATS.items():
    for dtype in FLOATS:
        add(FAMILY, op, dtype, finished(fun), draw(shape(), dtype, low, high))
for dtype in FLOATS:  # a negation would be undone by the one after it
    add(FAMILY, "negate", dtype, lambda x: lax.abs(lax.neg(x) + 1), draw(shape(), dtype))

OF_INTEGERS: Mapping[str, tuple[Function, Sequence[str]]] = {
    "abs": (lax.abs, SIGNED),
    "negate": (lax.neg, INTEGERS),
    "sign": (lax.sign, INTEGERS),
    "popcnt": (lax.population_count, INTEGERS),
    "count_leading_zeros": (lax.clz, INTEGERS),
    "integer_pow": (lambda x: lax.integer_pow(x, 5), INTEGERS),
    "not": (lambda x: lax.neg(lax.bitwise_not(x)), (*INTEGERS,)),
}
for op, (fun, dtypes) in OF_INTEGERS.items():
    for dtype in dtypes:
        add(FAMILY, op, dtype, finished(fun), any_bits(shape(), dtype))
add(FAMILY, "not", "bool", finished(lax.bitwise_not), draw(shape(), "bool"))

#: op -> function, lowest and highest second argument; of every float type.
PAIRS_OF_FLOATS: Mapping[str, tuple[Function, float, float]] = {
    "add": (lax.add, -4, 4),
    "subtract": (lax.sub, -4, 4),
    "multiply": (lax.mul, -4, 4),
    "divide": (lax.div, 0.5, 4),
    "remainder": (lax.rem, 0.7, 3),
    "power": (lambda x, y: lax.pow(lax.abs(x) + 0.5, y), -2, 2),
    "maximum": (lax.max, -4, 4),
    "minimum": (lax.min, -4, 4),
    "atan2": (lax.atan2, -4, 4),
    "chlo.next_after": (lax.nextafter, -4, 4),
    "logaddexp": (jnp.logaddexp, -4, 4),
    "hypot": (jnp.hypot, -4, 4),
}
for op, (fun, low, high) in PAIRS_OF_FLOATS.items():
    for dtype in FLOATS:
        dims = shape()
        add(FAMILY, op, dtype, finished(fun), draw(dims, dtype), draw(dims, dtype, low, high))

PAIRS_OF_INTEGERS: Mapping[str, Function] = {
    "add": lax.add,
    "subtract": lax.sub,
    "multiply": lax.mul,
    "divide": lax.div,
    "remainder": lax.rem,
    "maximum": lax.max,
    "minimum": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}
for op, fun in PAIRS_OF_INTEGERS.items():
    for dtype in INTEGERS:
        dims = shape()
        add(FAMILY, op, dtype, finished(fun), any_bits(dims, dtype), any_bits(dims, dtype, 1))
SHIFTS: Mapping[str, Function] = {
    "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
}
for op, fun in SHIFTS.items():
    for dtype in INTEGERS:
        dims = shape()
        by = draw(dims, dtype, 0, 70)
        add(FAMILY, op, dtype, finished(fun), any_bits(dims, dtype), by)
for dtype in ("float32", "float64"):
    dims = shape()
    whole = draw(dims, "int32", -3, 3)
    add(FAMILY, "power", dtype, finished(lax.pow), draw(dims, dtype, 0.5, 2), whole, note="int32")
for op in ("and", "or", "xor", "maximum", "minimum"):
    dims, fun = shape(), PAIRS_OF_INTEGERS[op]
    add(FAMILY, op, "bool", finished(fun), draw(dims, "bool"), draw(dims, "bool", 0, 1))

COMPARISONS: Mapping[str, Function] = {
    "EQ": lax.eq,
    "NE": lax.ne,
    "LT": lax.lt,
    "LE": lax.le,
    "GT": lax.gt,
    "GE": lax.ge,
}
for number, dtype in enumerate(EVERY):
    for other, (name, fun) in enumerate(COMPARISONS.items()):
        if dtype in ("float32", "int32", "uint8") or (number + other) % 3 == 0:
            dims = shape()
            x, y = draw(dims, dtype), draw(dims, dtype, -3, 4)
            add(FAMILY, "compare", dtype, finished(fun), x, y, note=name)
for dtype in FLOATS:
    dims = shape()
    order = finished(lambda x, y: lax.lt_to_p.bind(x, y))
    add(FAMILY, "compare", dtype, order, draw(dims, dtype), draw(dims, dtype, -3, 4), note="order")

for dtype in (*EVERY, *FLOAT8):
    dims = shape()
    which, x, y = draw(dims, "bool"), draw(dims, dtype), draw(dims, dtype, 0, 3)
    add(FAMILY, "select", dtype, finished(lax.select), which, x, y, note="elements")
    scalar = draw((), "bool")
    add(FAMILY, "select", dtype, finished(lax.select), scalar, x, y, note="whole")
for dtype in NUMBERS:
    dims = shape()
    one, two = draw((), dtype, 0, 1), draw((), dtype, 2, 3)
    add(
        FAMILY,
        "clamp",
        dtype,
        finished(lambda x, a, b: lax.clamp(a, x, b)),
        draw(dims, dtype),
        one,
        two,
    )

#: CHLO functions of two and more arguments: op -> function, a (lowest, highest) per argument.
SPECIAL: Mapping[str, tuple[Function, tuple[tuple[float, float], ...]]] = {
    "chlo.zeta": (lax.zeta, ((1.5, 4), (0.5, 3))),
    "chlo.polygamma": (lambda x: lax.polygamma(jnp.full(x.shape, 2, x.dtype), x), ((0.5, 4),)),
    "igamma": (lax.igamma, ((0.5, 3), (0.5, 3))),
    "igammac": (lax.igammac, ((0.5, 3), (0.5, 3))),
    "betainc": (lax.betainc, ((0.5, 1), (2, 5), (0.5, 0.9))),
    "random_gamma_grad": (lax.random_gamma_grad, ((0.5, 3), (0.5, 3))),
}
for op, (fun, bounds) in SPECIAL.items():
    dims = shape(1)
    args = [draw(dims, "float32", low, high) for low, high in bounds]
    add(FAMILY, op, "float32", finished(fun), *args)
for dtype in FLOAT8:
    for op in ("add", "multiply", "maximum"):
        dims, fun = shape(), PAIRS_OF_FLOATS[op][0]
        add(FAMILY, op, dtype, finished(fun), draw(dims, dtype), draw(dims, dtype, -3, 3))
for dtype, bits in (
    ("float32", (8, 7)),
    ("float32", (5, 10)),
    ("float64", (8, 23)),
    ("bfloat16", (5, 2)),
):
    reduced = finished(partial(lax.reduce_precision, exponent_bits=bits[0], mantissa_bits=bits[1]))
    add(
        FAMILY,
        "reduce_precision",
        dtype,
        reduced,
        draw(shape(), dtype),
        note=f"{bits[0]}.{bits[1]}",
    )
add(FAMILY, "add", "float32", finished(lax.add), draw((0, 3), "float32"), draw((0, 3), "float32"))
