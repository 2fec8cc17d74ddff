"""A function in the making while JAX traces it: what is drawn, and the values there are.

Floats stay within about 2 and every step is contractive, so that roundings do not grow over the
iterations. What was rounded to 16 bits (`Value.rough`) decides nothing, and ends in 16 bits.
In a wide program (`Growing.wide`) JAX has 64 bits, and what would be float32 is float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROUGH = (jnp.bfloat16, jnp.float16)
FLOATS = (jnp.float32, *ROUGH)
#: The types of values. Those of 64 bits have 32 where JAX has no others.
DTYPES = (
    *(jnp.float32, jnp.float32, jnp.int32, jnp.bool_, jnp.bfloat16, jnp.int8, jnp.uint32),
    *(jnp.float16, jnp.uint8, jnp.int16, jnp.uint16, jnp.int64, jnp.uint64),
)
EXTENTS = (3, 1, 2, 4, 5, 7, 8, 12)
LONG = (17, 33, 40)
#: Extents that one block does not do at once.
VAST = (521, 1500)
#: Elements of a constant that the importer takes in.
MOST_DRAWN = 64


@dataclass(frozen=True)
class Value:
    """An array, and whether 16 bits are what it is known to."""

    x: Any
    rough: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return self.x.shape

    @property
    def dtype(self) -> Any:
        return self.x.dtype


class Choices:
    """Draws one of a sequence, the simplest first. `again` draws all the same once more: functions
    are traced several times."""

    def __init__(self, draw: Callable[[int], int]):
        self.draw = draw
        self.drawn: list[int] = []
        self.at = 0

    def again(self) -> None:
        self.at = 0

    def pick(self, items: Sequence[Any]) -> Any:
        if self.at == len(self.drawn):
            self.drawn.append(self.draw(len(items)))
        self.at += 1
        return items[self.drawn[self.at - 1]]


class Growing:
    """The values in scope: those of a body go when it ends."""

    def __init__(self, choices: Choices):
        self.choices = choices
        self.values: list[Value] = []
        self.depth = 0
        #: the steps that may follow
        self.left = 0
        #: whether only loops that have a gradient may grow
        self.smooth = False
        #: whether there are 64 bits
        self.wide = False

    # ---- choices --------------------------------------------------------------------------------

    def pick(self, items: Sequence[Any]) -> Any:
        return self.choices.pick(items)

    def flag(self) -> bool:
        return self.pick((False, True))

    def number(self, low: int, high: int) -> int:
        return self.pick(range(low, high + 1))

    def own(self, dtype: Any) -> Any:
        """The type that a program of this width has for another."""
        if self.wide:
            return jnp.float64 if dtype == jnp.float32 else dtype
        return jax.dtypes.canonicalize_dtype(dtype)

    def type(self, dtypes: Sequence[Any] = DTYPES) -> Any:
        return self.own(self.pick(dtypes))

    def dims(self) -> tuple[int, ...]:
        rank = self.pick((1, 2, 2, 0, 3))
        rare = self.pick(range(60)) if rank else 0
        if rare >= 55:
            return (self.pick(EXTENTS), self.pick(LONG))[2 - min(rank, 2) :]
        if rare == 54:
            return (self.pick(EXTENTS[:4]), self.pick(VAST))[2 - min(rank, 2) :]
        if rare == 53:  # no elements
            return (self.pick(EXTENTS), 0)[2 - min(rank, 2) :]
        return tuple(self.pick(EXTENTS[: 8 if rank < 3 else 5]) for _ in range(rank))

    def any(self, *dtypes: Any, exact: bool = False, least_rank: int = 0) -> Value:
        """A value, the latest first; a new one if none fits."""
        dtypes = tuple(map(self.own, dtypes))
        fits = [
            v
            for v in reversed(self.values)
            if (not dtypes or v.dtype in dtypes)
            and not (exact and (v.rough or v.dtype in ROUGH))
            and len(v.dims) >= least_rank
            and not (least_rank and 0 in v.dims)
        ]
        if fits:
            return self.pick(fits[:8])
        expected = self.type(dtypes or DTYPES)
        return self.constant((3, 4)[: max(least_rank, 1)], expected)

    def constant(self, dims: tuple[int, ...], dtype: Any) -> Value:
        """A table, an iota or a splat."""
        dtype = self.own(dtype)
        kind = self.number(0, 2)
        if kind == 2 or not dims or (kind == 0 and math.prod(dims) > MOST_DRAWN):
            return Value(jnp.full(dims, drawn((), dtype, self.number(0, 5))))
        if kind == 1 and dtype != jnp.bool_:
            x = jax.lax.broadcasted_iota(jnp.int32, dims, self.number(0, len(dims) - 1))
            return Value(
                (x.astype(jnp.float32) / 8).astype(dtype) if is_float(dtype) else x.astype(dtype)
            )
        return Value(jnp.asarray(drawn(dims, dtype, self.number(0, 5))))

    # ---- values ---------------------------------------------------------------------------------

    @contextmanager
    def scope(self, values: Sequence[Value] = ()) -> Iterator[None]:
        before = self.values
        self.values = [*before, *values]
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            self.values = before

    def keep(self, x: Any, *of: Value) -> Value:
        """Enters a value made of others."""
        rough = is_float(x.dtype) and any(v.rough or v.dtype in ROUGH for v in of)
        self.values.append(Value(x, rough))
        return self.values[-1]

    def typed(self, value: Value, dtype: Any) -> Value:
        """A value in another type, if it may decide that much."""
        dtype = self.own(dtype)
        if value.dtype == dtype:
            return value
        if is_float(dtype):
            if is_float(value.dtype):
                return Value(value.x.astype(dtype), rough=dtype not in ROUGH)
            small = value.x.astype(jnp.int32) % 7
            return Value((small.astype(jnp.float32) * 0.25 - 0.5).astype(dtype))
        x = value.x
        if is_float(value.dtype):
            if value.rough or value.dtype in ROUGH:
                return self.constant(value.dims, dtype)
            if dtype == jnp.bool_:
                return Value(x > 0.11)
            x = jnp.floor(x * 5.3).astype(jnp.int32)
        return Value(x % 3 == 1 if dtype == jnp.bool_ and x.dtype != jnp.bool_ else x.astype(dtype))

    def conformed(self, value: Value, dims: tuple[int, ...]) -> Value:
        """A value brought into a shape."""
        x = value.x
        if 0 in x.shape and 0 not in dims:
            return self.constant(dims, x.dtype)
        while x.ndim > len(dims):
            axis = self.number(0, x.ndim - 1)
            whole = self.flag() or not x.shape[axis]
            x = self.reduced(x, axis) if whole else jnp.take(x, x.shape[axis] // 2, axis)
        if x.ndim < len(dims):
            x = x.reshape(x.shape + (1,) * (len(dims) - x.ndim))
        for axis, n in enumerate(dims):
            has = x.shape[axis]
            if has > n:
                x = jax.lax.slice_in_dim(x, has - n, has, axis=axis)
            elif 1 < has < n:
                every = np.arange(n) if n <= MOST_DRAWN else jnp.arange(n)
                x = jnp.take(x, every % has, axis)
        return Value(jnp.broadcast_to(x, dims), value.rough)

    def reduced(self, x: Any, axis: int | tuple[int, ...] | None, keep: bool = False) -> Any:
        if x.dtype == jnp.bool_:
            return self.pick((jnp.any, jnp.all))(x, axis, keepdims=keep)
        if 0 in x.shape:
            return jnp.sum(x, axis, keepdims=keep).astype(x.dtype)
        if is_float(x.dtype):
            way = self.pick((jnp.mean, jnp.max, jnp.min))
            return way(x, axis, keepdims=keep).astype(x.dtype)
        way = self.pick((jnp.sum, jnp.max, jnp.min))
        return way(x, axis, keepdims=keep).astype(x.dtype)

    def like(self, dims: tuple[int, ...], dtype: Any) -> Value:
        """A value of a shape and a type: one as it is, or made of any."""
        dtype = self.own(dtype)
        fits = [v for v in reversed(self.values) if v.dims == dims and v.dtype == dtype]
        if fits and self.pick(range(4)):
            return self.pick(fits[:5])
        if self.pick(range(6)) == 5:
            return self.constant(dims, dtype)
        return self.conformed(self.typed(self.any(), dtype), dims)

    def handed_on(self, dims: tuple[int, ...], dtype: Any) -> Value:
        """The same of a value that may leave a body: no rough one."""
        value = self.like(dims, dtype)
        if value.rough and dtype not in ROUGH:
            return self.constant(dims, dtype)
        return value


def is_float(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def drawn(dims: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """Floats within 2, small integers, or coin tosses."""
    rng = np.random.default_rng([seed, *dims])
    if dtype == jnp.bool_:
        return rng.random(dims) < 0.5
    if is_float(dtype):
        return rng.uniform(-1.5, 1.5, dims).astype(dtype)
    return rng.integers(0, 9, dims).astype(dtype)
