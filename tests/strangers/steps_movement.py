"""What a step can be: ops that move elements, at fixed places and at those of the data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.strangers.steps import Pool, Run, Step, one, result, step
from tests.strangers.values import ELEMENTS, EXTENTS


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
