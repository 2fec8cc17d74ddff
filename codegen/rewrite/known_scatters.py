"""Scatters whose index vectors need no data, as pads: each element finds its updates.

    x.at[2 * iota].add(u)                          ->  x + pad(u, interior 1)
    x.at[hop * iota[:, None] + iota].add(u[n, w])  ->  x + overlap-add of the rows of u
    x.at[iota // 2].add(u)                         ->  x + sums of pairs

The gradient of a gather at known positions is one: of frames and patches, repeats, strides, bands,
rolls and diagonals. `known_places.py` says where updates go.
"""

from __future__ import annotations

import functools

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.known_places import (
    Known,
    Places,
    known_places,
    major,
    window_sizes,
)
from fusionstitch.codegen.rewrite.overlap_add import Moved, collapsed, most_joined, overlapped
from fusionstitch.codegen.rewrite.scatter_sums import WIDE, batch_dims, component, neutral_of
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.mixed_radix import extent
from fusionstitch.hlo.verdict import Verdict, allow


def known_scatter(op: Op) -> Verdict:
    """Whether a scatter may be written with pads."""
    found = known_places(op)
    return allow() if isinstance(found, Known) else found


def expand_known(op: Op, exact: bool = False) -> list[Op] | None:
    """The ops that stand for such a scatter; None for every other op, and where each sum must be
    rounded (`exact`) for one whose sums are not."""
    found = known_places(op) if op.opcode == "scatter" else None
    if not isinstance(found, Known):
        return None
    chain, (x, _, updates), reducer = Chain(op), op.operands, op.attrs["reducer"]
    wide = x.dtype
    if found.meet and reducer != REPLACE:
        wide = WIDE.get(x.dtype, x.dtype)
    if exact and wide != x.dtype and reducer in ("add", "multiply"):
        return None
    if wide != x.dtype:
        x, updates = (chain.make("convert", wide, one.dims, one) for one in (x, updates))
    whole = _moved(chain, op, updates, found)
    parts = (_at_home(whole, part).reshaped(op.dims) for part in found.parts)
    moved = functools.reduce(Moved.joined, parts)
    if reducer != REPLACE:
        chain.like(x, reducer, x, moved.arrays[0])
    elif found.everywhere:
        chain.like(x, "copy", *moved.arrays)
    else:
        value, there = moved.arrays
        chain.like(x, "select", there, value, x)
    if wide != op.dtype:
        chain.make("convert", op.dtype, op.dims, chain.ops[-1])
    return chain.done()


def _moved(chain: Chain, op: Op, updates: Op, found: Known) -> Moved:
    """The updates, without those that are dropped."""
    reducer, inside = op.attrs["reducer"], _inside(chain, op) if found.cut else None
    if reducer == REPLACE:
        nothing = chain.scalar(0, updates.dtype)
        if found.everywhere:
            return Moved(chain, (updates,), (nothing,), reducer)
        if inside is None:
            everywhere = chain.scalar(True, "pred")
            inside = chain.make("broadcast", "pred", updates.dims, everywhere, dimensions=())
        return Moved(chain, (updates, inside), (nothing, chain.scalar(False, "pred")), reducer)
    value = neutral_of(reducer, updates.dtype)
    if inside is not None:
        updates = chain.like(updates, "select", inside, updates, chain.splat(value, updates))
    return Moved(chain, (updates,), (chain.scalar(value, updates.dtype),), reducer)


def _inside(chain: Chain, op: Op) -> Op:
    """Whether the window of an update is all inside, for each element of the updates."""
    updates, sizes, inside = op.operands[2], window_sizes(op), None
    for k, d in enumerate(op.attrs["scatter_dims_to_operand_dims"]):
        start = component(chain, op, k)
        for direction, bound in (("GE", 0), ("LE", op.dims[d] - sizes[d])):
            here = chain.compare(start, direction, chain.splat(bound, start))
            inside = here if inside is None else chain.like(here, "and", inside, here)
    assert inside is not None
    dims = tuple(batch_dims(op))
    return chain.make("broadcast", "pred", updates.dims, inside, dimensions=dims)


def _at_home(moved: Moved, found: Places) -> Moved:
    """Some of the updates, joined where they belong in the result."""
    moved, most = moved.part(found.begin, found.end), most_joined(found.meeting)
    for w, digits in reversed([*enumerate(found.digits)]):
        moved = moved.extended(w, 0, extent(digits) - moved.dims[w])
        moved = moved.split(w, [digit.size for digit in digits])
    # digits with which the place stays first, then by dims of the result, there major to minor
    order, base = [], list(found.base)
    for axis, digit in enumerate(found.every):
        [d] = [d for d, step in enumerate(digit.steps) if step] or [-1]
        step = sum(digit.steps)
        if step < 0:
            moved, base[d] = moved.reversed(axis), base[d] + step * (digit.size - 1)
        order.append((d, major((digit.size, abs(step))), axis))
    moved = moved.in_order(tuple(axis for *_, axis in sorted(order)))
    for _ in found.still:
        moved = collapsed(moved, 0, most)
    for d in range(len(found.dims)):
        if d not in [home for home, *_ in order]:
            moved = moved.reshaped((*moved.dims[:d], 1, *moved.dims[d:]))
        moved = overlapped(moved, d, found.along(d), most)
    gaps = [found.unit(d) - 1 for d in range(len(found.dims))]
    ends = zip(found.dims, base, moved.dims, gaps, strict=True)
    return moved.padded(
        base, [n - low - size - (size - 1) * gap for n, low, size, gap in ends], gaps
    )
