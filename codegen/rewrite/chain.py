"""Makes the ops that replace one op of a region."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES

#: Reducers that a chain of ops of two values joins as well.
JOINING = frozenset({"add", "multiply", "maximum", "minimum", "and", "or"})


class Chain:
    """New ops, in order; the last one made stands for `instead_of` and takes its name."""

    def __init__(self, instead_of: Op):
        self.instead_of = instead_of
        self.ops: list[Op] = []

    def make(
        self, opcode: str, dtype: str, dims: tuple[int, ...], *operands: Op, **attrs: Any
    ) -> Op:
        op, name = self.instead_of, f"{self.instead_of.name}_{opcode}"
        self.ops.append(Op(opcode, Shape(dtype, dims), operands, attrs, name, source=op.source))
        return self.ops[-1]

    def like(self, x: Op, opcode: str, *operands: Op, **attrs: Any) -> Op:
        """An op of the type and dims of `x`."""
        return self.make(opcode, x.dtype, x.dims, *operands, **attrs)

    def constant(self, value: Any, dtype: str) -> Op:
        """A constant of the dims of `value`."""
        array = np.array(value, NUMPY_DTYPES[dtype])
        array.flags.writeable = False
        return self.make("constant", dtype, array.shape, value=array)

    def scalar(self, value: Any, dtype: str) -> Op:
        return self.constant(value, dtype)

    def splat(self, value: Any, x: Op) -> Op:
        """`value` in each element of the type and dims of `x`."""
        return self.like(x, "broadcast", self.scalar(value, x.dtype), dimensions=())

    def integers(self, value: int, dims: tuple[int, ...]) -> Op:
        """An integer of 32 bits in each element of these dims."""
        return self.make("broadcast", "s32", dims, self.scalar(value, "s32"), dimensions=())

    def part(self, x: Op, axis: int, begin: int, end: int, step: int = 1) -> Op:
        """The elements of `x` from `begin` to `end` along a dim, or every `step`-th of them."""
        rank = range(x.shape.rank)
        start = tuple(begin if d == axis else 0 for d in rank)
        limit = tuple(end if d == axis else n for d, n in enumerate(x.dims))
        stride = tuple(step if d == axis else 1 for d in rank)
        dims = tuple(-(-(b - a) // by) for a, b, by in zip(start, limit, stride, strict=True))
        return self.make("slice", x.dtype, dims, x, start=start, limit=limit, stride=stride)

    def compare(self, x: Op, direction: str, y: Op) -> Op:
        """Whether `x` is to `y` as `direction` says, by element."""
        return self.make("compare", "pred", x.dims, x, y, direction=direction, total_order=False)

    def extended(self, x: Op, axis: int, low: int, high: int, value: Op | None = None) -> Op:
        """`x` with `value`, or 0, so many times before and after it along a dim; fewer elements
        where these are negative."""
        if not (low or high):
            return x
        rank = range(x.shape.rank)
        dims = tuple(n + (low + high if d == axis else 0) for d, n in enumerate(x.dims))
        attrs = {
            key: tuple(count if d == axis else 0 for d in rank)
            for key, count in (("low", low), ("high", high), ("interior", 0))
        }
        value = self.scalar(0, x.dtype) if value is None else value
        return self.make("pad", x.dtype, dims, x, value, **attrs)

    def in_order(self, x: Op, order: tuple[int, ...]) -> Op:
        """`x` with its dims in another order."""
        if order == tuple(range(len(order))):
            return x
        return self.make("transpose", x.dtype, tuple(x.dims[d] for d in order), x, dimensions=order)

    def strided(self, x: Op, axis: int, first: int, step: int) -> Op:
        """Every `step`-th element of `x` from `first` on along a dim, whose extent that divides."""
        return self.part(x, axis, first, x.dims[axis] - step + first + 1, step)

    def done(self) -> list[Op]:
        """The chain, as rules of `region.rewrite` give it."""
        last, op = self.ops[-1], self.instead_of
        last.name, last.origin = op.name, op.origin
        return self.ops
