"""Elements of global memory, read and written one by one or, in a loop over the neighbors of a
vector, all at once before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, linearize
from fusionstitch.codegen.index_maps.maps import Indices, in_range
from fusionstitch.codegen.index_maps.vectors import Vector
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import (
    Element,
    Expr,
    Integer,
    Load,
    LoadVector,
    Name,
    apply,
)
from fusionstitch.codegen.ir.intrinsics import ALIGNED, LOAD, STORE_AS
from fusionstitch.codegen.ir.statements import Array, Assign, Store, StoreVector, unrolled
from fusionstitch.codegen.ir.types import Raw, VectorOf, computed, stored
from fusionstitch.hlo.graph import Op


class VectorAccess:
    """The loads and stores of what is written by `writer`; `vector` is what the loop is over that
    is open, if one is, and `pending` are the stores that follow it. Inputs may be said to be
    `aligned`, where they are `streamed` not for a vector. `copies` says of buffers that several
    blocks of a cluster have how many these are."""

    def __init__(
        self,
        writer: Writer,
        aligned: bool = False,
        streamed: bool = False,
        copies: Mapping[str, int] = MappingProxyType({}),
    ):
        self.writer, self.copies = writer, copies
        self.aligned, self.streamed = aligned, streamed
        self.vector: Vector | None = None
        self.pending: list[StoreVector] = []

    def buffer(self, name: str) -> Expr:
        """The buffer of that name, as elements are read from it."""
        if not self.aligned or (self.streamed and self.vector is not None):
            return Name(name)
        return apply(ALIGNED, Name(name))

    def blocks(self, buffer: str) -> int:
        """The blocks that have a buffer of that name."""
        return self.copies.get(buffer, 1)

    @contextmanager
    def vector_loop(self, element: Index) -> Iterator[None]:
        """The unrolled loop over the elements of a vector, which `element` runs through; its stores
        follow as vector stores. Without a variable it is one element."""
        writer = self.writer
        for lane in element.variables:
            self.vector = Vector(lane.extent, lane, writer.depth)
            with writer.nested(unrolled(lane.name, lane.extent)):
                writer.declare(lane.name)
                yield
            self.vector = None
            for store in self.pending:
                writer.add(store)
            self.pending.clear()
        if not element.variables:
            yield

    def written(
        self,
        buffers: Sequence[str],
        op: Op,
        address: Index,
        value: Expr,
        condition: Expr | None,
        whole: bool = True,
    ) -> list[Store]:
        """The statements that write a value of `op` to buffers. A vector, if `condition` holds for
        the `whole` of it or for nothing of it, is written after the loop over its elements."""
        value = as_stored(op, value)
        base = self.vector.base(address) if self.vector and whole else None
        stores: list[Store] = []
        for buffer in buffers:
            if base is None or self.vector is None:
                stores.append(Store(buffer, Integer(address), value, self.blocks(buffer)))
                continue
            values = self.writer.name(f"{buffer}_vector")
            vector = Array(VectorOf(stored(op.dtype), self.vector.width), values)
            self.writer.add(vector, self.vector.depth)
            self.writer.add(Assign(Element(Name(values), Name(self.vector.lane.name)), value))
            store = StoreVector(buffer, Integer(base), values, condition, self.blocks(buffer))
            self.pending.append(store)
        return stores

    def loaded(self, op: Op, buffer: str, index: Indices) -> Expr:
        """What loads an element of `op` from a buffer of global memory."""
        address = linearize(index, op.dims)
        found = self._in_vector(op, buffer, address) if in_range(op, index) else None
        return as_computed(op, found or Load(self.buffer(buffer), Integer(address)))

    def bases(self, addresses: Sequence[Index]) -> tuple[list[Index], Index]:
        """The begins of the vectors that `addresses` run through, and the index in them;
        `addresses` and 0 if not all run through vectors."""
        bases = [self.vector_base(address) for address in addresses]
        found = [base for base in bases if base is not None]
        if self.vector is None or len(found) < len(bases):
            return list(addresses), Index()
        return found, Index(((self.vector.lane, 1),))

    def vector_base(self, address: Index) -> Index | None:
        """The begin of the vector that `address` runs through, if a loop over one is open."""
        vector, depth_of = self.vector, self.writer.depth_of
        if vector is None or self.writer.pinned_depth > vector.depth:
            return None
        base = vector.base(address)
        # an index that the data decides may be known only inside the loop
        if base is None or any(depth_of[v.name] > vector.depth for v in base.variables):
            return None
        return base

    def loaded_from(self, op: Op, start: str, depth: int, address: Index, aligned: bool) -> Expr:
        """What lies `address` elements after the pointer `start`, known from `depth` on."""
        found = None
        if aligned and self.vector and depth <= self.vector.depth:
            found = self._in_vector(op, start, address)
        return as_computed(op, found or Load(Name(start), Integer(address)))

    def _in_vector(self, op: Op, name: str, address: Index) -> Expr | None:
        """An element of a vector that is loaded as a whole, if a loop over one is open."""
        base = self.vector_base(address)
        if base is None or self.vector is None:
            return None
        return Element(self.vector_of(op, name, base), Name(self.vector.lane.name))

    def vector_of(self, op: Op, name: str, base: Index) -> Expr:
        """The vector at `base`, loaded once before the loop over its elements."""
        assert self.vector is not None
        loaded = self.vectors_before()
        found = loaded.get((name, base))
        if found is None:
            vector = self.writer.name(f"{name}_vector")
            load = self.vector_load(op, name, base, self.vector.width)
            self.writer.let(Raw.LOADED, vector, load, self.vector.depth)
            found = loaded[name, base] = Name(vector)
        return found

    def vectors_before(self) -> dict[Any, Expr]:
        """The vectors known before the loop over the elements of one, by (memory, base)."""
        assert self.vector is not None
        return self.writer.chain[self.vector.depth].memo

    def vector_load(self, op: Op, name: str, base: Index, width: int) -> Expr:
        return LoadVector(stored(op.dtype), width, Name(name), Integer(base))


def as_stored(op: Op, value: Expr) -> Expr:
    """An element of `op` as the type that is stored."""
    kind = stored(op.dtype)
    return value if kind == computed(op.dtype) else apply(STORE_AS, value, template=(kind,))


def as_computed(op: Op, value: Expr) -> Expr:
    """A stored element of `op` as the type that is computed with."""
    return value if stored(op.dtype) == computed(op.dtype) else apply(LOAD, value)
