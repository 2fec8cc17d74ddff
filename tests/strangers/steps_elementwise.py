"""What a step can be: elementwise ops and conversions."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.strangers.steps import Pool, Run, Step, like, one, result, step
from tests.strangers.values import FLOATS, INTEGERS, is_float

UNARY_EXACT: dict[str, Run] = {
    "neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "floor": lax.floor, "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "round_away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "relu": jax.nn.relu, "zero_nan": lambda x: jnp.where(jnp.isnan(x), jnp.zeros_like(x), x),
}  # fmt: skip
UNARY: dict[str, Run] = {
    "exp": lax.exp, "log": lax.log, "tanh": lax.tanh, "sqrt": lax.sqrt, "rsqrt": lax.rsqrt,
    "logistic": lax.logistic, "expm1": lax.expm1, "log1p": lax.log1p, "cbrt": lax.cbrt,
    "erf": lax.erf, "square": lax.square, "cube": lambda x: lax.integer_pow(x, 3),
    "inverse": lambda x: lax.integer_pow(x, -1), "softplus": jax.nn.softplus, "gelu": jax.nn.gelu,
    "sin": lax.sin, "cos": lax.cos, "third": lambda x: x * 0.3, "away": lambda x: x + 1.7,
    "atan": lax.atan, "log_sigmoid": jax.nn.log_sigmoid, "silu": jax.nn.silu,
}  # fmt: skip
UNARY_INTEGER: dict[str, Run] = {
    "not": lax.bitwise_not, "popcount": lax.population_count, "clz": lax.clz, "abs": jnp.abs,
    "sign": lax.sign, "twice": lambda x: x + x, "odd": lambda x: x | 1,
}  # fmt: skip
BINARY_EXACT: dict[str, Run] = {"max": lax.max, "min": lax.min}
BINARY: dict[str, Run] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "pow": lax.pow,
    "atan2": lax.atan2, "logaddexp": jnp.logaddexp, "hypot": jnp.hypot,
}  # fmt: skip
BINARY_INTEGER: dict[str, Run] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "and":
    lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "max": lax.max, "min": lax.min,
    "shl": lax.shift_left, "shr": lax.shift_right_logical, "sar": lax.shift_right_arithmetic,
}  # fmt: skip
COMPARE = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)


@step
def unary(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.dtype != "bool")
    if index is None:
        return None
    of = pool[index]
    if of.integral:
        name = rng.choice(list(UNARY_INTEGER))
        return Step(name, (index,), (of,), UNARY_INTEGER[name])
    if of.exact and rng.random() < 0.4:
        name = rng.choice(list(UNARY_EXACT))
        return Step(name, (index,), (of,), UNARY_EXACT[name])
    name = rng.choice(list(UNARY))
    return Step(name, (index,), (result(of, False),), UNARY[name], rounds=True)


@step
def binary(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.dtype != "bool")
    if index is None:
        return None
    of, other = pool[index], like(rng, pool, index)
    pair = (index, other) if rng.random() < 0.5 else (other, index)
    if of.integral:
        name = rng.choice(list(BINARY_INTEGER))
        return Step(name, pair, (of,), BINARY_INTEGER[name])
    if of.exact and pool[other].exact and rng.random() < 0.4:
        name = rng.choice(list(BINARY_EXACT))
        return Step(name, pair, (of,), BINARY_EXACT[name])
    name = rng.choice(list(BINARY))
    return Step(name, pair, (result(of, False),), BINARY[name], rounds=True)


@step
def compare(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.exact and v.dtype != "bool")
    if index is None:
        return None
    other = like(rng, pool, index, exact=True)
    run = rng.choice(COMPARE)
    return Step(run.__name__, (index, other), (result(pool[index], True, dtype="bool"),), run)


@step
def logic(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.dtype == "bool")
    if index is None:
        return None
    run = rng.choice((lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor))
    return Step(run.__name__, (index, like(rng, pool, index)), (pool[index],), run)


@step
def select(rng: random.Random, pool: Pool) -> Step | None:
    mask = one(rng, pool, lambda v: v.dtype == "bool")
    if mask is None:
        return None
    a = one(rng, pool, lambda v: v.shape == pool[mask].shape and v.dtype != "bool")
    if a is None:
        return None
    b = like(rng, pool, a)
    exact = pool[a].exact and pool[b].exact
    return Step("select", (mask, a, b), (result(pool[a], exact),), lax.select)


@step
def clamp(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.exact and v.dtype != "bool")
    if index is None:
        return None
    low, high = sorted((rng.randint(-2, 2), rng.randint(-2, 2)))
    if pool[index].dtype.startswith("u"):
        low, high = abs(low), abs(low) + abs(high)
    if rng.random() < 0.1:
        low, high = high, low  # the upper bound wins
    return Step(
        f"clamp {low} {high}",
        (index,),
        (pool[index],),
        lambda x: lax.clamp(jnp.asarray(low, x.dtype), x, jnp.asarray(high, x.dtype)),
    )


@step
def convert(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: True)
    assert index is not None
    of = pool[index]
    to = rng.choice([*FLOATS, *INTEGERS, "bool"])
    if of.floating and not is_float(to):
        if not of.exact:
            return None
        if to != "bool":  # beyond the type's range the result is undefined: kept inside
            span = 100 if to in ("int8", "uint8") else 30000

            def inside(x: Any) -> Any:
                low = 0 if to.startswith("u") else -span
                x = jnp.where(jnp.isnan(x), jnp.zeros_like(x), x)
                return jnp.clip(x, low, span).astype(to)

            return Step(f"convert {to}", (index,), (result(of, True, dtype=to),), inside)
        return Step("convert bool", (index,), (result(of, True, dtype=to),), lambda x: x != 0)
    if not is_float(to):
        return Step(
            f"convert {to}", (index,), (result(of, True, dtype=to),), lambda x: x.astype(to)
        )
    wider = of.floating and (to == "float32" or to == of.dtype)
    small = of.dtype in ("bool", "int8", "uint8")
    exact = of.exact and (wider or small)
    return Step(
        f"convert {to}",
        (index,),
        (result(of, exact, dtype=to),),
        lambda x: x.astype("float64" if jax.config.jax_enable_x64 else to),
        rounds=not exact,
    )


@step
def through_float8(rng: random.Random, pool: Pool) -> Step | None:
    """A rounding that the user asked for."""
    index = one(rng, pool, lambda v: v.floating and v.exact)
    if index is None:
        return None
    to = rng.choice((jnp.float8_e4m3fn, jnp.float8_e5m2))
    return Step(
        f"through {jnp.dtype(to).name}",
        (index,),
        (pool[index],),
        lambda x: jnp.clip(x, -100, 100).astype(to).astype(x.dtype),
    )
