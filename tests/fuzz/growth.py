"""Hypothesis strategy that grows typed graphs op by op; shapes are valid by construction.

Floats are drawn so that comparing with a float64 run is fair: inputs are small multiples of 1/4,
exact arithmetic stays exact, and what may be off by a rounding (`Value.exact` is false) is never
compared, rounded to an integer, or fed to a function that magnifies its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from codegen.expressions import identity
from hlo.graph import ITEM_BYTES, Graph, Op, Shape
from hlo.verify import verify
from tests.fuzz.growing_reductions import Reductions
from tests.fuzz.values import (
    BOUND,
    COMPARISONS,
    DTYPES,
    EXTENTS,
    FLOATS,
    INTEGER_OPS,
    INTEGERS,
    LONG,
    SIZES,
    Grown,
    TypedBuilder,
    Value,
    drawn,
)
from tests.graphs import Builder


class Growth(Reductions):
    """A graph in the making. `draw` picks one of a sequence, the simplest first."""

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

    # ---- elementwise ----------------------------------------------------------------------------

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

    # ---- movement -------------------------------------------------------------------------------

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

    # ---- places that the data decides -----------------------------------------------------------

    def integers(self) -> Value:
        """Integers to use as places: latest ones first, or a parameter of some inside and out."""
        found = self.any(INTEGERS)
        if found is not None and math.prod(found.dims) <= SIZES[0] and self.flag():
            return found
        dims = tuple(self.pick((3, 1, 5, 8)) for _ in range(self.number(0, 2)))
        self.values.append(Value(self.b.parameter(dims, self.pick(INTEGERS))))
        return self.values[-1]

    def start(self) -> Op:
        """One integer."""
        x = self.integers()
        return self.b.reshape(self.b.slice(x.op, (0,) * len(x.dims), (1,) * len(x.dims)), ())

    def starts(self, count: int) -> list[Op]:
        """Integers of one type, as StableHLO wants them."""
        first, *rest = [self.start() for _ in range(count)]
        return [
            first,
            *(
                s if s.dtype == first.dtype else self.b.op("convert", (), s, dtype=first.dtype)
                for s in rest
            ),
        ]

    def gather(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        index = self.integers()
        mapped = self.subset(range(len(x.dims)))[:2]
        if self.flag():
            mapped = mapped[::-1]
        batching = [
            (d, e)
            for d, n in enumerate(x.dims)
            for e, m in enumerate(index.dims)
            if d not in mapped and n == m and self.flag()
        ][:1]
        indices, vector_dim = index.op, len(index.dims)
        if len(mapped) == 2:
            row = self.b.reshape(index.op, (*index.dims, 1))
            indices = self.b.concatenate([row, row], vector_dim)
        sizes = []
        for d, n in enumerate(x.dims):
            whole = d not in mapped or self.pick(range(4)) == 3
            sizes.append(1 if d in [b for b, _ in batching] else n if whole else self.number(1, n))
            if d in mapped and self.flag():
                sizes[-1] = 1
        dropped = tuple(d for d in mapped if sizes[d] == 1 and self.flag())
        kept = [d for d in range(len(x.dims)) if d not in (*dropped, *(b for b, _ in batching))]
        rank = len(index.dims) + len(kept)
        offset = tuple(range(rank))[len(index.dims) :]
        if self.flag():
            offset = tuple(range(len(kept)))
        left, window = iter(index.dims), iter([sizes[d] for d in kept])
        dims = [next(window) if d in offset else next(left) for d in range(rank)]
        if math.prod(dims) > self.most:
            return None
        op = self.b.op(
            "gather",
            dims,
            x.op,
            indices,
            offset_dims=offset,
            collapsed_slice_dims=tuple(sorted(dropped)),
            start_index_map=mapped,
            index_vector_dim=vector_dim,
            operand_batching_dims=tuple(b for b, _ in batching),
            start_indices_batching_dims=tuple(e for _, e in batching),
            slice_sizes=tuple(sizes),
        )
        return self._moved(x, op)

    def picked_rows(self) -> Value | None:
        """Rows at places that are joined or summed from integers, each row walked twice."""
        x = self.any(FLOATS, least_rank=2)
        if x is None or len(x.dims) > 2:
            return None
        b, count, dtype = self.b, self.pick((3, 1, 5, 8)), self.pick(("s32", "u8", "s64"))
        if count * x.dims[1] > self.most:
            return None
        if self.flag():
            few = b.parameter((count, self.pick((2, 3, 4))), dtype)
            places = b.reduce(few, (1,), "add")
        else:
            places = b.concatenate([b.parameter((n,), dtype) for n in (count, 1)])
        rows = self.keep(b.rows(x.op, places), x.exact, x.bound)
        top = b.like(b.reduce(rows.op, (1,), "maximum"), rows.op, (1,))
        return self.keep(b.sub(rows.op, top), x.exact, 2 * x.bound)

    def slice_at(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        sizes = tuple(self.number(1, n) for n in x.dims)
        starts = self.starts(len(sizes))
        return self._moved(x, self.b.op("dynamic-slice", sizes, x.op, *starts, sizes=sizes))

    def update_at(self) -> Value | None:
        x = self.any(least_rank=1)
        if x is None:
            return None
        limit = tuple(self.number(1, n) for n in x.dims)
        update = self.b.unary(
            "not" if x.dtype == "pred" else "negate",
            self.b.slice(x.op, (0,) * len(limit), limit),
        )
        starts = self.starts(len(limit))
        return self._moved(x, self.b.op("dynamic-update-slice", x.dims, x.op, update, *starts))

    def scatter(self) -> Value | None:
        """One update for each place in all dims but one."""
        x = self.any(least_rank=1)
        if x is None or math.prod(x.dims) > SIZES[1]:
            return None
        chosen = self.number(0, len(x.dims) - 1)
        rest = tuple(n for d, n in enumerate(x.dims) if d != chosen)
        if math.prod(rest) > SIZES[0]:
            return None
        b, dtype = self.b, self.pick(("s32", "s8", "u8", "s64"))
        self.values += [Value(b.parameter(rest, x.dtype)), Value(b.parameter(rest, dtype))]
        update, index = (self.shaped(wanted) for wanted in self.values[-2:])
        if self.flag():
            columns = [
                b.reshape(index.op, (*rest, 1))
                if d == chosen
                else b.op("iota", (*rest, 1), dtype=dtype, dimension=d - (d > chosen))
                for d in range(len(x.dims))
            ]
            if any(n > 127 for n in rest):
                return None
            indices, batching = b.concatenate(columns, len(rest)), ()
            scattered = tuple(range(len(x.dims)))
        else:
            indices, scattered = index.op, (chosen,)
            batching = tuple(d for d in range(len(x.dims)) if d != chosen)
        name = self.pick(("replace", "add", "maximum"))
        if x.dtype == "pred":
            name = self.pick(("replace", "and", "or"))
        op = b.op(
            "scatter",
            x.dims,
            x.op,
            indices,
            update.op,
            update_window_dims=(),
            inserted_window_dims=tuple(d for d in range(len(x.dims)) if d not in batching),
            scatter_dims_to_operand_dims=scattered,
            index_vector_dim=len(rest),
            input_batching_dims=batching,
            scatter_indices_batching_dims=tuple(range(len(batching))),
            reducer=name,
        )
        return self.keep(op, x.exact and update.exact, x.bound + update.bound)

    def collide(self) -> Value | None:
        """Rows, some of them several times, joined with updates."""
        x = self.any(least_rank=1)
        if x is None or math.prod(x.dims) > SIZES[0]:
            return None
        count = self.pick((3, 1, 7, 12))
        self.values.append(Value(self.b.parameter((count,), self.pick(("s32", "u8", "s64")))))
        index = self.values[-1]
        self.values.append(Value(self.b.parameter((count, *x.dims[1:]), x.dtype)))
        update = self.shaped(self.values[-1])
        name = self.pick(("add", "maximum", "minimum"))
        if x.dtype == "pred":
            name = self.pick(("and", "or"))
        op = self.b.op(
            "scatter",
            x.dims,
            x.op,
            index.op,
            update.op,
            update_window_dims=tuple(range(1, len(x.dims))),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            input_batching_dims=(),
            scatter_indices_batching_dims=(),
            reducer=name,
        )
        return self.keep(op, x.exact and update.exact, x.bound + count * update.bound)

    # ---- reductions and dots --------------------------------------------------------------------

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

    # ---- the graph ------------------------------------------------------------------------------

    STEPS = (
        *("unary", "binary", "binary", "reduce", "reduce", "dot", "broadcast", "transpose"),
        *("reshape", "slice", "pad", "concatenate", "reverse", "compare", "select", "clamp"),
        *("convert", "source", "parameter", "normalize", "normalize", "twins"),
        *("gather", "gather", "picked_rows", "slice_at", "update_at", "scatter", "collide"),
        *("window", "running", "place", "logaddexp", "moments", "regroup"),
    )

    def grow(self) -> Grown:
        self.most = self.pick((SIZES[0], SIZES[1], SIZES[0], SIZES[2], SIZES[1], SIZES[3]))
        seed = self.number(0, 3)
        for _ in range(self.number(1, 3)):
            self.parameter()
        for _ in range(self.number(2, 14)):
            getattr(self, self.pick(self.STEPS))()
        read = {o for op in self.b.ops for o in op.operands}
        sinks = [v.op for v in self.values if v.op not in read]
        others = [v.op for v in self.values if v.op in read]
        roots = [op for op in sinks if op.opcode != "parameter"]
        if others and self.flag():
            roots.append(self.pick(others))
        roots = [op for op in roots if op.opcode != "parameter"]
        if not roots:
            roots = [
                self.b.unary("not" if v.dtype == "pred" else "negate", v.op)
                for v in self.values[:1]
            ]
        graph = pruned(self.b, roots)
        verify(graph)
        return Grown(graph, seed)


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


def pruned(b: Builder, roots: Sequence[Op]) -> Graph:
    """The graph of what `roots` need, its parameters numbered anew."""
    needed: set[Op] = set(roots)
    for op in reversed(b.ops):
        if op in needed:
            needed.update(op.operands)
    ops = [op for op in b.ops if op in needed]
    for index, op in enumerate(p for p in ops if p.opcode == "parameter"):
        op.attrs = {"index": index}
    shape = Shape("tuple", elements=tuple(r.shape for r in roots))
    root = Op("tuple", shape, tuple(roots), name="outputs")
    return Graph("fuzz", [*ops, root], root)


@st.composite
def graphs(draw: st.DrawFn) -> Grown:
    """Grown graphs."""

    def pick(items: Sequence[Any]) -> Any:
        return items[draw(st.integers(0, len(items) - 1))]

    return Growth(pick).grow()


def from_seed(seed: int) -> Grown:
    """The graph of a seed, without Hypothesis: for long runs."""
    rng = np.random.default_rng(seed)
    return Growth(lambda items: items[int(rng.integers(len(items)))]).grow()
