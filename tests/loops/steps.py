"""What a body does: one op, or a few, that make one value of others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.loops.growing import FLOATS, ROUGH, Growing, Value, is_float

INTS = (
    *(jnp.int32, jnp.uint32, jnp.int8, jnp.uint8, jnp.int16, jnp.uint16),
    *(jnp.int64, jnp.uint64),
)


class Steps(Growing):
    """Steps without a body of their own."""

    STEPS = (
        *("unary", "binary", "binary", "integers", "compare", "select", "reduce", "reduce"),
        *("centre", "place", "running", "roll", "flip", "transpose", "reshape", "slices"),
        *("pad", "join", "slice_at", "update_at", "update_at", "gather", "along", "put", "add_at"),
        *("product", "product", "convert", "draw", "neighbours", "softmax"),
    )

    def unary(self) -> None:
        v = self.any(*FLOATS)
        ways = (
            jnp.tanh,
            lambda x: x * 0.5 + 0.25,
            jnp.negative,
            jnp.abs,
            jnp.sin,
            lambda x: jnp.exp(-jnp.abs(x)),
            lambda x: jnp.clip(x, -0.7, 0.9),
            lambda x: 1 / (1.5 + x * x),
        )
        self.keep(self.pick(ways)(v.x), v)

    def binary(self) -> None:
        a = self.any(*FLOATS)
        b = self.like(a.dims, a.dtype)
        ways = (
            lambda a, b: a * 0.5 + b * 0.5,
            lambda a, b: a * 0.75 - b * 0.25,
            lambda a, b: a * b * 0.5,
            jnp.maximum,
            jnp.minimum,
        )
        self.keep(self.pick(ways)(a.x, b.x), a, b)

    def integers(self) -> None:
        a = self.any(*INTS)
        b = self.like(a.dims, a.dtype)
        ways = (
            jnp.add,
            jnp.subtract,
            lambda a, b: a * 3 + b,
            jnp.bitwise_xor,
            jnp.maximum,
            lambda a, b: a % 5,
            lambda a, b: a >> 1,
        )
        self.keep(self.pick(ways)(a.x, b.x), a, b)

    def compare(self) -> None:
        a = self.any(exact=True)
        b = self.like(a.dims, a.dtype)
        if b.rough or a.dtype in ROUGH:
            return
        if a.dtype == jnp.bool_:
            self.keep(self.pick((jnp.logical_and, jnp.logical_or, jnp.not_equal))(a.x, b.x))
        elif is_float(a.dtype):
            self.keep(a.x > b.x + 0.0137)
        else:
            self.keep(self.pick((jnp.less, jnp.equal, jnp.greater_equal))(a.x, b.x))

    def select(self) -> None:
        a = self.any()
        b = self.like(a.dims, a.dtype)
        c = self.like(a.dims if self.flag() else (), jnp.bool_)
        self.keep(jnp.where(c.x, a.x, b.x), a, b)

    def reduce(self) -> None:
        v = self.any(least_rank=1)
        axes = tuple(d for d in range(len(v.dims)) if self.flag()) or None
        self.keep(self.reduced(v.x, axes, self.flag()), v)

    def centre(self) -> None:
        v = self.any(jnp.float32, least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        self.keep((v.x - v.x.mean(axis, keepdims=True)) * 0.5, v)

    def softmax(self) -> None:
        v = self.any(jnp.float32, least_rank=1)
        self.keep(jax.nn.softmax(v.x, self.number(0, len(v.dims) - 1)), v)

    def place(self) -> None:
        v = self.any(jnp.float32, *INTS, exact=True, least_rank=1)
        way = self.pick((jnp.argmax, jnp.argmin))
        axis = self.pick((None, *range(len(v.dims))))
        self.keep(way(v.x, axis).astype(jnp.int32))

    def running(self) -> None:
        v = self.any(jnp.float32, jnp.int32, least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        if is_float(v.dtype):
            way = self.pick((lambda x, a: jnp.cumsum(x, a) / x.shape[a], lax.cummax))
            self.keep(way(v.x, axis), v)
        else:
            self.keep(jnp.cumsum(v.x, axis).astype(v.dtype))

    def roll(self) -> None:
        v = self.any(least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        self.keep(jnp.roll(v.x, self.pick((1, -1, 2)), axis), v)

    def flip(self) -> None:
        v = self.any(least_rank=1)
        self.keep(jnp.flip(v.x, self.number(0, len(v.dims) - 1)), v)

    def transpose(self) -> None:
        v = self.any(least_rank=2)
        self.keep(jnp.swapaxes(v.x, 0, self.number(1, len(v.dims) - 1)), v)

    def reshape(self) -> None:
        v = self.any(least_rank=1)
        if len(v.dims) == 1 and v.dims[0] % 2 == 0:
            self.keep(v.x.reshape(2, -1), v)
        else:
            self.keep(v.x.reshape(-1), v)

    def slices(self) -> None:
        v = self.any(least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        n = v.dims[axis]
        start = self.number(0, n - 1)
        self.keep(lax.slice_in_dim(v.x, start, n, self.pick((1, 2)), axis), v)

    def pad(self) -> None:
        v = self.any(least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        if v.dims[axis] > 12:
            return
        wide = [(1, 1, 0) if d == axis else (0, 0, 0) for d in range(len(v.dims))]
        self.keep(lax.pad(v.x, jnp.zeros((), v.dtype), wide), v)

    def join(self) -> None:
        a = self.any(least_rank=1)
        if max(a.dims) > 12:
            return
        b = self.like(a.dims, a.dtype)
        axis = self.number(0, len(a.dims) - 1)
        self.keep(jnp.concatenate([a.x, b.x], axis), a, b)

    def neighbours(self) -> None:
        v = self.any(*FLOATS, least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        around = jnp.roll(v.x, 1, axis) + jnp.roll(v.x, -1, axis)
        self.keep(v.x * 0.5 + around * 0.25, v)

    # ---- indices --------------------------------------------------------------------------------

    def at(self) -> Any:
        """An index: a counter, or decided by the data; some lie outside."""
        whole = [v for v in reversed(self.values) if v.dtype in INTS and not v.dims]
        if whole and self.pick(range(3)):
            at = self.pick(whole[:4]).x.astype(jnp.int32)
        else:
            at = self.like((), jnp.int32).x
        return self.pick((at, at + 1, at * 2, at - 1, jnp.int32(3)))

    def starts(self, rank: int) -> list[Any]:
        return [self.at() if self.flag() else jnp.int32(self.number(0, 1)) for _ in range(rank)]

    def sizes(self, v: Value) -> tuple[int, ...]:
        return tuple(self.pick((n, 1, max(1, n - 1))) for n in v.dims)

    def slice_at(self) -> None:
        v = self.any(least_rank=1)
        self.keep(lax.dynamic_slice(v.x, self.starts(len(v.dims)), self.sizes(v)), v)

    def update_at(self) -> None:
        v = self.any(least_rank=1)
        new = self.like(self.sizes(v), v.dtype)
        self.keep(lax.dynamic_update_slice(v.x, new.x, self.starts(len(v.dims))), v, new)

    def gather(self) -> None:
        v = self.any(least_rank=1)
        at = self.like(self.pick(((3,), (), (2, 2))), jnp.int32)
        axis = self.number(0, len(v.dims) - 1)
        self.keep(jnp.take(v.x, at.x, axis, mode=self.pick(("clip", "wrap"))), v)

    def along(self) -> None:
        v = self.any(least_rank=1)
        axis = self.number(0, len(v.dims) - 1)
        dims = tuple(2 if d == axis else n for d, n in enumerate(v.dims))
        at = self.like(dims, jnp.int32)
        self.keep(jnp.take_along_axis(v.x, at.x % v.dims[axis], axis), v)

    def put(self) -> None:
        v = self.any(least_rank=1)
        new = self.like(v.dims[1:], v.dtype)
        self.keep(v.x.at[self.at()].set(new.x), v, new)

    def add_at(self) -> None:
        v = self.any(jnp.float32, jnp.int32, least_rank=1)
        new = self.like(v.dims[1:], v.dtype)
        x = v.x * 0.5 if is_float(v.dtype) else v.x
        more = new.x * 0.5 if is_float(v.dtype) else new.x
        self.keep(x.at[self.at()].add(more), v, new)

    def product(self) -> None:
        a = self.any(*FLOATS, least_rank=1)
        n = a.dims[-1]
        dims = self.pick(((n, 4), (n,), (n, n)))
        b = self.like(dims, a.dtype)
        self.keep((jnp.dot(a.x, b.x, precision="highest") / (1.5 * n)).astype(a.dtype), a, b)

    def convert(self) -> None:
        v = self.any()
        dtype = self.type(
            (jnp.float32, jnp.bfloat16, jnp.int32, jnp.bool_, jnp.int8, jnp.float16, jnp.uint16)
        )
        new = self.typed(v, dtype)
        self.values.append(new)

    def key(self) -> Any:
        """A key: one that is carried, if any looks like it."""
        keys = [v.x for v in self.values if v.dtype == jnp.uint32 and v.dims == (2,)]
        return self.pick(keys[:3]) if keys else jax.random.PRNGKey(3)

    def draw(self) -> None:
        """Random numbers of a key that the data decides."""
        key = jax.random.fold_in(self.key(), self.like((), jnp.int32).x)
        dims = self.pick(((), (3,), (4, 2)))
        if self.flag():
            self.keep(jax.random.uniform(key, dims))
        else:
            self.keep(jax.random.randint(key, dims, 0, 9))
