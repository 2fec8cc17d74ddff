"""Places and memory: where a nest is, and how it reads and writes values there."""

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
from fusionstitch.codegen.ir.types import Raw, VectorOf, computed, stored
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.context import Context
from fusionstitch.codegen.lower.guards import holds
from fusionstitch.codegen.lower.known import Known, Located, Placed, Sources
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.codegen.schedule.walk import POINT, TILE
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Site:
    """Where a nest stands: in `kernel`, inside the tile of `group` that the C variable
    `tile` numbers; names of arrays in shared memory, and the variable that holds how many grid
    points the group has ('' if that is known)."""

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
        self.values = Values(known, sources, kernel.numerics, self.memory.tables)
        self.group = group
        self.axes = group.group.axes
        self.plan = site.nest
        self.nest = site.nest.nest
        self.tile, self.walk = site.tile, site.nest.walk
        #: the grid points that the group has
        self.points: Expr = Name(site.points) if site.points else number(group.grid_points)
        self.shared_names = site.shared_names
        #: the stages that the loops of this group read whole, by op id
        self.whole = {p.op.id: p for s in group.group.stages for p, _ in s.reads}
        self.digits = Digits(group.group, self.nest, group.points)
        #: whether the rows are walked from the last one on
        self.turned = group.backward and bool(self.nest.placed(Place.CARRY))
        #: what the variables are called in which places were decided (codegen/schedule/walk.py)
        self.names = {TILE: site.tile}
        self.vector: Vector | None = None
        self.pending: list[StoreVector] = []
        #: the names of the shared memory that partial results of a stage are exchanged through
        self.exchanges: dict[Stage, str] = {}

    def open_rooms(self) -> None:
        """Declares the shared memory that the nest's threads exchange partial results through."""
        for exchange, slot in self.memory.exchanges.items():
            if exchange.nest is not self.plan:
                continue
            name = self.writer.name(f"{self.label(exchange.stages[0].op)}_exchange")
            self.writer.add(Shared(Raw.BYTE, name, slot.offset, slot.bytes))
            self.exchanges |= dict.fromkeys(exchange.stages, name)

    def position(self, row: Index, width: int) -> Index:
        """The grid point of `row`, in units of `width`."""
        group = self.group
        kept = self.plan.rows // group.points
        point = row // kept if width == 1 else row
        if width > 1 and kept > 1:
            return Index()  # rows inside a block are not split off grid points
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
        if self.turned:
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
        """Writes a stage's value wherever it is wanted: outputs, scratch, shared memory."""
        op, index = stage.op, self.digits.index(stage)
        condition = all_of(conditions)
        stored = self.stores(stage)
        stores = self._written(op, linearize(index, op.dims), value, condition) if stored else []
        if stage in self.memory.shared:
            stores.append(Store(self.shared_names[stage], self._shared_address(stage), value))
        self._guarded_stores(condition, stores)
        if stored:
            self._store_parts(op, index, value, condition)
        for cut in stage.cuts:
            address, guards = cut.place(index, op)
            inside = all_of([condition, holds(guards) if guards else None])
            lane = {self.vector.lane} if self.vector else set()
            whole = not any(lane & guard.index.variables for guard in guards)
            stores = self._written(cut.output, address, value, inside, whole)
            self._guarded_stores(inside, stores)
            self._store_parts(cut.output, delinearize(address, cut.output.dims), value, inside)

    def _written(
        self, op: Op, address: Index, value: Expr, condition: Expr | None, whole: bool = True
    ) -> list[Store]:
        """The statements that write a value to the buffers of `op`. A vector, if `condition` holds
        for the `whole` of it or for nothing of it, is written after the loop over its elements."""
        value = as_stored(op, value)
        base = self.vector.base(address) if self.vector and whole else None
        stores: list[Store] = []
        for place in self.memory.written(op):
            if base is None or self.vector is None:
                stores.append(Store(place, Integer(address), value, self._copies(place)))
                continue
            values = self.writer.name(f"{place}_vector")
            vector = Array(VectorOf(stored(op.dtype), self.vector.width), values)
            self.writer.add(vector, self.vector.depth)
            self.writer.add(Assign(Element(Name(values), Name(self.vector.lane.name)), value))
            store = StoreVector(place, Integer(base), values, condition, self._copies(place))
            self.pending.append(store)
        return stores

    def _store_parts(self, op: Op, index: Indices, value: Expr, condition: Expr | None) -> None:
        """Writes a value to where it is a part of a larger array."""
        for part in self.memory.parts.get(op.id, ()):
            at = [i + start for i, start in zip(index, part.starts, strict=True)]
            place = Integer(linearize(at, part.dims))
            store = Store(part.buffer, place, as_stored(op, value), self._copies(part.buffer))
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

    def _shared_address(self, stage: Stage) -> Expr:
        leaves = self.group.group.in_block(stage)
        digits = [self.digits.point, *(self.digits.of[leaf] for leaf in leaves)]
        return Integer(linearize(digits, [self.group.points, *map(self.axes.extent, leaves)]))

    def stored(self, op: Op, index: Indices) -> Placed | None:
        """How to read `op` at `index` from memory, if it lives there."""
        if (counted := self.values.known.counted(op)) is not None:
            return counted
        if op.opcode == "parameter":
            # inputs hold still: a load that does not depend on the row may precede the loop
            return self._loaded(op, self.memory.buffer(op), index), self.values.depth_of(op, index)
        stage = self.whole.get(op.id)
        if stage is None:
            return None
        if stage in self.group.group.stages:
            return self._stored_in_block(stage, index)
        return self._loaded(op, self.memory.buffer(op), index), self.writer.ordered_depth

    def located(self, op: Op, index: Indices) -> Located | None:
        """Where the element of `op` at `index` lies, if that is in a buffer."""
        stage = self.whole.get(op.id)
        if op.opcode != "parameter" and (stage is None or stage in self.group.group.stages):
            return None
        if self.values.known.counted(op) is not None:
            return None
        return Located(self._buffer(self.memory.buffer(op)), linearize(index, op.dims))

    def _buffer(self, name: str) -> Expr:
        """The buffer of that name, as elements are read from it: compilers are told how those of
        register tiles are aligned, but for a vector of a streamed one."""
        tile = self.plan.tile
        if tile is None or (tile.columns and self.vector is not None):
            return Name(name)
        return apply(ALIGNED, Name(name))

    def _loaded(self, op: Op, name: str, index: Indices) -> Expr:
        address = linearize(index, op.dims)
        found = self._in_vector(op, name, address) if in_range(op, index) else None
        return as_computed(op, found or Load(self._buffer(name), Integer(address)))

    def bases(self, addresses: Sequence[Index]) -> tuple[list[Index], Index]:
        """Where the vectors begin that `addresses` run through, and the place in them; `addresses`
        and 0 if not all of them do."""
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
        # a place that the data decides may be known only inside the loop
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

    def _stored_in_block(self, stage: Stage, index: Indices) -> Placed | None:
        if stage in self.nest.level or stage not in self.memory.shared:
            if stage.is_reduction:
                raise CodegenError(f"{stage.op.name} is read in its own loop at another index.")
            return None
        digits: list[Index] = [self.digits.point]
        extents = [self.group.points]
        for axis, position in zip(self.axes.dims[stage.number], index, strict=True):
            leaves = [x for x in self.axes.set.leaves(axis) if self.axes.extent(x) != 1]
            places = delinearize(position, [self.axes.extent(x) for x in leaves])
            for leaf, digit in zip(leaves, places, strict=True):
                if leaf not in self.group.group.grid:
                    digits.append(digit)
                    extents.append(self.axes.extent(leaf))
                elif digit != self.digits.of[leaf]:
                    raise CodegenError(f"{stage.op.name} is read from another tile.")
        shared = Load(Name(self.shared_names[stage]), Integer(linearize(digits, extents)))
        return shared, self.writer.ordered_depth


def as_stored(op: Op, value: Expr) -> Expr:
    """An element of `op` as the type that is stored."""
    kind = stored(op.dtype)
    return value if kind == computed(op.dtype) else apply(STORE_AS, value, template=(kind,))


def as_computed(op: Op, value: Expr) -> Expr:
    """A stored element of `op` as the type that is computed with."""
    return value if stored(op.dtype) == computed(op.dtype) else apply(LOAD, value)
