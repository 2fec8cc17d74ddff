"""Scatters that put at most one update into each element, as selects.

    scatter-add(x, [iota, i], u)             ->  select(iota == i, x + u, x)
    reduce-add(scatter-add(0, [iota, i], u)) ->  select(0 <= i < n, u, 0), over the scattered dim

Where every row has one index, that row's element compares its own position with the index: no
atomics, no zeroed array, and updates that lie outside are dropped because nothing equals them. The
gradient of picking one element per row (a label's log-probability) becomes elementwise code so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fusionstitch.codegen.index_maps.index import (
    Index,
    constant,
    variable,
)
from fusionstitch.codegen.index_maps.maps import known
from fusionstitch.codegen.index_maps.numbers import digit_of
from fusionstitch.codegen.rewrite.bins import expand_bins, fits_bins, has_many_updates
from fusionstitch.codegen.rewrite.known_scatters import expand_known, known_scatter
from fusionstitch.codegen.rewrite.one_window import is_one_window, update_window
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scatter_rows import in_rows
from fusionstitch.codegen.rewrite.scatter_sums import NARROW, comparable, expand_scatter
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import is_positive_zero, splat
from fusionstitch.hlo.verdict import Verdict, allow, forbid


@dataclass(frozen=True)
class OneUpdate:
    """Which update belongs to an element of a scatter's result, at position p.

    Each dim of the scatter is a number whose `digits` (result dims, major to minor) stand in p;
    window dim w of the updates lies along `windows[w]`. The update counts if for each (component,
    dim) of `compared` that component of the index vector equals p[dim].
    """

    digits: tuple[tuple[int, ...], ...]
    compared: tuple[tuple[int, int], ...]
    windows: dict[int, int]


def expand_scatters(graph: Graph, exact: bool = False) -> Graph:
    """A region with scatters rewritten as selects and reductions where possible, with all roundings
    if these must be `exact`."""
    if not any(op.opcode == "scatter" for op in graph):
        return graph
    known, bins = (partial(rule, exact=exact) for rule in (expand_known, expand_bins))
    for rule in (_of_sum, _of_scatter, update_window, known, in_rows, bins, expand_scatter):
        graph = rewrite(graph, rule)
    return graph


def stitchable(op: Op) -> Verdict:
    """Whether a scatter may be inside a kernel, one way or the other."""
    found = one_update(op)
    if not isinstance(found, Verdict) or (not is_one_window(op) and known_scatter(op)):
        return allow()
    [*_, alone] = in_rows(op) or [op]
    bins, few = fits_bins(alone), comparable(alone)
    return bins if bins or (not few and has_many_updates(alone)) else few


def one_update(op: Op) -> OneUpdate | Verdict:
    """How elements of a scatter find their update, or why there may be several."""
    attrs = op.attrs
    if op.shape.is_tuple or attrs["reducer"] is None:
        return forbid("It scatters by more than one known operation.")
    x, _, updates = op.operands
    scattered, batching = attrs["scatter_dims_to_operand_dims"], attrs["input_batching_dims"]
    kept_dims = [
        d for d in range(x.shape.rank) if d not in (*attrs["inserted_window_dims"], *batching)
    ]
    windows = dict(zip(attrs["update_window_dims"], kept_dims, strict=True))
    sizes = {d: updates.dims[w] for w, d in windows.items()}
    for d, n in enumerate(x.dims):
        if d not in batching and sizes.get(d, 1) != (1 if d in scattered else n):
            return forbid("It scatters windows of several elements.")
    batch = [w for w in range(updates.shape.rank) if w not in windows]
    at = [variable(f"g{j}", updates.dims[w]) for j, w in enumerate(batch)]
    found = {d: _component(op, k, at) for k, d in enumerate(scattered)}
    for d, along in zip(batching, attrs["scatter_indices_batching_dims"], strict=True):
        found[d] = at[along - (along > attrs["index_vector_dim"])]
    by_digit: dict[tuple[str, int], int] = {}
    for d in sorted(found):
        index = found[d]
        digit = None if index is None else digit_of(index)
        if digit is not None and digit[2] == x.dims[d]:
            by_digit.setdefault(digit[:2], d)
    chains = []
    for j, i in enumerate(at):
        chain: list[int] = []
        stride = 1
        while i.terms and stride < updates.dims[batch[j]]:
            dim = by_digit.get((f"g{j}", stride))
            if dim is None:
                return forbid("Several updates may write the same element.")
            chain.insert(0, dim)
            stride *= x.dims[dim]
        if stride != updates.dims[batch[j]]:
            return forbid("Several updates may write the same element.")
        chains.append(tuple(chain))
    used = {d for chain in chains for d in chain}
    compared = tuple((k, d) for k, d in enumerate(scattered) if d not in used)
    return OneUpdate(tuple(chains), compared, windows)


def _component(op: Op, k: int, at: Sequence[Index]) -> Index | None:
    """Component k of the index vector at scatter index `at`, if the ops alone decide it."""
    element = list(at)
    if op.attrs["index_vector_dim"] < op.operands[1].shape.rank:
        element.insert(op.attrs["index_vector_dim"], constant(k))
    return known(op.operands[1], tuple(element))


# ---- rewriting -----------------------------------------------------------------------------------


def _of_scatter(op: Op) -> list[Op] | None:
    found = one_update(op) if op.opcode == "scatter" else None
    if not isinstance(found, OneUpdate):
        return None
    x, _, updates = op.operands
    maker = _Maker(op, found, range(op.shape.rank))
    value = maker.spread(updates, found.windows)
    if op.attrs["reducer"] != REPLACE:
        value = maker.make(op.attrs["reducer"], op.shape, x, value)
    conditions = []
    for k, d in found.compared:
        index = maker.component(k)
        here = maker.make("iota", index.shape, dimension=d)
        conditions.append(maker.compare("EQ", here, index))
    return maker.selected(conditions, value, x)


def _of_sum(op: Op) -> list[Op] | None:
    """A sum over the scattered dims of updates of zeros is a sum of what was not dropped."""
    if op.opcode != "reduce" or op.attrs["reducer"] != "add":
        return None
    scatter = op.operands[0]
    found = one_update(scatter) if scatter.opcode == "scatter" else None
    if not isinstance(found, OneUpdate) or scatter.attrs["reducer"] not in ("add", REPLACE):
        return None
    zero, init = scatter.operands[0], op.operands[1]
    gone = {d for _, d in found.compared}
    if not (gone and gone <= set(op.attrs["dimensions"])):
        return None
    if not (is_positive_zero(splat(zero)) and is_positive_zero(splat(init))):
        return None
    left = [d for d in range(scatter.shape.rank) if d not in gone]
    maker = _Maker(scatter, found, left, op)
    value = maker.spread(scatter.operands[2], found.windows)
    conditions = []
    for k, d in found.compared:
        index = maker.component(k)
        for direction, bound in (("GE", 0), ("LT", scatter.dims[d])):
            limit = maker.splat(bound, index.shape)
            conditions.append(maker.compare(direction, index, limit))
    chain = maker.selected(conditions, value, maker.splat(0, value.shape))
    dims = tuple(left.index(d) for d in op.attrs["dimensions"] if d not in gone)
    if dims:
        attrs = {"dimensions": dims, "reducer": "add"}
        total = Op("reduce", op.shape, (chain[-1], init), attrs, called=op.called)
        chain.append(total)
    last = chain[-1]
    last.name, last.origin, last.source = op.name, op.origin, op.source
    return chain


@dataclass
class _Maker:
    """Makes the ops that stand for `scatter`, over its result dims `left`, in order."""

    scatter: Op
    found: OneUpdate
    left: Sequence[int]
    instead_of: Op | None = None
    chain: list[Op] = field(default_factory=list)

    def make(self, opcode: str, shape: Shape, *operands: Op, **attrs: Any) -> Op:
        source = (self.instead_of or self.scatter).source
        name = f"{self.scatter.name}_{opcode}"
        self.chain.append(Op(opcode, shape, operands, attrs, name, source=source))
        return self.chain[-1]

    def splat(self, value: int, shape: Shape) -> Op:
        scalar = np.asarray(value, NUMPY_DTYPES[shape.dtype])
        one = self.make("constant", Shape(shape.dtype), value=scalar)
        return self.make("broadcast", shape, one, dimensions=())

    def compare(self, direction: str, x: Op, y: Op) -> Op:
        shape = Shape("pred", x.dims)
        return self.make("compare", shape, x, y, direction=direction, total_order=False)

    def component(self, k: int) -> Op:
        """Component k of the index vectors, over the result dims, in a type that holds them all."""
        indices, vector_dim = self.scatter.operands[1], self.scatter.attrs["index_vector_dim"]
        if vector_dim < indices.shape.rank:
            start = tuple(k if d == vector_dim else 0 for d in range(indices.shape.rank))
            limit = tuple(k + 1 if d == vector_dim else n for d, n in enumerate(indices.dims))
            dims = tuple(b - a for a, b in zip(start, limit, strict=True))
            bounds = {"start": start, "limit": limit, "stride": (1,) * len(dims)}
            indices = self.make("slice", Shape(indices.dtype, dims), indices, **bounds)
        wide = Shape("s32" if indices.dtype in NARROW else "s64", indices.dims)
        if indices.dtype != wide.dtype:
            indices = self.make("convert", wide, indices)
        return self.spread(indices, {})

    def spread(self, value: Op, windows: dict[int, int]) -> Op:
        """`value`, whose dims are those of the scatter and `windows`, over the result dims."""
        chains = iter(self.found.digits)
        rank = self.scatter.operands[2].shape.rank
        dimensions: list[int] = []
        for w in range(rank):
            if w in self.found.windows:
                dimensions += [windows[w]] if w in windows and value.dims[w] > 1 else []
            else:
                dimensions += next(chains)
        extents = tuple(self.scatter.dims[d] for d in dimensions)
        split = self.make("reshape", Shape(value.dtype, extents), value)
        shape = Shape(value.dtype, tuple(self.scatter.dims[d] for d in self.left))
        at = tuple(self.left.index(d) for d in dimensions)
        return self.make("broadcast", shape, split, dimensions=at)

    def selected(self, conditions: Sequence[Op], value: Op, otherwise: Op) -> list[Op]:
        """The chain, ending in `value` where all conditions hold and `otherwise` elsewhere."""
        if conditions:
            which = conditions[0]
            for condition in conditions[1:]:
                which = self.make("and", which.shape, which, condition)
            value = self.make("select", otherwise.shape, which, value, otherwise)
        value.name, value.origin = self.scatter.name, self.scatter.origin
        return self.chain
