"""Outputs that are sums of padded values, as concatenates.

    pad(a, 0, 2n) + pad(b, n, n) + pad(c, 2n, 0)    ->    concatenate(a, b, c)

JAX writes the gradient of slices so. Each element of the sum is checked against each pad, and 0
outside of it. Of the concatenate each element comes from one operand, and a kernel may store them
piece by piece (codegen/loops/pieces.py). A zero that was added may have made -0 of a value 0; what
is 0 stays so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.joined import MOST_PIECES, is_alone
from fusionstitch.codegen.rewrite.region import rebuilt, with_used
from fusionstitch.hlo.graph import FLOATS, INTEGERS, Graph, Op
from fusionstitch.hlo.rewrite import splat

_SUMS = ("add", "subtract")


@dataclass(frozen=True)
class _Sum:
    """The `terms` of a sum, each with how it joins those before it ("add" or "subtract"), of which
    some are padded along the dim `axis` and no other."""

    terms: list[tuple[Op, str]]
    axis: int
    ends: list[int] = field(default_factory=list)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Where each piece begins and ends along the dim."""
        return list(pairwise(self.ends))


def join_padded(graph: Graph) -> Graph:
    """The region with those of its outputs as concatenates that are sums of values padded along one
    dim, and of others of full size."""
    sums = {op: found for op in dict.fromkeys(graph.root.operands) if (found := _sum(graph, op))}
    if not sums:
        return graph
    copies: dict[Op, Op] = {}
    ops: list[Op] = []
    for op in graph.ops[:-1]:
        if op in sums:
            ops += _joined(op, sums[op], copies)
            copies[op] = ops[-1]
        else:
            copies[op] = rebuilt(op, [copies[o] for o in op.operands])
            ops.append(copies[op])
    return with_used(graph.name, ops, [copies[o] for o in graph.root.operands])


def _sum(graph: Graph, op: Op) -> _Sum | None:
    """An output as such a sum of a few pieces, if it is one."""
    known = op.opcode in _SUMS and op.dtype in FLOATS | INTEGERS
    if not known or not is_alone(graph, op):
        return None
    terms = list(_terms(graph, op, op, "add"))
    pads = [term for term, _ in terms if term.opcode == "pad"]
    axes = {axis for pad in pads for axis in _axes(pad)}
    if len(pads) < 2 or len(axes) != 1:
        return None
    [axis] = axes
    if axis is None:
        return None
    size = op.dims[axis]
    ends = {0, size} | {end for pad in pads for end in _ends(pad, axis)}
    found = _Sum(terms, axis, sorted(ends))
    return found if len(ends) <= MOST_PIECES + 1 else None


def _terms(graph: Graph, op: Op, root: Op, sign: str) -> Iterator[tuple[Op, str]]:
    """What a sum adds up, from left to right: no sum that anything else reads is taken apart, and
    none that is subtracted."""
    alone = op is root or len(graph.users[op.id]) == 1
    if op.opcode in _SUMS and op.shape == root.shape and alone and sign == "add":
        first, second = op.operands
        yield from _terms(graph, first, root, "add")
        yield from _terms(graph, second, root, op.opcode)
    else:
        yield op, sign


def _axes(pad: Op) -> Iterator[int | None]:
    """The dims along which a value is padded with zeros, once if at all; None where it is padded
    with something else, between elements, or cut."""
    attrs = pad.attrs
    value = splat(pad.operands[1])
    whole = not any(attrs["interior"]) and min(*attrs["low"], *attrs["high"]) >= 0
    if value is None or value != 0 or not whole:
        yield None
    for d, (low, high) in enumerate(zip(attrs["low"], attrs["high"], strict=True)):
        if low or high:
            yield d


def _ends(pad: Op, axis: int) -> tuple[int, int]:
    """Where what is padded begins and ends."""
    low = pad.attrs["low"][axis]
    return low, low + pad.operands[0].dims[axis]


def _joined(op: Op, found: _Sum, copies: dict[Op, Op]) -> list[Op]:
    """The ops of the concatenate that is the sum `op`, the concatenate last."""
    chain, axis = Chain(op), found.axis
    pieces: list[Op] = []
    for begin, end in found.pieces:
        piece: Op | None = None
        for term, sign in found.terms:
            value, first = copies[term], 0
            if term.opcode == "pad":
                first, last = _ends(term, axis)
                if not (first <= begin and end <= last):
                    continue
                value = copies[term.operands[0]]
            if value.dims[axis] != end - begin:
                value = chain.part(value, axis, begin - first, end - first)
            if piece is not None:
                value = chain.like(value, sign, piece, value)
            elif sign == "subtract":
                value = chain.like(value, "negate", value)
            piece = value
        if piece is None:
            zero = next(term.operands[1] for term, _ in found.terms if term.opcode == "pad")
            dims = tuple(end - begin if d == axis else n for d, n in enumerate(op.dims))
            piece = chain.make("broadcast", op.dtype, dims, copies[zero], dimensions=())
        pieces.append(piece)
    chain.like(op, "concatenate", *pieces, dimension=axis)
    return chain.done()
