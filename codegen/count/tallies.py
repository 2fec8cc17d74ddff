"""Counts what a kernel does, by a walk through its statements.

Every statement is met once, with how often it runs. A function of the kernel's own is walked
through at each of its calls. Grid barriers end phases; where blocks wait for each other by
counters, each arrival and wait does, too, and so do ends of frames around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusionstitch.codegen.count import chains
from fusionstitch.codegen.count.amounts import Amounts
from fusionstitch.codegen.count.axes import Axis
from fusionstitch.codegen.count.block_steps import block_steps, followed
from fusionstitch.codegen.count.conditions import Condition, below_zero, iterations
from fusionstitch.codegen.count.factors import Factor
from fusionstitch.codegen.count.lives import lives
from fusionstitch.codegen.count.reading import Location, Names
from fusionstitch.codegen.count.tally import Phase, Tally
from fusionstitch.codegen.count.values import UNKNOWN, Unknown, along
from fusionstitch.codegen.count.visits import Visits
from fusionstitch.codegen.ir.blocks import Position
from fusionstitch.codegen.ir.counters import has_counters
from fusionstitch.codegen.ir.expressions import (
    Arithmetic,
    Element,
    Expr,
    Infix,
    Load,
    LoadVector,
    Name,
    Number,
)
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    FILLED,
    Array,
    Assign,
    Barrier,
    Call,
    Fill,
    For,
    If,
    Invoke,
    Leave,
    Let,
    Shared,
    Skip,
    Statement,
    Store,
    StoreVector,
    Swap,
    Table,
    While,
)
from fusionstitch.codegen.ir.types import PointerTo
from fusionstitch.codegen.ir.walk import in_order, statements
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.kernel_cost import Path
from fusionstitch.costmodel.kernel_time import path_cycles

#: What takes no branch where it is done under a condition.
_LOADED = (Load, LoadVector, Element, Name, Number)
#: Iterations of a loop that are counted one by one; of a longer loop only their number is known.
LONGEST = 1 << 14


def count(lowered: Lowered, device: Device, trips: int = 1) -> Tally:
    """What a kernel does on a device; a loop that the data ends is assumed to have `trips`
    iterations."""
    walk = _Walk(lowered, device, trips)
    phases = walk.run()
    return Tally(
        phases=phases,
        in_flight=walk.pressure.most_loads,
        registers=walk.pressure.registers,
        spilled=walk.pressure.spilled,
        spilled_bytes=int(4 * walk.pressure.spilled * walk.pressure.most_arrays),
        shared=lowered.shared,
        upper=walk.upper,
        sampled=walk.sampled,
        steps=block_steps(walk.program, walk.ends) if walk.program else (),
    )


class _Walk(Visits):
    """Walks through statements, phase by phase."""

    def __init__(self, lowered: Lowered, device: Device, trips: int):
        super().__init__(lowered, device)
        self.trips, self.iterations = trips, 1
        self.meets = _meets_grid(lowered.body)
        self.program = followed(lowered) if has_counters(lowered) else None
        self.syncing = self.program.syncing if self.program else frozenset[int]()
        #: where it stands, and the phases by where they end, if blocks wait by counters
        self.position: Position = ()
        self.ends: dict[Position, int] = {}
        #: iterations of the innermost loop, and the share of them that a thread goes through on
        #: average where it may leave the loop
        self.turns, self.staying = 1, 1.0
        self.functions = {function.name: function for function in lowered.functions}
        self.loops = self.grid.number
        self.phases: list[Phase] = []

    def run(self) -> tuple[Phase, ...]:
        for buffer in self.lowered.buffers:
            item = buffer.type.bytes
            known = (buffer.name, item * buffer.size)
            integers = np.array(buffer.integers) if buffer.integers else None
            self.names.locations[buffer.name] = Location(
                buffer.memory, item, buffers=(known,), integers=integers
            )
        if self.syncing:
            self.synced(self.lowered.body)
        else:
            self.body(self.lowered.body)
            self.close()
        return tuple(self.phases)

    def close(self) -> None:
        """Ends a phase."""
        self.wait()
        self.path.chain = self.chain.last
        self.phases.append(self.now.closed(self.path, self.iterations, self.costs))
        self.chain = chains.Chain()
        self.now, self.path = Amounts(), Path()

    def part(self, position: Position) -> None:
        """Ends a phase where blocks come to a position, unless there is nothing in it."""
        self.position = position
        if any(vars(self.path).values()) or self.chain.last or self.now.barriers:
            self.ends[position] = len(self.phases)
            self.close()

    def synced(self, body: Sequence[Statement], side: int = 0) -> None:
        """A frame in which blocks arrive or wait, or a side of one."""
        outer = self.position
        self.body(body, side)
        self.part((*outer, side, sum(1 for _ in in_order(body)) + 1))
        self.position = outer

    def body(self, body: Sequence[Statement], side: int = 0) -> None:
        """A frame; what a `Skip` leaves out, it leaves out to its end."""
        outer, position, own = self.runs, self.position, tuple(in_order(body))
        found = lives(own)
        for number, one in enumerate(own):
            if id(one) in self.syncing:
                self.part((*position, side, number + 1))
            if found:
                self.pressure.array(found.born[number] - found.moved[number])
            handler = _STATEMENTS.get(type(one))
            if handler:
                handler(self, one)
            if found:
                self.pressure.arrays += found.moved[number] - found.dead[number]
        self.runs, self.position = outer, position

    # ---- variables -------------------------------------------------------------------------------

    def let(self, one: Let) -> None:
        if isinstance(one.value, Element):
            self.unread.add(one.name)
            self.chain.declare(one.name, self.unchanged(one.value))
        else:
            self.chain.declare(one.name, self.expr(one.value))
        if isinstance(one.value, Arithmetic) and one.value.op.opcode == "multiply":
            self.products.add(one.name)
        self.types[one.name] = one.type
        if isinstance(one.type, PointerTo):
            self.point(one.name, one.value)
        self.names.values[one.name] = UNKNOWN if one.changes else one.value

    def point(self, name: str, to: Expr) -> None:
        """A name for a location in memory."""
        location = self.names.location(to)
        if location:
            self.names.locations[name] = location

    def array(self, one: Array) -> None:
        self.types[one.name] = one.type
        self.sizes[one.name] = one.size or 1
        self.chain.frame.local.add(one.name)

    def shared(self, one: Shared) -> None:
        self.types[one.name] = one.type
        self.names.locations[one.name] = Location(Memory.SHARED, one.type.bytes, one.offset)

    def table(self, one: Table) -> None:
        if isinstance(one.type, PointerTo):  # all of them lie in memory of one kind
            self.point(one.name, one.values[0])

    def assign(self, one: Assign) -> None:
        product = bool(one.operator) and isinstance(one.value, Infix) and one.value.operator == "*"
        if not one.operator and self.moves(one.value):
            time = self.unchanged(one.value)
        elif product:  # it is multiplied and added by one instruction
            assert isinstance(one.value, Infix)
            time = max(self.expr(operand) for operand in one.value.operands)
        else:
            time = self.expr(one.value)
            self.kept(isinstance(one.target, Element))
        key = chains.key(one.target)
        if isinstance(one.target, Name):
            self.names.values[one.target.name] = UNKNOWN
        if one.operator:
            unit = self.type(one.target).unit
            rated = 2 if product and unit == "flops64" else 1
            self.now.compute(unit, rated * self.runs.total)
            self.path.ops += 1
            time = self.chain.after([time, self.chain.read(key)], self.costs.operation_cycles)
        self.chain.write(key, time)

    def fill(self, one: Fill) -> None:
        outer = self.runs
        self.kept(one.size)
        self.runs = outer.repeated(one.size)
        self.chain.write((one.array, Name(FILLED)), self.expr(one.value))
        self.runs = outer

    # ---- memory ----------------------------------------------------------------------------------

    def sent(self, one: Store | StoreVector) -> None:
        """What is stored to other blocks of a cluster: their barrier waits for each of them."""
        self.path.meetings += one.blocks - 1

    def store(self, one: Store) -> None:
        self.sent(one)
        time = self.expr(one.value)
        self.expr(one.address)
        location = self.names.locations.get(one.buffer)
        if location:
            for _ in range(one.blocks):
                self.access(
                    self.now.stores, location, self.address(location, one.address), location.item
                )
            if location.memory is Memory.SHARED:
                self.chain.write((one.buffer, None), time)

    def store_vector(self, one: StoreVector) -> None:
        self.sent(one)
        location = self.names.locations.get(one.buffer)
        outer = self.runs
        if one.condition is not None:
            self.where(one.condition)
        if location:
            width = self.types[one.values].bytes
            for _ in range(one.blocks):
                self.access(self.now.stores, location, self.address(location, one.address), width)
            if location.memory is Memory.SHARED:
                self.chain.write((one.buffer, None), self.chain.read((one.values, None)))
        self.runs = outer

    def swap(self, one: Swap) -> None:
        self.chain.swap(one.left, one.right)

    def barrier(self, one: Barrier) -> None:
        block, cluster, grid = self.lowered.block, self.lowered.cluster, self.lowered.grid
        together = {
            Scope.TEAM: one.threads,
            Scope.BLOCK: block,
            Scope.CLUSTER: block * cluster,
            Scope.GRID: block * grid,
        }[one.scope]
        self.now.meet(one.scope, self.runs.total // together)
        self.wait()
        self.chain.settle()
        if one.scope is Scope.GRID:
            if not self.syncing:
                self.close()
        elif one.scope is Scope.CLUSTER:
            self.path.meetings += 1
        else:
            self.path.barriers += 1

    # ---- control flow ----------------------------------------------------------------------------

    def skip(self, one: Skip) -> None:
        self.expr(one.condition)
        if one.likely is None:
            self.otherwise(self.names.conditions(one.condition))
        else:  # the data may say otherwise
            self.sampled = True
            self.otherwise(self.names.conditions(one.likely))

    def leave(self, one: Leave) -> None:
        if one.likely is None:
            self.expr(one.condition)
            return
        outer, path, upper = self.runs, self.path, self.upper
        self.path = Path()
        self.expr(one.condition)
        path.then(self.path, 1 / self.turns)  # what comes last in the condition, in one iteration
        self.path, self.upper, self.sampled = path, upper, True
        self.otherwise(self.names.conditions(one.likely))
        self.staying *= self.runs.total / max(1, outer.total)

    def repeat(self, one: While) -> None:
        outer = self.runs
        self.runs = outer.repeated(self.trips)
        self.repeat_body(one.body, self.trips)
        self.runs = outer

    def roles(self, one: If) -> None:
        """A branch whose sides are phases of their own: of some blocks."""
        outer = left = self.runs
        if one.given:
            self.let(one.given)
        found = self.where(one.condition)
        self.synced(one.body)
        for side, other in enumerate(one.others, start=1):
            self.runs = left
            self.otherwise(found)
            left = self.runs
            found = self.where(other.condition) if other.condition else []
            self.synced(other.body, side)
        self.runs = outer

    def branches(self, one: If) -> None:
        if id(one) in self.syncing:
            self.roles(one)
            return
        outer = self.runs
        if one.given:
            self.let(one.given)
        self.chain.settle()
        settled, ops = self.chain.settled, self.path.ops
        found = self.where(one.condition)
        left, by_iteration = outer, self.by_iteration(found)
        if by_iteration:  # the compiler knows it where it writes iterations out
            self.chain.back_to(settled)
            self.path.ops = ops
        elif not _is_predicated(one):
            self.sides += 1
        before, ways = self.path, [self.side(one.body)]
        for other in one.others:
            self.runs = left
            self.otherwise(found)
            left = self.runs
            found = self.where(other.condition) if other.condition else []
            by_iteration = by_iteration and self.by_iteration(found)
            ways.append(self.side(other.body))
        self.runs = outer
        taken = Path()
        if by_iteration:  # a thread goes each of them in some iterations
            for way, runs in ways:
                taken.then(way, runs / max(1, outer.total))
        else:
            longest = max((way for way, _ in ways), key=self.path_cycles)
            taken.then(longest)
        self.chain.go_on(taken.chain)
        taken.chain = 0
        before.then(taken)
        self.path = before

    def path_cycles(self, path: Path) -> float:
        """What a thread takes for a way."""
        return path_cycles(path, self.device.prices)

    def by_iteration(self, conditions: Sequence[Condition]) -> bool:
        """Whether conditions are the same for all threads of all blocks."""
        own = {self.thread, self.grid}
        return all(
            isinstance(one, bool) or (isinstance(one, Factor) and own.isdisjoint(one.axes))
            for one in conditions
        )

    def side(self, body: Sequence[Statement]) -> tuple[Path, int]:
        """The way through a side of a branch, and how often it is gone."""
        self.path, runs = Path(), self.runs.total
        self.chain.settle()
        begun = self.chain.settled
        if runs:
            self.body(body)
        self.path.chain = self.chain.last - begun
        self.chain.back_to(begun)
        return self.path, runs

    def loop(self, one: For) -> None:
        self.expr(one.start)
        self.expr(one.stop)
        start, stop = self.names.value(one.start), self.names.value(one.stop)
        distance = start - stop + 1 if one.down else stop - start
        outer = self.runs
        if isinstance(distance, Unknown):
            self.upper = True
            self.names.values[one.variable] = UNKNOWN
            self.repeat_body(one.body, 1, one.unroll, one.variable)
            return
        most = max(0, -(-outer.greatest(distance) // one.step))
        if most > LONGEST:
            self.names.values[one.variable] = UNKNOWN
            weight = iterations(distance, one.step)
            if isinstance(weight, int):
                self.runs = outer.repeated(weight)
            else:
                self.restrict(weight)
        else:
            self.loops += 1
            axis = Axis(self.loops, most)
            self.runs = outer.along(axis) if most != 1 else outer
            self.names.values[one.variable] = start + along(axis, -1 if one.down else one.step)
            if not isinstance(distance, int):
                self.restrict(below_zero(along(axis, one.step) - distance))
        self.repeat_body(one.body, most, one.unroll, one.variable)
        self.runs = outer

    def repeat_body(
        self, body: Sequence[Statement], most: int, unroll: int = 0, variable: str = ""
    ) -> None:
        """The body of a loop of so many iterations at most."""
        if (self.meets and _meets_grid(body)) or self.syncs(body):
            self.in_phases(body, most)
            return
        begun, before, sides = self.pressure.begun, self.path, self.sides
        outer = self.turns, self.staying
        self.turns, self.staying = max(1, most), 1.0
        iteration, frame = Path(), self.chain.begin()
        self.path = iteration
        if self.runs.total:
            self.body(body)
        most = math.ceil(most * self.staying)
        self.turns, self.staying = outer
        self.chain.end(frame, most, variable)
        rounds = self.pressure.rounds(begun, most, unroll, self.sides > sides)
        iteration.rounds += rounds
        iteration.far += rounds * self.pressure.far
        before.then(iteration, most)
        self.pressure.repeated(begun, most, unroll)
        self.path = before

    def in_phases(self, body: Sequence[Statement], iterations: int) -> None:
        """The body of a loop with grid barriers, whose phases are its own: the part before the
        first barrier of an iteration and the part after the last one of the iteration before count
        as two phases."""
        outer = self.iterations
        if self.syncing:
            self.iterations = outer * iterations
            self.synced(body)
        else:
            self.close()
            self.iterations = outer * iterations
            self.body(body)
            self.close()
        self.iterations = outer

    def syncs(self, body: Sequence[Statement]) -> bool:
        """Whether blocks arrive or wait inside."""
        return any(id(one) in self.syncing for one in body)

    def call(self, one: Call) -> None:
        for argument in one.arguments:
            self.expr(argument)
        self.called(one)

    def invoke(self, one: Invoke) -> None:
        """A function of the kernel's own, as called with these arguments."""
        function, arguments = self.functions[one.function], one.arguments
        outer, inner = self.names, Names(dict(self.numbers))
        for buffer in self.lowered.buffers:
            if buffer.memory is Memory.CONSTANT:  # they lie outside of the kernel
                inner.locations[buffer.name] = outer.locations[buffer.name]
        for (kind, name), argument in zip(function.parameters, arguments, strict=True):
            self.types[name] = kind
            if isinstance(kind, PointerTo):
                location = outer.location(argument)
                if location:
                    inner.locations[name] = location
            else:
                inner.values[name] = outer.value(argument)
        self.names = inner
        self.chain.settle()
        self.body(function.body)
        self.chain.settle()
        self.names = outer


def _is_predicated(one: If) -> bool:
    """Whether compilers need no branch for it: what it does is to load, and to say what comes of
    that."""
    sides = (one.body, *(other.body for other in one.others))
    return all(isinstance(s, (Let, Assign)) and type(s.value) in _LOADED for s in sum(sides, ()))


def _meets_grid(body: Sequence[Statement]) -> bool:
    """Whether there is a grid barrier inside."""
    return any(isinstance(one, Barrier) and one.scope is Scope.GRID for one in statements(body))


_STATEMENTS: Mapping[type, Callable[[_Walk, Any], None]] = {
    Let: _Walk.let,
    Array: _Walk.array,
    Shared: _Walk.shared,
    Table: _Walk.table,
    Assign: _Walk.assign,
    Store: _Walk.store,
    StoreVector: _Walk.store_vector,
    Fill: _Walk.fill,
    Call: _Walk.call,
    Invoke: _Walk.invoke,
    Barrier: _Walk.barrier,
    Swap: _Walk.swap,
    Skip: _Walk.skip,
    Leave: _Walk.leave,
    While: _Walk.repeat,
    For: _Walk.loop,
    If: _Walk.branches,
}
