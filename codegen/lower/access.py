"""Where a nest is, and how it reads and writes memory there."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import (
    Index,
    constant,
    delinearize,
    linearize,
    variable,
)
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.index_maps.vectors import Vector
from fusionstitch.codegen.ir.expressions import (
    Expr,
    Integer,
    Name,
    all_of,
    number,
)
from fusionstitch.codegen.ir.statements import (
    If,
    Shared,
    Store,
)
from fusionstitch.codegen.ir.types import Raw, Record, Scalar
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.context import Context
from fusionstitch.codegen.lower.edges import EDGES, edge_of
from fusionstitch.codegen.lower.guards import holds
from fusionstitch.codegen.lower.known import AtDepth, Known, Located, Sources
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.lower.vector_access import VectorAccess, as_stored
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
        tile = self.plan.tile
        self.elements = VectorAccess(
            self.writer, tile is not None, bool(tile and tile.columns), self.memory.copies
        )
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
            stores = self.elements.written(buffers, cut.output, address, value, inside, whole)
            self._guarded_stores(inside, stores)
            self._store_parts(cut.output, delinearize(address, cut.output.dims), value, inside)

    def stored_to(
        self, buffers: Sequence[str], stage: Stage, value: Expr, condition: Expr | None
    ) -> list[Store]:
        """What stores the element of a stage to buffers of global memory, where `condition` holds.
        A vector is stored after the loop over its elements."""
        address = linearize(self.digits.index(stage), stage.op.dims)
        return self.elements.written(buffers, stage.op, address, value, condition)

    def _store_parts(self, op: Op, index: Indices, value: Expr, condition: Expr | None) -> None:
        """Writes a value to where it is a part of a larger array."""
        for part in self.memory.parts.get(op.id, ()):
            at = [i + start for i, start in zip(index, part.starts, strict=True)]
            address = Integer(linearize(at, part.dims))
            store = Store(
                part.buffer, address, as_stored(op, value), self.elements.blocks(part.buffer)
            )
            self._guarded_stores(condition, [store])

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
        return Located(self.elements.buffer(buffer), linearize(index, op.dims)) if buffer else None

    @property
    def vector(self) -> Vector | None:
        """What the loop is over that is open."""
        return self.elements.vector

    def bases(self, addresses: Sequence[Index]) -> tuple[list[Index], Index]:
        """As `VectorAccess.bases`."""
        return self.elements.bases(addresses)

    def loaded_from(self, op: Op, start: str, depth: int, address: Index, aligned: bool) -> Expr:
        """As `VectorAccess.loaded_from`."""
        return self.elements.loaded_from(op, start, depth, address, aligned)
