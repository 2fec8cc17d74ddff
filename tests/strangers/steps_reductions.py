"""What a step can be: reductions, windows, running ones, and what is made of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.strangers import bodies
from tests.strangers.steps import Pool, Run, Step, one, result, step
from tests.strangers.values import ELEMENTS, Value


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
