"""Growth of ops whose places the data decides."""

from __future__ import annotations

import math

from fusionstitch.hlo.graph import Op
from tests.fuzz.growing import Growing
from tests.fuzz.values import (
    FLOATS,
    INTEGERS,
    SIZES,
    Value,
)


class Places(Growing):
    """Steps of `Growth`."""

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
