"""Growth of elementwise ops."""

from __future__ import annotations

import math

from fusionstitch.hlo.graph import ITEM_BYTES
from tests.fuzz.growing import Growing
from tests.fuzz.values import (
    COMPARISONS,
    FLOATS,
    INTEGER_OPS,
    INTEGERS,
    Value,
)


class Elementwise(Growing):
    """Steps of `Growth`."""

    def unary(self) -> Value | None:
        x = self.any()
        if x is None:
            return None
        b, op = self.b, x.op
        if x.dtype == "pred":
            return self.keep(b.unary("not", op))
        if x.dtype in INTEGERS:
            signed = ("abs", "sign") if x.dtype[0] == "s" else ()
            return self.keep(b.unary(self.pick(("negate", "not", "popcnt", *signed)), op))
        name = self.pick(
            ("negate", "abs", "tanh", "logistic", "exponential", "sine", "rsqrt", "sqrt", "floor")
        )
        if name in ("negate", "abs"):
            return self.keep(b.unary(name, op), x.exact, x.bound)
        if name == "floor":
            if not x.exact:
                return None
            return self.keep(b.unary(name, op), True, x.bound)
        if name == "exponential":  # of -|x|
            return self.keep(b.exp(b.unary("negate", b.unary("abs", op))), False, 1.0)
        if name in ("rsqrt", "sqrt"):  # of 1 + |x|
            safe = b.add(b.unary("abs", op), self.splat(1, op))
            return self.keep(b.unary(name, safe), False, math.sqrt(1 + x.bound))
        if name == "sine" and x.bound > 8:
            return None
        return self.keep(b.unary(name, op), False, 1.0)

    def binary(self) -> Value | None:
        x = self.any()
        if x is None:
            return None
        y = self.shaped(x)
        b, exact = self.b, x.exact and y.exact
        if x.dtype == "pred":
            return self.keep(b.binary(self.pick(("and", "or", "xor")), x.op, y.op))
        if x.dtype in INTEGERS:
            return self.keep(b.binary(self.pick(INTEGER_OPS), x.op, y.op))
        name = self.pick(("add", "multiply", "subtract", "maximum", "minimum", "divide"))
        if name == "divide":  # by 1 + |y|
            safe = b.add(b.unary("abs", y.op), self.splat(1, y.op))
            return self.keep(b.div(x.op, safe), False, x.bound)
        bound = {
            "add": x.bound + y.bound,
            "subtract": x.bound + y.bound,
            "multiply": x.bound * y.bound,
        }.get(name, max(x.bound, y.bound))
        # products of long fractions no longer fit a float
        return self.keep(b.binary(name, x.op, y.op), exact and name != "multiply", bound)

    def compare(self) -> Value | None:
        x = self.any((*FLOATS, *INTEGERS))
        if x is None or not (x.exact or x.op.opcode == "parameter"):
            return None
        y = self.shaped(x)
        if not (y.exact or y.op.opcode == "parameter"):
            return None
        direction = self.pick(COMPARISONS)
        op = self.b.op(
            "compare", x.dims, x.op, y.op, dtype="pred", direction=direction, total_order=False
        )
        return self.keep(op)

    def select(self) -> Value | None:
        which = self.any(("pred",))
        if which is None:
            return None
        fits = [v for v in self.values if v.dims == which.dims and v.dtype != "pred"]
        if not fits:
            return None
        x = self.pick(fits[::-1])
        y = self.shaped(x)
        op = self.b.op("select", x.op.shape, which.op, x.op, y.op)
        return self.keep(op, x.exact and y.exact, max(x.bound, y.bound))

    def clamp(self) -> Value | None:
        x = self.any((*FLOATS, *INTEGERS))
        if x is None:
            return None
        low, high = (
            self.b.constant(0 if x.dtype[0] == "u" else -1, x.dtype),
            self.b.constant(1, x.dtype),
        )
        return self.keep(self.b.op("clamp", x.op.shape, low, x.op, high), x.exact, 1.0)

    def convert(self) -> Value | None:
        x = self.any()
        if x is None:
            return None
        others = ("f32", "s32", "bf16", "pred", "f64", "u8", "s8", "f16", "u64")
        target = self.pick([t for t in others if t != x.dtype])
        if target not in FLOATS and not x.exact:
            return None
        op = self.b.op("convert", x.dims, x.op, dtype=target)
        if x.dtype in INTEGERS and target in FLOATS:
            scale = 2.0 ** (2 - 8 * ITEM_BYTES[x.dtype])
            return self.keep(self.b.mul(op, self.splat(scale, op)), False, 2.0)
        return self.keep(op, x.exact, x.bound)

    def regroup(self) -> Value | None:
        """The bits of integers as integers of another size."""
        x = self.any(("s32", "u32", "s64", "u64", "u16", "s16"))
        if x is None or len(x.dims) > 3:
            return None
        parts = self.pick([n for n in (2, 4) if ITEM_BYTES[x.dtype] >= n])
        narrow = f"{self.pick(('u', 's'))}{8 * ITEM_BYTES[x.dtype] // parts}"
        if math.prod(x.dims) * parts > self.most:
            return None
        op = self.b.op("bitcast-convert", (*x.dims, parts), x.op, dtype=narrow)
        if self.flag():
            op = self.b.op("bitcast-convert", x.dims, self.b.unary("not", op), dtype=x.dtype)
        return self.keep(op)
