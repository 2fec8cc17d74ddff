"""Growth of ops that move elements to places known beforehand."""

from __future__ import annotations

import math

from tests.fuzz.growing import Growing
from tests.fuzz.values import (
    EXTENTS,
    Value,
)


class Movement(Growing):
    """Steps of `Growth`."""

    def broadcast(self) -> Value | None:
        x = self.any()
        if x is None or len(x.dims) > 3:
            return None
        extent = self.pick([e for e in EXTENTS if e * math.prod(x.dims) <= self.most] or [1])
        at = self.number(0, len(x.dims))
        dims = (*x.dims[:at], extent, *x.dims[at:])
        return self._broadcast(x, dims, tuple(d for d in range(len(dims)) if d != at))

    def transpose(self) -> Value | None:
        x = self.any(least_rank=2)
        if x is None:
            return None
        return self._moved(x, self.b.transpose(x.op, self.permutation(len(x.dims))))

    def reshape(self) -> Value | None:
        x = self.any()
        if x is None:
            return None
        left, dims = math.prod(x.dims), []
        for _ in range(self.number(0, 3)):
            divisors = [d for d in range(1, left + 1) if left % d == 0][:24]
            dims.append(self.pick(divisors))
            left //= dims[-1]
        at = self.number(0, len(dims))
        return self._moved(x, self.b.reshape(x.op, (*dims[:at], left, *dims[at:])))

    def slice(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        bounds = []
        for n in x.dims:
            start = self.number(0, min(n - 1, 40))
            limit = n - self.number(0, min(n - 1 - start, 40))
            bounds.append((start, limit, self.pick((1, 1, 2, 3))))
        start, limit, stride = zip(*bounds, strict=True)
        dims = [-(-(b - a) // s) for a, b, s in bounds]
        op = self.b.op("slice", dims, x.op, start=start, limit=limit, stride=stride)
        return self._moved(x, op)

    def pad(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        edges, dims = [], []
        for n in x.dims:
            low, high = self.pick((0, 1, 3, -1)), self.pick((0, 2, 1, -1))
            interior = self.pick((0, 0, 0, 1, 2))
            total = low + high + n + (n - 1) * interior
            if total < 1:
                low, high, total = 0, 0, n + (n - 1) * interior
            edges.append((low, high, interior))
            dims.append(total)
        if math.prod(dims) > 2 * self.most:
            return None
        low, high, interior = zip(*edges, strict=True)
        value = self.b.constant(self.pick((0, 1)), x.dtype)
        op = self.b.op("pad", dims, x.op, value, low=low, high=high, interior=interior)
        return self._moved(x, op)

    def concatenate(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        axis = self.number(0, len(x.dims) - 1)

        def fits(v: Value) -> bool:
            same = v.dtype == x.dtype and len(v.dims) == len(x.dims)
            return same and all(
                a == b for d, (a, b) in enumerate(zip(v.dims, x.dims, strict=True)) if d != axis
            )

        others = [v for v in reversed(self.values) if fits(v)]
        parts = [x, *(self.pick(others) for _ in range(self.number(1, 2)))]
        if sum(v.op.shape.size for v in parts) > 2 * self.most:
            return None
        op = self.b.concatenate([v.op for v in parts], axis)
        value = Value(op, all(v.exact for v in parts), max(v.bound for v in parts))
        self.values.append(value)
        return value

    def reverse(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        flipped = self.subset(range(len(x.dims)))
        return self._moved(x, self.b.op("reverse", x.op.shape, x.op, dimensions=flipped))
