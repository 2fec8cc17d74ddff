"""Growth of reductions, normalisations and dots."""

from __future__ import annotations

import math

from fusionstitch.codegen.text.expressions import identity
from tests.fuzz.growing import Growing
from tests.fuzz.values import (
    EXTENTS,
    FLOATS,
    INTEGERS,
    LONG,
    Value,
)


class Rows(Growing):
    """Steps of `Growth`."""

    def reduce(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        dimensions = self.subset(range(len(x.dims)))
        count = math.prod(x.dims[d] for d in dimensions)
        name = self.pick(
            ("and", "or")
            if x.dtype == "pred"
            else ("add", "maximum", "minimum", "multiply", "xor")
            if x.dtype in INTEGERS
            else ("add", "maximum", "minimum", "add")
        )
        dims = [n for d, n in enumerate(x.dims) if d not in dimensions]
        neutral = identity(name, x.dtype)
        if self.pick(range(4)) == 3 and name != "multiply":
            neutral = 1  # an init that counts
        init = self.b.constant(neutral, x.dtype)
        op = self.b.op("reduce", dims, x.op, init, dimensions=dimensions, reducer=name)
        bound = x.bound * count + 1 if name == "add" else max(x.bound, 1.0)
        return self.keep(op, x.exact, bound)

    def twins(self) -> Value | None:
        """The same op on parameters of several sizes: groups that may share a function."""
        dtype, name = self.pick(FLOATS), self.pick(("negate", "abs", "tanh"))
        value = None
        for _ in range(self.number(2, 4)):
            extents = LONG if self.flag() else EXTENTS
            x = self.b.parameter((self.pick(extents),), dtype)
            op = self.b.unary(name, self.b.mul(x, self.splat(0.5, x)))
            value = self.keep(op, False, 2.0)
        return value

    def normalize(self) -> Value | None:
        """x joined with its own reduction: rows that are walked more than once."""
        x = self.any(FLOATS, least_rank=1)
        if x is None:
            return None
        b, dimensions = self.b, self.subset(range(len(x.dims))[::-1])
        top = b.like(b.reduce(x.op, dimensions, "maximum"), x.op, dimensions)
        centred = b.sub(x.op, top)
        if self.flag():
            return self.keep(centred, x.exact, 2 * x.bound)
        e = b.exp(centred)
        total = b.like(b.reduce(e, dimensions), x.op, dimensions)
        return self.keep(b.div(e, total), False, 1.0)

    def dot(self) -> Value | None:
        """x times y over one dim or two; y is another value, x itself, or one made to fit."""
        x = self.any(FLOATS, least_rank=1)
        if x is None:
            return None
        others = [v for v in self.values if v.dtype == x.dtype and set(v.dims) & set(x.dims)]
        y = self.pick(others[::-1])
        pairs: list[tuple[int, int]] = []
        for d, n in enumerate(x.dims):
            fits = [e for e, m in enumerate(y.dims) if m == n and e not in [p[1] for p in pairs]]
            if fits and len(pairs) < 3 and self.flag():
                pairs.append((d, self.pick(fits)))
        if not pairs:
            d = next((d for d in reversed(range(len(x.dims))) if x.dims[d] in y.dims), None)
            if d is None:
                return None
            pairs.append((d, y.dims.index(x.dims[d])))
        split = self.number(0, len(pairs) - 1)
        batch, contract = pairs[:split], pairs[split:]
        used_x, used_y = {p[0] for p in pairs}, {p[1] for p in pairs}
        dims = [x.dims[p[0]] for p in batch]
        dims += [n for d, n in enumerate(x.dims) if d not in used_x]
        dims += [n for d, n in enumerate(y.dims) if d not in used_y]
        count = math.prod(x.dims[p[0]] for p in contract)
        if math.prod(dims) > self.most or math.prod(dims) * count > 40 * self.most:
            return None
        op = self.b.op(
            "dot",
            dims,
            x.op,
            y.op,
            lhs_batch=tuple(p[0] for p in batch),
            rhs_batch=tuple(p[1] for p in batch),
            lhs_contract=tuple(p[0] for p in contract),
            rhs_contract=tuple(p[1] for p in contract),
            precision="default",
        )
        return self.keep(op, False, x.bound * y.bound * count)
