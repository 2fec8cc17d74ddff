"""Where a nest is, and how it reads and writes memory there."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fusionstitch.codegen.index_maps.index import (
    Index,
    constant,
    delinearize,
    linearize,
    variable,
)
from fusionstitch.codegen.index_maps.maps import Indices, in_range
from fusionstitch.codegen.index_maps.vectors import Vector
from fusionstitch.codegen.ir.expressions import (
    Element,
    Expr,
    Integer,
    Load,
    LoadVector,
    Name,
    all_of,
    apply,
    number,
)
from fusionstitch.codegen.ir.intrinsics import ALIGNED, LOAD, STORE_AS
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    If,
    Shared,
    Store,
    StoreVector,
    unrolled,
)
from fusionstitch.codegen.ir.types import Raw, Record, Scalar, VectorOf, computed, stored
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.context import Context
from fusionstitch.codegen.lower.edges import EDGES, edge_of
from fusionstitch.codegen.lower.guards import holds
from fusionstitch.codegen.lower.known import AtDepth, Known, Located, Sources
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.codegen.schedule.walk import POINT, TILE
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Site:
    """Where a nest stands: in `kernel`, inside the tile of `group` that the C variable `tile`
    numbers. Also the names of arrays in shared memory, and the variable that holds the number of
    the group's grid points ('' if that is known)."""

    kernel: Context
    group: GroupPlan
    nest: NestPlan
    tile: str
    shared_names: Mapping[Stage, str]
    points: str = ""


class Access:
    """The index digits of every axis of a nest at the current tile, row and column, and the loads
    and stores there, as vectors where a loop over their elements is open."""

    def __init__(self, site: Site):
        kernel, group = site.kernel, site.group
        self.label, self.comment = kernel.label, kernel.comment
        self.memory, self.owned = kernel.memory, kernel.memory.owned
        self.int = kernel.int_
        self.writer = kernel.writer
        known = Known(self.writer, kernel.label, self.int)
        # no cycle: Python would have to look for thousands of them, with all that a kernel becomes
        sources: Sources = weakref.proxy(self)
        self.values = Values(known, sources, kernel.numerics, self.memory.tables, kernel.inlined)
        self.group = group
        self.axes = group.group.axes
        self.plan = site.nest
        self.nest = site.nest.nest
        self.tile, self.walk = site.tile, site.nest.walk
        #: the grid points that the group has
        self.points: Expr = Name(site.points) if site.points else number(group.grid_points)
        self.shared_names = site.shared_names
        #: the stages that the loops of this group read whole, by op id
        self.whole: Mapping[int, Stage] = {
            p.op.id: p for s in group.group.stages for p, _ in s.reads
        }
        self.digits = Digits(group.group, self.nest, group.points)
        #: whether the rows are walked from the last one on
        self.backward = group.backward and bool(self.nest.with_role(Role.CARRY))
        #: the names of the variables in which indices were decided (codegen/schedule/walk.py)
        self.names = {TILE: site.tile}
        self.vector: Vector | None = None
        self.pending: list[StoreVector] = []
        #: the names of the shared memory that partial results of a stage are exchanged through
        self.exchanges: dict[Stage, str] = {}

    def declare_exchanges(
        self, kind: Scalar | Record | Raw = Raw.BYTE, what: str = "exchange"
    ) -> None:
        """Declares the shared memory that the nest's threads exchange partial results through, as
        elements of a type."""
        for exchange, allocation in self.memory.exchanges.items():
            if exchange.nest is not self.plan:
                continue
            name = self.writer.name(f"{self.label(exchange.stages[0].op)}_{what}")
            size = allocation.bytes // kind.bytes
            self.writer.add(Shared(kind, name, allocation.offset, size))
            self.exchanges |= dict.fromkeys(exchange.stages, name)

    def position(self, row: Index, width: int) -> Index:
        """The grid point of `row`, in units of `width`."""
        group = self.group
        rows = self.plan.rows // group.points
        point = self.digits.point_of(row) if width == 1 else row
        if width > 1 and rows > 1:
            return variable(self.tile, group.tiles)  # vectors of one grid point's elements
        position = variable(self.tile, group.tiles) * (group.points // width) + point
        if not group.ragged:
            return position
        name = self.writer.name("point")  # a variable of its own has the exact range
        self.writer.let(self.int, name, Integer(position))
        self.writer.declare(name)
        self.names[POINT] = name
        return variable(name, group.grid_points // width)

    def bind_rows(self, row: Index, position: Index) -> None:
        """Digits of every grid and row axis in terms of the tile and row variables."""
        if self.backward:
            row = constant(self.plan.rows - 1) - row
        self.digits.bind_rows(row, position)

    def value_of(self, stage: Stage) -> Expr:
        """A stage's value here, from now on known in the innermost frame."""
        index = self.digits.index(stage)
        found = self.writer.find((stage.op.id, index))
        value = found[0] if found else self.values.computed(stage.op, index)[0]
        self.writer.block.memo[stage.op.id, index] = value
        return value

    def stores(self, stage: Stage) -> bool:
        """Whether a stage's values go to global memory: not those of a copy beside the stage that
        others have."""
        stored = self.memory.written(stage.op) or stage.op.id in self.memory.parts
        return bool(stored) and not stage.optional

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

    def store(self, stage: Stage, value: Expr, conditions: Sequence[Expr | None]) -> None:
        """Stores a stage's value for all that read it elsewhere."""
        op, index = stage.op, self.digits.index(stage)
        condition = all_of(conditions)
        stores = [one for edge in EDGES for one in edge.store(self, stage, value, condition)]
        self._guarded_stores(condition, stores)
        if self.stores(stage):
            self._store_parts(op, index, value, condition)
        for cut in stage.cuts:
            address, guards = cut.address(index, op)
            inside = all_of([condition, holds(guards) if guards else None])
            lane = {self.vector.lane} if self.vector else set()
            whole = not any(lane & guard.index.variables for guard in guards)
            buffers = self.memory.written(cut.output)
            stores = self._written(buffers, cut.output, address, value, inside, whole)
            self._guarded_stores(inside, stores)
            self._store_parts(cut.output, delinearize(address, cut.output.dims), value, inside)

    def stored_to(
        self, buffers: Sequence[str], stage: Stage, value: Expr, condition: Expr | None
    ) -> list[Store]:
        """What stores the element of a stage to buffers of global memory, where `condition` holds.
        A vector is stored after the loop over its elements."""
        address = linearize(self.digits.index(stage), stage.op.dims)
        return self._written(buffers, stage.op, address, value, condition)

    def _written(
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
                stores.append(Store(buffer, Integer(address), value, self._copies(buffer)))
                continue
            values = self.writer.name(f"{buffer}_vector")
            vector = Array(VectorOf(stored(op.dtype), self.vector.width), values)
            self.writer.add(vector, self.vector.depth)
            self.writer.add(Assign(Element(Name(values), Name(self.vector.lane.name)), value))
            store = StoreVector(buffer, Integer(base), values, condition, self._copies(buffer))
            self.pending.append(store)
        return stores

    def _store_parts(self, op: Op, index: Indices, value: Expr, condition: Expr | None) -> None:
        """Writes a value to where it is a part of a larger array."""
        for part in self.memory.parts.get(op.id, ()):
            at = [i + start for i, start in zip(index, part.starts, strict=True)]
            address = Integer(linearize(at, part.dims))
            store = Store(part.buffer, address, as_stored(op, value), self._copies(part.buffer))
            self._guarded_stores(condition, [store])

    def _copies(self, buffer: str) -> int:
        """The blocks that have a buffer of that name."""
        return self.memory.copies.get(buffer, 1)

    def _guarded_stores(self, condition: Expr | None, stores: Sequence[Store]) -> None:
        if not stores:
            return
        with self.writer.nested(If(condition), pinned=True) if condition else nullcontext():
            for store in stores:
                self.writer.add(store)

    def stored(self, op: Op, index: Indices) -> AtDepth | None:
        """How to read `op` at `index`, if it need not be computed here."""
        edge = edge_of(self, op)
        return edge.read(self, op, index) if edge else None

    def located(self, op: Op, index: Indices) -> Located | None:
        """Where the element of `op` at `index` lies, if that is in a buffer."""
        edge = edge_of(self, op)
        buffer = edge.buffer(self, op) if edge else ""
        return Located(self._buffer(buffer), linearize(index, op.dims)) if buffer else None

    def _buffer(self, name: str) -> Expr:
        """The buffer of that name, as elements are read from it. For register tiles its alignment
        is declared to the compiler, except for a vector of a streamed tile."""
        tile = self.plan.tile
        if tile is None or (tile.columns and self.vector is not None):
            return Name(name)
        return apply(ALIGNED, Name(name))

    def loaded(self, op: Op, buffer: str, index: Indices) -> Expr:
        """What loads an element of `op` from a buffer of global memory."""
        address = linearize(index, op.dims)
        found = self._in_vector(op, buffer, address) if in_range(op, index) else None
        return as_computed(op, found or Load(self._buffer(buffer), Integer(address)))

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
