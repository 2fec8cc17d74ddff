"""What a step of a program can be: one table entry an op.

An entry looks at the values there are and says which of them it takes, with which attributes, and
what comes out; `run` computes it in JAX. Nothing here knows what the project can stitch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.strangers import bodies
from tests.strangers.values import ELEMENTS, EXTENTS, FLOATS, INTEGERS, Value, is_float

Pool = Sequence[Value]
Run = Callable[..., Any]


@dataclass(frozen=True)
class Step:
    """`run(*operands)` gives one array per entry of `results`.

    `rounds`: the results are rounded anew; else they are exact, or elements of the operands.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[Value, ...]
    run: Run
    rounds: bool = False


Pick = Callable[[random.Random, Pool], Step | None]
STEPS: dict[str, Pick] = {}


def step(pick: Pick) -> Pick:
    STEPS[pick.__name__] = pick
    return pick


def one(rng: random.Random, pool: Pool, holds: Callable[[Value], bool]) -> int | None:
    """A value for which `holds`; late ones are more likely, so that programs get deep."""
    fit = [i for i, value in enumerate(pool) if holds(value)]
    if not fit:
        return None
    return rng.choice(fit[-4:]) if rng.random() < 0.7 else rng.choice(fit)


def like(rng: random.Random, pool: Pool, index: int, exact: bool | None = None) -> int:
    """Another value of the same shape and type, or the same one."""
    of = pool[index]
    return (
        one(
            rng,
            pool,
            lambda v: (v.shape, v.dtype) == (of.shape, of.dtype) and exact in (None, v.exact),
        )
        or index
    )


def result(value: Value, exact: bool, **changes: Any) -> Value:
    fields = {"shape": value.shape, "dtype": value.dtype, "exact": exact} | changes
    return Value(**fields)


# ---- elementwise -------------------------------------------------------------------------------

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


# ---- movement ----------------------------------------------------------------------------------


def moved(name: str, index: int, pool: Pool, shape: Sequence[int], run: Run) -> Step | None:
    if int(np.prod(shape, dtype=np.int64)) > ELEMENTS:
        return None
    return Step(name, (index,), (result(pool[index], pool[index].exact, shape=tuple(shape)),), run)


@step
def transpose(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 1)
    if index is None:
        return None
    order = list(range(pool[index].rank))
    rng.shuffle(order)
    shape = [pool[index].shape[d] for d in order]
    return moved(f"transpose {order}", index, pool, shape, lambda x: lax.transpose(x, order))


@step
def reshape(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.size > 1)
    if index is None:
        return None
    left, shape = pool[index].size, []
    while left > 1 and len(shape) < 3:
        extent = rng.choice([e for e in range(1, left + 1) if left % e == 0])
        shape.append(extent)
        left //= extent
    shape.append(left)
    rng.shuffle(shape)
    return moved(f"reshape {shape}", index, pool, shape, lambda x: jnp.reshape(x, shape))


@step
def broadcast(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank < 4 and v.size * 2 <= ELEMENTS)
    if index is None:
        return None
    of = pool[index]
    place = rng.randint(0, of.rank)
    extent = rng.choice([e for e in EXTENTS if e * of.size <= ELEMENTS])
    shape = [*of.shape[:place], extent, *of.shape[place:]]
    dims = [d for d in range(of.rank + 1) if d != place]
    return moved(
        f"broadcast {shape} {dims}",
        index,
        pool,
        shape,
        lambda x: lax.broadcast_in_dim(x, shape, dims),
    )


@step
def cut(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 0)
    if index is None:
        return None
    start, stop, stride = [], [], []
    for extent in pool[index].shape:
        a = rng.randint(0, extent - 1)
        start.append(a if rng.random() < 0.5 else 0)
        stop.append(rng.randint(start[-1] + 1, extent) if rng.random() < 0.5 else extent)
        stride.append(rng.choice((1, 1, 1, 2, 3)))
    shape = [-(-(b - a) // s) for a, b, s in zip(start, stop, stride, strict=True)]
    return moved(
        f"slice {start} {stop} {stride}",
        index,
        pool,
        shape,
        lambda x: lax.slice(x, start, stop, stride),
    )


@step
def reverse(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 0)
    if index is None:
        return None
    dims = rng.sample(range(pool[index].rank), rng.randint(1, pool[index].rank))
    return moved(f"reverse {dims}", index, pool, pool[index].shape, lambda x: lax.rev(x, dims))


@step
def pad(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 0 and v.dtype != "bool")
    if index is None:
        return None
    of = pool[index]
    config = []
    for extent in of.shape:
        low, high = rng.randint(-1, 3), rng.randint(-1, 3)
        inner = rng.choice((0, 0, 1, 2)) if extent > 1 else 0
        if extent + (extent - 1) * inner + low + high <= 0:
            low, high = 1, 0
        config.append((low, high, inner))
    shape = [
        e + (e - 1) * inner + low + high
        for e, (low, high, inner) in zip(of.shape, config, strict=True)
    ]
    fill: Any = rng.choice((0, 1, 3))
    if of.floating:
        fill = rng.choice((0.0, -0.0, 1.0, float("inf"), float("nan")))
    return moved(
        f"pad {config} {fill}",
        index,
        pool,
        shape,
        lambda x: lax.pad(x, jnp.asarray(fill, x.dtype), config),
    )


@step
def concatenate(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 0)
    if index is None:
        return None
    of = pool[index]
    dim = rng.randrange(of.rank)
    fit = [
        i
        for i, v in enumerate(pool)
        if v.dtype == of.dtype
        and v.rank == of.rank
        and all(d == dim or a == b for d, (a, b) in enumerate(zip(v.shape, of.shape, strict=True)))
    ]
    parts = [rng.choice(fit) for _ in range(rng.randint(2, 4))]
    shape = list(of.shape)
    shape[dim] = sum(pool[i].shape[dim] for i in parts)
    if int(np.prod(shape, dtype=np.int64)) > ELEMENTS:
        return None
    exact = all(pool[i].exact for i in parts)
    return Step(
        f"concatenate {dim}",
        tuple(parts),
        (result(of, exact, shape=tuple(shape)),),
        lambda *xs: lax.concatenate(xs, dim),
    )


@step
def take(rng: random.Random, pool: Pool) -> Step | None:
    """Rows at places of the data, also out of range."""
    index = one(rng, pool, lambda v: v.rank > 0)
    where = one(rng, pool, lambda v: v.integral and v.rank <= 1 and v.size <= 64)
    if index is None or where is None:
        return None
    of = pool[index]
    dim = rng.randrange(of.rank)
    mode = rng.choice(("clip", "wrap"))
    shape = [*of.shape[:dim], *pool[where].shape, *of.shape[dim + 1 :]]
    if int(np.prod(shape, dtype=np.int64)) > ELEMENTS:
        return None
    return Step(
        f"take {dim} {mode}",
        (index, where),
        (result(of, of.exact, shape=tuple(shape)),),
        lambda x, i: jnp.take(x, i.astype(jnp.int32), axis=dim, mode=mode),
    )


@step
def window_at(rng: random.Random, pool: Pool) -> Step | None:
    """A dynamic slice, or an update of one, at a place that is clamped."""
    index = one(rng, pool, lambda v: v.rank > 0)
    at = one(rng, pool, lambda v: v.dtype == "int32" and v.rank == 0)
    if index is None or at is None:
        return None
    of = pool[index]
    sizes = [rng.randint(1, e) for e in of.shape]
    if rng.random() < 0.5:
        return Step(
            f"dynamic_slice {sizes}",
            (index, at),
            (result(of, of.exact, shape=tuple(sizes)),),
            lambda x, i: lax.dynamic_slice(x, [i] * x.ndim, sizes),
        )
    return Step(
        f"dynamic_update_slice {sizes}",
        (index, at),
        (of,),
        lambda x, i: (
            lax.dynamic_update_slice(x, -lax.slice(x, [0] * x.ndim, sizes), [i] * x.ndim)
            if of.dtype != "bool"
            else lax.dynamic_update_slice(x, ~lax.slice(x, [0] * x.ndim, sizes), [i] * x.ndim)
        ),
    )


@step
def scatter(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 0 and v.dtype != "bool")
    where = one(rng, pool, lambda v: v.dtype == "int32" and v.rank == 1 and v.size <= 64)
    if index is None or where is None:
        return None
    of = pool[index]
    how = rng.choice(("add", "max", "min") if of.exact else ("add",))
    exact = of.exact and (of.integral or how != "add")
    return Step(
        f"scatter {how}",
        (index, where),
        (result(of, exact),),
        lambda x, i: getattr(x.at[i % x.shape[0]], how)(jnp.ones((), x.dtype)),
        rounds=not exact,
    )


# ---- reductions --------------------------------------------------------------------------------


def axes(rng: random.Random, rank: int) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))


def without(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(e for d, e in enumerate(shape) if d not in dims)


@step
def reduction(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 0 and v.dtype != "bool")
    if index is None:
        return None
    of = pool[index]
    dims = axes(rng, of.rank)
    names = ["sum", "max", "min"] if of.exact or of.integral else ["sum", "mean", "logsumexp"]
    name = rng.choice(names)
    exact = (of.exact and name in ("max", "min")) or of.integral
    runs: dict[str, Run] = {
        "sum": lambda x: jnp.sum(x, dims, dtype=x.dtype),
        "mean": lambda x: jnp.mean(x, dims, dtype=x.dtype),
        "max": lambda x: jnp.max(x, dims),
        "min": lambda x: jnp.min(x, dims),
        "logsumexp": lambda x: jax.nn.logsumexp(x, dims).astype(x.dtype),
    }
    value = result(of, exact, shape=without(of.shape, dims))
    return Step(f"{name} {dims}", (index,), (value,), runs[name], rounds=not exact)


@step
def decision(rng: random.Random, pool: Pool) -> Step | None:
    """argmax, argmin, any, all, counts."""
    index = one(rng, pool, lambda v: v.rank > 0 and v.exact)
    if index is None:
        return None
    of = pool[index]
    dim = rng.randrange(of.rank)
    shape = without(of.shape, (dim,))
    if of.dtype == "bool":
        run, to = rng.choice(((jnp.any, "bool"), (jnp.all, "bool")))
        return Step(run.__name__, (index,), (Value(shape, to, True),), lambda x: run(x, axis=dim))
    run = rng.choice((lax.argmax, lax.argmin))
    return Step(
        f"{run.__name__} {dim}",
        (index,),
        (Value(shape, "int32", True),),
        lambda x: run(x, dim, jnp.int32),
    )


@step
def own_reduction(rng: random.Random, pool: Pool) -> Step | None:
    """lax.reduce with a body of the user's own."""
    body = rng.choice(bodies.BODIES)
    index = one(rng, pool, lambda v: v.rank > 0 and v.exact and body.takes(v.dtype))
    if index is None:
        return None
    of = pool[index]
    dims = axes(rng, of.rank)
    shape = without(of.shape, dims)
    values = tuple(Value(shape, t or of.dtype, body.exact) for t in body.types)

    def run(x: Any) -> Any:
        operands, inits = body.operands(x), body.inits(x.dtype)
        return lax.reduce(operands, inits, body.combine, dims)

    return Step(f"reduce {body.name} {dims}", (index,), values, run, rounds=not body.exact)


@step
def windowed(rng: random.Random, pool: Pool) -> Step | None:
    """reduce_window with padding, strides and dilations, and an init that need be no identity."""
    index = one(rng, pool, lambda v: 0 < v.rank < 4 and v.dtype != "bool" and v.size <= 2000)
    if index is None:
        return None
    of = pool[index]
    name, combine, init = rng.choice(bodies.WINDOWS)
    exact = (of.exact and name in ("max", "min")) or of.integral
    if not of.exact and name in ("max", "min"):
        return None
    if not of.floating:
        init = abs(int(init)) if of.dtype.startswith("u") else int(init)
    size, stride, padding, base, dilation, shape = [], [], [], [], [], []
    for extent in of.shape:
        size.append(rng.choice((1, 1, 2, 3)))
        stride.append(rng.choice((1, 1, 2)))
        base.append(rng.choice((1, 1, 2)) if extent > 1 else 1)
        dilation.append(rng.choice((1, 1, 2)))
        span = (size[-1] - 1) * dilation[-1] + 1
        spread = (extent - 1) * base[-1] + 1
        padding.append((rng.randint(0, 2), max(rng.randint(0, 2), span - spread)))
        shape.append((spread + sum(padding[-1]) - span) // stride[-1] + 1)
    if int(np.prod(shape, dtype=np.int64)) > ELEMENTS:
        return None

    def run(x: Any) -> Any:
        return lax.reduce_window(
            x, jnp.asarray(init, x.dtype), combine, size, stride, padding, base, dilation
        )

    text = f"reduce_window {name} {init} {size} {stride} {padding} {base} {dilation}"
    value = result(of, exact, shape=tuple(shape))
    return Step(text, (index,), (value,), run, rounds=not exact)


@step
def running(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank > 0 and v.dtype != "bool")
    if index is None:
        return None
    of = pool[index]
    runs = [lax.cummax, lax.cummin] if of.exact else []
    run = rng.choice([lax.cumsum, *runs])
    exact = of.integral or (of.exact and run is not lax.cumsum)
    dim, back = rng.randrange(of.rank), rng.random() < 0.4
    return Step(
        f"{run.__name__} {dim} {back}",
        (index,),
        (result(of, exact),),
        lambda x: run(x, axis=dim, reverse=back),
        rounds=not exact,
    )


@step
def normal_form(rng: random.Random, pool: Pool) -> Step | None:
    """Softmax and layer norm, rows of NaN and infinities included."""
    index = one(rng, pool, lambda v: v.rank > 0 and v.floating)
    if index is None:
        return None
    of = pool[index]
    dim = rng.randrange(of.rank)
    runs: dict[str, Run] = {
        "softmax": lambda x: jax.nn.softmax(x, dim),
        "log_softmax": lambda x: jax.nn.log_softmax(x, dim),
        "standardize": lambda x: jax.nn.standardize(x, dim, epsilon=0.01),
        "center": lambda x: x - jnp.mean(x, dim, keepdims=True, dtype=x.dtype),
        "share": lambda x: x / (jnp.sum(jnp.abs(x), dim, keepdims=True, dtype=x.dtype) + 1),
    }
    name = rng.choice(list(runs))
    return Step(f"{name} {dim}", (index,), (result(of, False),), runs[name], rounds=True)


@step
def product(rng: random.Random, pool: Pool) -> Step | None:
    index = one(rng, pool, lambda v: v.rank == 2 and v.floating and max(v.shape) <= 65)
    if index is None:
        return None
    of = pool[index]
    rows = of.shape[0]
    return Step(
        "x x^T",
        (index,),
        (result(of, False, shape=(rows, rows)),),
        lambda x: jnp.matmul(x, x.T, precision="highest", preferred_element_type=x.dtype),
        rounds=True,
    )


@step
def places(rng: random.Random, pool: Pool) -> Step | None:
    """Positions along one dimension, as integers of the shape of another value."""
    index = one(rng, pool, lambda v: v.rank > 0)
    if index is None:
        return None
    of = pool[index]
    dim = rng.randrange(of.rank)
    return Step(
        f"iota {dim}",
        (index,),
        (Value(of.shape, "int32", True),),
        lambda x: lax.broadcasted_iota(jnp.int32, x.shape, dim),
    )
