"""Sorted rows of which only the first or the last elements are read: nothing else is sorted out.

    sort-rows(x)[:, :8]     ->    sort-rows(x, first=8)
    sort-rows(x)[:, -8:]    ->    reverse(not sort-rows(not x, first=8))

What is read is found from the outputs back, through ops that move elements or compute each from
those of the same place. A kernel then keeps the smaller ones of two threads' elements, where a full
sort would go on with both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.sorts import MOST_SELECTED
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: How many elements of a row there are at least for each that is selected.
LEAST_OF_EACH = 4


@dataclass(frozen=True)
class Read:
    """The elements along a dim that are read: from `low` until `high`."""

    low: int
    high: int

    def __or__(self, other: Read) -> Read:
        return Read(min(self.low, other.low), max(self.high, other.high))


def select_rows(graph: Graph) -> Graph:
    """A region whose sorted rows are those elements of them alone that are read, if few are."""
    if not any(op.opcode == "sort-rows" for op in graph):
        return graph
    read = _read_of(graph)
    return rewrite(graph, lambda op: _selected(op, read) if op.opcode == "sort-rows" else None)


def _selected(op: Op, read: dict[tuple[int, int], Read]) -> list[Op] | None:
    elements = op.dims[1]
    found = read.get((op.id, 1), Read(0, elements))
    first, last = found.high, elements - found.low
    count = min(first, last)
    if op.attrs or count > MOST_SELECTED or count * LEAST_OF_EACH > elements:
        return None
    chain, [x] = Chain(op), op.operands
    turned = last < first
    name = f"{op.name}_{'last' if turned else 'first'}"
    if turned:
        x = chain.like(x, "not", x)
    rows = chain.make("sort-rows", x.dtype, (x.dims[0], count), x, first=count)
    rows.name = name
    if turned:
        rows = chain.like(rows, "not", rows)
        rows = chain.like(rows, "reverse", rows, dimensions=(1,))
    missing = elements - count
    chain.extended(rows, 1, missing if turned else 0, 0 if turned else missing)
    return chain.done()


def _read_of(graph: Graph) -> dict[tuple[int, int], Read]:
    """By value and dim, which elements are read; nothing of values that nobody reads."""
    read: dict[tuple[int, int], Read] = {}
    for op in reversed(graph.ops[:-1]):
        outside = op in graph.root.operands
        for dim, extent in enumerate(op.dims):
            parts = [Read(0, extent)] if outside else []
            parts += [one for user in graph.users[op.id] for one in _by(user, op, dim, read)]
            for one in parts:
                before = read.get((op.id, dim))
                read[op.id, dim] = one if before is None else before | one
    return read


def _by(user: Op, op: Op, dim: int, read: dict[tuple[int, int], Read]) -> Iterator[Read]:
    """What a user of a value reads along a dim of it."""
    if user.opcode == "tuple":
        return
    whole = Read(0, op.dims[dim])
    there = _followed(user, op, dim)
    found = whole if there is None else read.get((user.id, there))
    if found is None:
        return
    if user.opcode == "slice":
        start, stride = user.attrs["start"][dim], user.attrs["stride"][dim]
        found = Read(start + found.low * stride, start + (found.high - 1) * stride + 1)
    if user.opcode == "reverse" and dim in user.attrs["dimensions"]:
        found = Read(whole.high - found.high, whole.high - found.low)
    yield found


def _followed(user: Op, op: Op, dim: int) -> int | None:
    """The dim of a user along which it is of the same places of `op`, in this order or reversed;
    None if there is none."""
    if user.opcode == "transpose":
        return int(user.attrs["dimensions"].index(dim))
    if user.opcode == "broadcast":
        there: int = user.attrs["dimensions"][dim]
        return there if user.dims[there] == op.dims[dim] else None
    if user.opcode == "reshape":
        return _reshaped(op.dims, user.dims, dim)
    if user.opcode == "gather":  # an index for each result
        plain = not user.attrs["offset_dims"] and user.operands[1].dims == user.dims
        return dim if plain and op is not user.operands[0] else None
    if user.opcode == "slice":
        return dim
    elementwise = kind_of(user.opcode) is Kind.ELEMENTWISE or user.opcode == "reverse"
    return dim if elementwise and user.dims == op.dims else None


def _reshaped(before: tuple[int, ...], after: tuple[int, ...], dim: int) -> int | None:
    """The dim that a dim becomes which a reshape leaves whole."""

    def places(dims: tuple[int, ...]) -> list[tuple[int, int]]:
        """By dim: its extent, and how many elements are between two of its places."""
        found, apart = [], 1
        for n in reversed(dims):
            found.append((n, apart))
            apart *= n
        return found[::-1]

    try:
        return places(after).index(places(before)[dim])
    except ValueError:
        return None
