"""Products with a known matrix of which few elements are not 0, as sums of a few terms.

    dot(x[n, i], w[i, j])    ->    x[n, start[j]] * w0[j] + x[n, start[j] + 1] * w1[j]

A library multiplies by every 0. What XLA adds for them is lost: an infinity or NaN in x times 0.
"""

from __future__ import annotations

import functools
from typing import Any

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.known_matrices import Band, known_band
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.hlo.graph import Graph, Op

#: Types of what is multiplied.
_FLOATS = frozenset({"f32", "bf16", "f16"})


def with_banded_products(graph: Graph) -> Graph:
    """The region with such products replaced by sums; the same if it has none."""
    return rewrite(graph, _as_sum)


def is_banded(dot: Op) -> bool:
    """Whether a product is a sum of a few terms."""
    return _banded(dot) is not None


def _banded(dot: Op) -> tuple[int, Band] | None:
    """The operand of a dot that is a known matrix, and its elements."""
    attrs = dot.attrs
    if dot.opcode != "dot" or attrs["lhs_batch"] or len(attrs["lhs_contract"]) != 1:
        return None
    if dot.dtype not in _FLOATS or any(o.dtype not in _FLOATS for o in dot.operands):
        return None
    for side, name in ((1, "rhs_contract"), (0, "lhs_contract")):
        band = known_band(dot.operands[side], attrs[name][0])
        if band is not None:
            return side, band
    return None


def _as_sum(dot: Op) -> list[Op] | None:
    found = _banded(dot)
    if found is None:
        return None
    side, band = found
    chain, x = Chain(dot), dot.operands[1 - side]
    [along] = dot.attrs["lhs_contract" if side == 1 else "rhs_contract"]
    order = [d for d in range(x.shape.rank) if d != along]  # of the dims of the result
    order.insert(len(order) if side == 1 else 0, along)
    if x.opcode == "transpose":  # elements are taken in the order in which they are computed
        before = x.attrs["dimensions"]
        along, order, x = before[along], [before[d] for d in order], x.operands[0]
    dims = tuple(band.starts.size if d == along else n for d, n in enumerate(x.dims))
    starts, weights = chain.constant(band.starts, "s32"), chain.constant(band.weights, "f32")
    terms = []
    for tap in range(len(band.weights)):
        first = starts
        if tap:
            first = chain.like(starts, "add", starts, chain.integers(tap, starts.dims))
        value = _taken(chain, x, along, first, dims)
        if value.dtype != "f32":
            value = chain.make("convert", "f32", dims, value)
        row = chain.make("reshape", "f32", starts.dims, chain.part(weights, 0, tap, tap + 1))
        weight = chain.make("broadcast", "f32", dims, row, dimensions=(along,))
        terms.append(chain.like(value, "multiply", value, weight))
    total = functools.reduce(lambda a, b: chain.like(a, "add", a, b), terms)
    if dot.dtype != "f32":
        total = chain.make("convert", dot.dtype, dims, total)
    chain.in_order(total, tuple(order))
    return chain.done()


def _taken(chain: Chain, x: Op, along: int, indices: Op, dims: tuple[int, ...]) -> Op:
    """The elements of `x` at `indices` [columns] along a dim, which becomes that of the columns."""
    attrs: dict[str, Any] = {
        "offset_dims": tuple(d for d in range(len(dims)) if d != along),
        "collapsed_slice_dims": (along,),
        "start_index_map": (along,),
        "index_vector_dim": 1,
        "slice_sizes": tuple(1 if d == along else n for d, n in enumerate(x.dims)),
        "operand_batching_dims": (),
        "start_indices_batching_dims": (),
    }
    return chain.make("gather", x.dtype, dims, x, indices, **attrs)
