"""A graph in the making: what is drawn, and the values there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fusionstitch.hlo.graph import Op
from tests.fuzz.values import (
    BOUND,
    DTYPES,
    EXTENTS,
    FLOATS,
    LONG,
    SIZES,
    TypedBuilder,
    Value,
    drawn,
)


class Growing:
    """`pick` draws one of a sequence, the simplest first."""

    def __init__(self, pick: Callable[[Sequence[Any]], Any]):
        self.pick = pick
        self.b = TypedBuilder()
        self.values: list[Value] = []
        self.most = SIZES[0]

    # ---- choices --------------------------------------------------------------------------------

    def flag(self) -> bool:
        return self.pick((False, True))

    def number(self, low: int, high: int) -> int:
        return self.pick(range(low, high + 1))

    def subset(self, items: Sequence[Any]) -> tuple[Any, ...]:
        """At least one of `items`, in order."""
        chosen = [i for i in items if self.flag()]
        return tuple(chosen) or (self.pick(items),)

    def permutation(self, rank: int) -> tuple[int, ...]:
        left, order = list(range(rank)), []
        while left:
            order.append(left.pop(self.number(0, len(left) - 1)))
        return tuple(order)

    def dims(self) -> tuple[int, ...]:
        found: list[int] = []
        for _ in range(self.pick((2, 1, 3, 0, 4))):
            extents = LONG if self.most > SIZES[1] and self.pick(range(4)) == 3 else EXTENTS
            fits = [e for e in extents if math.prod(found) * e <= self.most] or [1]
            found.append(self.pick(fits))
        return tuple(found)

    def any(self, dtypes: Sequence[str] = (), least_rank: int = 0) -> Value | None:
        """A value, the latest first."""
        fits = [
            v
            for v in reversed(self.values)
            if (not dtypes or v.dtype in dtypes) and len(v.dims) >= least_rank
        ]
        return self.pick(fits) if fits else None

    # ---- making values --------------------------------------------------------------------------

    def keep(self, op: Op, exact: bool = True, bound: float = 2.0) -> Value:
        """Enters a value; floats that may be too large are scaled down."""
        value = Value(op, exact and op.dtype not in ("bf16", "f16"), bound)
        if op.dtype in FLOATS and bound > BOUND:
            scale = 2.0 ** -math.ceil(math.log2(bound / 2))
            op = self.b.mul(op, self.splat(scale, op))
            value = Value(op, value.exact and scale >= 2**-12, bound * scale)
        self.values.append(value)
        return value

    def splat(self, number: float, like: Op) -> Op:
        return self.b.splat(number, like.dims, like.dtype)

    def parameter(self) -> Value:
        dtype, dims = self.pick(DTYPES), self.dims()
        value = Value(self.b.parameter(dims, dtype))
        self.values.append(value)
        return value

    def source(self) -> Value | None:
        """An iota or a small table."""
        dims = self.dims()
        if dims and self.flag():
            dtype = self.pick(("s32", "f32"))
            dim = self.number(0, len(dims) - 1)
            op = self.b.op("iota", dims, dtype=dtype, dimension=dim)
            return self.keep(op, bound=dims[dim])
        if math.prod(dims) > 64:
            return None
        dtype = self.pick(("f32", "s32", "bf16", "pred", "f64", "s8"))
        return self.keep(self.b.constant(drawn(dims, dtype, self.number(0, 3)), dtype))

    def shaped(self, wanted: Value) -> Value:
        """A value of the shape of `wanted`: another one, or one brought into that shape."""
        fits = [v for v in reversed(self.values) if v.op.shape == wanted.op.shape]
        ways: list[Callable[[], Value]] = [lambda: self.pick(fits)]
        dims = wanted.dims
        for v in self.values:
            if v.dtype != wanted.dtype or v.dims == dims:
                continue
            if len(v.dims) < len(dims):
                mapping = embedding(v.dims, dims)
                if mapping is not None:
                    ways.append(lambda v=v, m=mapping: self._broadcast(v, dims, m))
            if sorted(v.dims) == sorted(dims):
                ways.append(lambda v=v: self._permuted(v, dims))
            elif math.prod(v.dims) == math.prod(dims):
                ways.append(lambda v=v: self._moved(v, self.b.reshape(v.op, dims)))
        square = len(dims) >= 2 and dims[-1] == dims[-2]
        if square:
            order = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
            ways.append(lambda: self._moved(wanted, self.b.transpose(wanted.op, order)))
        return self.pick(ways[:6])()

    def _moved(self, x: Value, op: Op) -> Value:
        value = Value(op, x.exact, x.bound)
        self.values.append(value)
        return value

    def _broadcast(self, x: Value, dims: tuple[int, ...], mapping: tuple[int, ...]) -> Value:
        return self._moved(x, self.b.broadcast(x.op, dims, mapping))

    def _permuted(self, x: Value, dims: tuple[int, ...]) -> Value:
        left = list(range(len(dims)))
        order = []
        for extent in dims:
            d = next(d for d in left if x.dims[d] == extent)
            left.remove(d)
            order.append(d)
        return self._moved(x, self.b.transpose(x.op, order))


def embedding(small: Sequence[int], large: Sequence[int]) -> tuple[int, ...] | None:
    """Ascending dims of `large` that have the extents of `small`, or None."""
    found: list[int] = []
    for extent in small:
        start = found[-1] + 1 if found else 0
        d = next((d for d in range(start, len(large)) if large[d] == extent), None)
        if d is None:
            return None
        found.append(d)
    return tuple(found)
