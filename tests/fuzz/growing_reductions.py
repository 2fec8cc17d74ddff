"""Growth of reductions over windows, and of reductions by bodies of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import Graph, Op, Shape
from tests.fuzz.growing import Growing
from tests.fuzz.values import FLOATS, INTEGERS, TypedBuilder, Value

#: The largest window that is grown.
STEPS = 40


def plain_body(opcode: str, dtype: str) -> Graph:
    """(a, b) -> opcode(a, b)"""
    b = TypedBuilder()
    x, y = b.parameter((), dtype), b.parameter((), dtype)
    return b.graph(b.binary(opcode, x, y), name=opcode)


def place_body(dtype: str, index: str) -> Graph:
    """(two of (value, place)) -> the larger value or NaN, the smaller place among equals"""
    b = TypedBuilder()
    v, p = b.parameter((), dtype), b.parameter((), index)
    w, q = b.parameter((), dtype), b.parameter((), index)

    def compare(direction: str, x: Op, y: Op) -> Op:
        return b.op("compare", (), x, y, dtype="pred", direction=direction, total_order=False)

    nan, other = compare("NE", v, v), compare("NE", w, w)
    equal = b.binary("or", compare("EQ", v, w), b.binary("and", nan, other))
    above = b.binary("or", compare("GT", v, w), b.binary("and", nan, b.unary("not", other)))
    first = b.binary("or", above, b.binary("and", equal, compare("LT", p, q)))
    return b.graph(
        b.op("select", (), first, v, w, dtype=dtype), b.op("select", (), first, p, q, dtype=index)
    )


def logaddexp_body(dtype: str) -> Graph:
    """(a, b) -> max(a, b) + log1p(exp(-|a - b|)), whose last term is 0 for equal infinities"""
    b = TypedBuilder()
    x, y = b.parameter((), dtype), b.parameter((), dtype)
    same = b.op("compare", (), x, y, dtype="pred", direction="EQ", total_order=False)
    size = b.unary("abs", b.sub(x, y))
    size = b.op("select", (), same, b.constant(0, dtype), size, dtype=dtype)
    apart = b.unary("negate", size)
    more = b.unary("log-plus-one", b.exp(apart))
    return b.graph(b.add(b.binary("maximum", x, y), more))


def moments_body(dtype: str) -> Graph:
    """((n, s, q), (n, s, q)) -> their sums"""
    b = TypedBuilder()
    parameters = [b.parameter((), dtype) for _ in range(6)]
    return b.graph(*(b.add(parameters[i], parameters[i + 3]) for i in range(3)))


class Reductions(Growing):
    """Steps of `Growth`."""

    def window(self) -> Value | None:
        """Windows of any stride, padding and dilation."""
        x = self.any((*FLOATS, *INTEGERS), least_rank=1)
        if x is None:
            return None
        found = [self._window_of(n) for n in x.dims]
        size, stride, low, high, base, inside, dims = zip(*found, strict=True)
        count = math.prod(size)
        if min(dims) < 1 or math.prod(dims) > self.most or count > STEPS:
            return None
        return self._windows(x, dims, count, size, stride, low, high, base, inside)

    def _window_of(self, n: int) -> tuple[int, ...]:
        """Size, stride, low, high, base dilation, window dilation and windows along one dim."""
        size = self.pick((1, 1, 2, 3, 5))
        stride, base, inside = self.pick((1, 1, 2)), self.pick((1, 1, 1, 2)), self.pick((1, 1, 2))
        low, high = (self.pick((0, 0, 1, 2)) for _ in range(2))
        room = (n - 1) * base + 1 + low + high - (size - 1) * inside - 1
        return size, stride, low, high, base, inside, room // stride + 1 if room >= 0 else 0

    def running(self) -> Value | None:
        """All running sums along a dim, from either end."""
        x = self.any((*FLOATS, *INTEGERS), least_rank=1)
        if x is None:
            return None
        dim = self.number(0, len(x.dims) - 1)
        n, rank = x.dims[dim], range(len(x.dims))
        if n > 300 or math.prod(x.dims) > 5000:
            return None
        size, before = (
            tuple(value if d == dim else rest for d in rank) for value, rest in ((n, 1), (n - 1, 0))
        )
        none, ones = tuple(0 for _ in rank), tuple(1 for _ in rank)
        low, high = (none, before) if self.flag() else (before, none)
        return self._windows(x, x.dims, n, size, ones, low, high, ones, ones)

    def _windows(self, x: Value, dims: Sequence[int], count: int, *attrs: Any) -> Value:
        name = self.pick(("add", "maximum", "minimum"))
        init = self.b.constant(identity(name, x.dtype), x.dtype)
        keys = ("size", "stride", "low", "high", "base_dilation", "window_dilation")
        op = self.b.op(
            "reduce-window",
            tuple(dims),
            x.op,
            init,
            called=(plain_body(name, x.dtype),),
            reducer=name,
            **dict(zip(keys, attrs, strict=True)),
        )
        if name != "add" and x.dtype in FLOATS:  # windows of padding alone hold infinities
            bound = self.b.constant(x.bound, x.dtype)
            low = self.b.unary("negate", bound)
            op = self.b.op("clamp", op.shape, low, op, bound)
        return self.keep(op, x.exact, x.bound * count if name == "add" else x.bound)

    def _summed(self, x: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
        dimensions = self.subset(range(len(x.dims)))
        return dimensions, tuple(n for d, n in enumerate(x.dims) if d not in dimensions)

    def place(self) -> Value | None:
        """The largest element and its place."""
        x = self.any((*FLOATS, *INTEGERS), least_rank=1)
        if x is None or not x.exact or x.dtype in ("bf16", "f16"):
            return None
        dimensions, dims = self._summed(x)
        index = self.pick(("s32", "u32", "s64"))
        along = self.pick(dimensions)
        places = self.b.op("iota", x.dims, dtype=index, dimension=along)
        lowest = self.b.constant(identity("maximum", x.dtype), x.dtype)
        most = self.b.constant(np.iinfo({"s32": "i4", "u32": "u4", "s64": "i8"}[index]).max, index)
        found = self._several(
            dimensions, dims, (x.op, places), (lowest, most), place_body(x.dtype, index)
        )
        self.keep(found[1])
        return self.keep(found[0], True, x.bound)

    def moments(self) -> Value | None:
        """Count, sum and sum of squares at once."""
        x = self.any(FLOATS, least_rank=1)
        if x is None:
            return None
        dimensions, dims = self._summed(x)
        zero = self.b.constant(0, x.dtype)
        inputs = self.splat(1, x.op), x.op, self.b.mul(x.op, x.op)
        found = self._several(dimensions, dims, inputs, (zero,) * 3, moments_body(x.dtype))
        count = math.prod(x.dims[d] for d in dimensions)
        self.keep(found[0], True, count)
        self.keep(found[2], False, count * x.bound**2)
        return self.keep(found[1], False, count * x.bound)

    def logaddexp(self) -> Value | None:
        """A reduction of one value by a body of its own."""
        x = self.any(("f32", "f64"), least_rank=1)
        if x is None:
            return None
        dimensions, dims = self._summed(x)
        lowest = self.b.constant(-np.inf, x.dtype)
        body = logaddexp_body(x.dtype)
        op = self.b.op(
            "reduce", dims, x.op, lowest, called=(body,), dimensions=dimensions, reducer=None
        )
        return self.keep(op, False, x.bound + 10)

    def _several(
        self,
        dimensions: tuple[int, ...],
        dims: tuple[int, ...],
        inputs: Sequence[Op],
        inits: Sequence[Op],
        body: Graph,
    ) -> list[Op]:
        parts = tuple(Shape(x.dtype, dims) for x in inputs)
        whole = self.b.op(
            "reduce",
            Shape("tuple", (), parts),
            *inputs,
            *inits,
            called=(body,),
            dimensions=dimensions,
            reducer=None,
        )
        return [self.b.op("get-tuple-element", s, whole, index=i) for i, s in enumerate(parts)]
