"""Sums of deviations from a mean, without waiting for the mean.

    reduce_add(x - mean(x))      ->  reduce_add(x) - n * mean(x)
    reduce_add((x - m)^2), in parts p of n rows each
                                 ->  reduce_add over p of (M_p + n * (m_p - m)^2)

m_p is the mean of a part and M_p the sum of its squared deviations from m_p (Chan, Golub and
LeVeque, "Algorithms for computing the sample variance", 1983): both come from one pass, so that
a variance need not read x once more when its mean is known. m may be anything that does not vary
along the sum.

Inside a part the two come from sums about a shift k, the mean of the part's first w rows:

    m_p = k + S / n,  M_p = Q - S^2 / n,  S = sum(x - k),  Q = sum((x - k)^2)

Q / M_p, by which rounding errors grow, is at most 1 + n / w whatever the values are, since the rows
that pull k away from the mean are part of M_p, too. With w near sqrt(n) that is what adding up n
numbers may cost anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fusionstitch.codegen.annotations import alike_but_for_parts, like
from fusionstitch.codegen.rewrite.factors import at_kept_dims, varies
from fusionstitch.codegen.rewrite.region import rebuilt, rewrite, with_root
from fusionstitch.hlo.graph import FLOATS, Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat

#: Relative error up to which a constant is taken for 1 / n.
_CLOSE = 1e-6
#: Types in which x is summed as it is, or after a conversion.
_WIDE = ("f32", "f64")


def centre_sums(graph: Graph) -> Graph:
    """`graph` with sums of deviations from the very mean of what is summed as differences."""
    return rewrite(graph, _centred)


def _centred(op: Op) -> list[Op] | None:
    if not _is_sum(op) or op.operands[0].opcode != "subtract":
        return None
    x, mean = op.operands[0].operands
    if varies(mean, op):
        return None
    total = _sum_of_mean(mean, x, op)
    if total is None:
        return None
    chain: list[Op] = []
    make = _Maker(op, chain)
    times = make.constant(op.dims, _count(op))
    product = make("multiply", op.dims, at_kept_dims(mean, op, chain), times)
    make("subtract", op.dims, total, product)
    chain[-1].name, chain[-1].origin = op.name, op.origin
    return chain


def _sum_of_mean(mean: Op, x: Op, op: Op) -> Op | None:
    """The sum of `x` over the dims of `op` that `mean` is the n-th part of."""
    mean = _unspread(mean)
    if mean.opcode not in ("multiply", "divide"):
        return None
    total, by = (_unspread(o) for o in mean.operands)
    scale = splat(by)
    if scale is None or not np.isfinite(scale) or not scale:
        return None
    count = _count(op) * float(scale) if mean.opcode == "multiply" else _count(op) / float(scale)
    same = _is_sum(total) and total.operands[0] is x and total.dims == op.dims
    if not same or abs(count - 1) > _CLOSE:
        return None
    return total if total.attrs["dimensions"] == op.attrs["dimensions"] else None


def _unspread(value: Op) -> Op:
    """What a value repeats: broadcasts and reshapes that keep the order of elements undone."""
    while True:
        ordered = sorted(value.attrs.get("dimensions", ()))
        in_order = value.opcode == "broadcast" and ordered == list(value.attrs["dimensions"])
        if not in_order and value.opcode != "reshape":
            return value
        value = value.operands[0]


# ---- variances in parts --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    """The partial sums of `values`, of which `merged` neighbouring dims from `axis` on became
    (parts, elements of a part)."""

    sums: Op
    values: Op
    axis: int
    merged: int

    @property
    def whole(self) -> Op:
        """The sum that was split, as an op of no graph."""
        beyond = self.merged - 2  # by which later dims of the values have other numbers
        dims = {*range(self.axis, self.axis + self.merged)}
        dims |= {d if d < self.axis else d + beyond for d in self.sums.attrs["dimensions"]}
        left = tuple(x for d, x in enumerate(self.values.dims) if d not in dims)
        attrs = {**self.sums.attrs, "dimensions": tuple(sorted(dims))}
        operands = (self.values, self.sums.operands[1])
        return Op("reduce", Shape(self.sums.dtype, left), operands, attrs)

    @property
    def part_dim(self) -> int:
        """The dim of the partial sums that counts parts."""
        return self.axis - sum(d < self.axis for d in self.sums.attrs["dimensions"])


@dataclass(frozen=True)
class _Moments:
    """Of each part: k, m_p - k and M_p."""

    shift: Op
    offset: Op
    within: Op


def merge_variances(graph: Graph) -> Graph:
    """`graph` with partial sums of squared deviations in the form that needs no second pass: those
    from something that waits for the sum, split alike, of the very values."""
    squares = dict(_split_squares(graph))
    sums = {one.sums for one, _, _ in squares.values()}
    if not squares:
        return graph
    copies: dict[Op, Op] = {}
    moments: dict[Op, _Moments] = {}
    new: list[Op] = []
    for op in graph.ops[:-1]:
        copy = rebuilt(op, [copies[o] for o in op.operands])
        chain = [copy]
        if op in sums:
            chain = []
            moments[op] = _part_moments(copy, chain)
        elif op in squares:
            chain = []
            one, two, mean = squares[op]
            whole = replace(two, values=copies[two.values], sums=copy).whole
            _merged(copy, whole, two.part_dim, copies[mean], moments[one.sums], chain)
        if copy not in chain:
            chain[-1].name = copy.name
        copies[op] = chain[-1]
        new += chain
    return with_root(graph.name, new, [copies[o] for o in graph.root.operands])


def _split_squares(graph: Graph) -> Iterator[tuple[Op, tuple[_Parts, _Parts, Op]]]:
    """Partial sums of (x - m)^2: (the op, (partial sums of x, of the squares, m))."""
    split = [parts for op in graph.ops[:-1] if (parts := _parts(op)) is not None]
    for two in split:
        product = two.values
        if product.opcode != "multiply" or product.operands[0] is not product.operands[1]:
            continue
        if product.operands[0].opcode != "subtract":
            continue
        x, mean = product.operands[0].operands
        if varies(mean, two.whole):
            continue
        for one in split:
            alike = (one.axis, one.merged) == (two.axis, two.merged)
            alike = alike and one.sums.attrs == two.sums.attrs
            alike = alike and alike_but_for_parts(one.sums, two.sums)
            if one.values is x and alike and one.sums.dims == two.sums.dims:
                if _waits_for(mean, one.sums):
                    yield two.sums, (one, two, mean)
                break


def _parts(op: Op) -> _Parts | None:
    """What `codegen/schedule/split.py` makes of a sum where the parts are even: of several dims it
    makes one first."""
    if not _is_sum(op) or op.dtype not in _WIDE:
        return None
    found, [values, _] = None, op.operands
    while values.opcode == "reshape":
        [values] = values.operands
        found = _parted(op, values) or found
    return found


def _parted(op: Op, values: Op) -> _Parts | None:
    """The parts that a sum adds up, if they are of neighbouring dims of `values`."""
    reshaped, summed = op.operands[0], op.attrs["dimensions"]
    dims, merged = reshaped.dims, values.shape.rank + 2 - reshaped.shape.rank
    if values.dtype != op.dtype or merged < 1:
        return None
    for axis in range(reshaped.shape.rank - 1):
        whole = values.dims[axis : axis + merged]
        around = (*dims[:axis], *whole, *dims[axis + 2 :]) == values.dims
        parted = dims[axis] * dims[axis + 1] == math.prod(whole)
        if around and parted and axis not in summed and axis + 1 in summed:
            return _Parts(op, values, axis, merged)
    return None


def _waits_for(value: Op, op: Op) -> bool:
    seen: set[Op] = set()
    todo = [value]
    while todo:
        value = todo.pop()
        if value is op:
            return True
        if value not in seen and value.id > op.id:
            seen.add(value)
            todo.extend(value.operands)
    return False


def _part_moments(sums: Op, chain: list[Op]) -> _Moments:
    """Of the parts that `sums` sums; `chain` then ends with what stands for `sums`."""
    make = _Maker(sums, chain)
    values, zero = sums.operands
    summed = sums.attrs["dimensions"]
    count = _count(sums)
    limits = list(values.dims)
    target = 1 << math.isqrt(count).bit_length() - 1
    for d in sorted(summed, reverse=True):
        limits[d] = min(target, limits[d])
        target = max(1, target // limits[d])
    first = (0,) * len(limits)
    stride = (1,) * len(limits)
    sample = make("slice", tuple(limits), values, start=first, limit=tuple(limits), stride=stride)
    sampled = math.prod(limits[d] for d in summed)

    def add_up(terms: Op) -> Op:
        total = Op("reduce", sums.shape, (terms, zero), sums.attrs, called=sums.called)
        chain.append(like(total, sums))
        chain[-1].name, chain[-1].source = f"{sums.name}_of_{terms.opcode}", sums.source
        return chain[-1]

    def scaled(value: Op, by: float) -> Op:
        return make("multiply", sums.dims, value, make.constant(sums.dims, by))

    shift = scaled(add_up(sample), 1 / sampled)
    kept_dims = tuple(d for d in range(len(limits)) if d not in summed)
    about = make(
        "subtract", values.dims, values, make("broadcast", values.dims, shift, dimensions=kept_dims)
    )
    total = add_up(about)
    squares = add_up(make("multiply", values.dims, about, about))
    offset = scaled(total, 1 / count)
    spread = make("subtract", sums.dims, squares, make("multiply", sums.dims, total, offset))
    within = make("maximum", sums.dims, spread, make.constant(sums.dims, 0.0))
    make("add", sums.dims, total, scaled(shift, count))
    return _Moments(shift, offset, within)


def _merged(
    squares: Op, whole: Op, part_dim: int, mean: Op, moments: _Moments, chain: list[Op]
) -> None:
    """Appends M_p + n * (m_p - m)^2 to `chain`."""
    make = _Maker(squares, chain)
    dims = squares.dims
    centre = at_kept_dims(mean, whole, chain)
    kept_dims = tuple(d for d in range(len(dims)) if d != part_dim)
    centre = make("broadcast", dims, centre, dimensions=kept_dims)
    # k and m are near each other, their difference is exact; m_p would be rounded to their size
    away = make("add", dims, make("subtract", dims, moments.shift, centre), moments.offset)
    between = make("multiply", dims, away, away)
    between = make("multiply", dims, between, make.constant(dims, _count(squares)))
    make("add", dims, moments.within, between)


def _is_sum(op: Op) -> bool:
    """A sum of floats from zero on."""
    if op.opcode != "reduce" or op.attrs.get("reducer") != "add" or op.dtype not in FLOATS:
        return False
    return splat(op.operands[1]) == 0


def _count(op: Op) -> int:
    dims = op.operands[0].dims
    return math.prod(dims[d] for d in op.attrs["dimensions"])


class _Maker:
    """Appends ops named after `op` to a chain."""

    def __init__(self, op: Op, chain: list[Op]):
        self.op = op
        self.chain = chain

    def __call__(self, opcode: str, dims: tuple[int, ...], *operands: Op, **attrs: Any) -> Op:
        shape = Shape(self.op.dtype, dims)
        made = Op(opcode, shape, operands, attrs, f"{self.op.name}_{opcode}", source=self.op.source)
        self.chain.append(made)
        return made

    def constant(self, dims: tuple[int, ...], value: float) -> Op:
        array = np.asarray(value, NUMPY_DTYPES[self.op.dtype])
        scalar = self("constant", (), value=array)
        return self("broadcast", dims, scalar, dimensions=()) if dims else scalar
