"""Counts what a kernel does, by a walk through its statements.

Every statement is met once, with how often it runs. A function of the kernel's own is walked through
at each of its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusionstitch.codegen.count.exchanges import Called, Exchange, exchange
from fusionstitch.codegen.count.executions import (
    Condition,
    Executions,
    below_zero,
    both,
    negated,
    turns,
)
from fusionstitch.codegen.count.kinds import Kind, bytes_of, kind_of
from fusionstitch.codegen.count.pressure import Pressure
from fusionstitch.codegen.count.reading import Names, Place
from fusionstitch.codegen.count.warps import Sectors
from fusionstitch.codegen.count.tally import (
    Instructions,
    Memory,
    Phase,
    Tally,
    Traffic,
)
from fusionstitch.codegen.count.values import UNKNOWN, Axis, Unknown, Value, along
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Address,
    Apply,
    Arithmetic,
    Choice,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Named,
    Number,
    Pointer,
)
from fusionstitch.codegen.ir.kernel import Lowered, Space
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Barrier,
    Call,
    Fill,
    For,
    Function,
    Group,
    If,
    Let,
    Scope,
    Shared,
    Skip,
    Statement,
    Store,
    StoreVector,
    Table,
)
from fusionstitch.costmodel.work import price

_MEMORY = {
    Space.INPUT: Memory.INPUT,
    Space.OUTPUT: Memory.OUTPUT,
    Space.SCRATCH: Memory.SCRATCH,
    Space.TABLE: Memory.TABLE,
}
#: Turns of a loop that are told apart; of a longer one only their number is known.
LONGEST = 1 << 14


def count(lowered: Lowered) -> Tally:
    """What a kernel does."""
    walk = _Walk(lowered)
    walk.run()
    return Tally(
        phases=tuple(walk.phases),
        in_flight=walk.pressure.most_loads,
        registers=walk.pressure.registers(lowered.block),
        shared=lowered.shared,
        upper=walk.upper,
        sampled=walk.sampled,
    )


@dataclass(eq=False)
class _Amounts:
    """What is counted of a phase so far."""

    loads: dict[tuple[Memory, int], list[int]] = field(default_factory=dict)
    stores: dict[tuple[Memory, int], list[int]] = field(default_factory=dict)
    ops: dict[tuple[str, str], int] = field(default_factory=dict)
    units: dict[str, float] = field(default_factory=dict)
    barriers: dict[Scope, int] = field(default_factory=dict)
    shuffles: int = 0

    def closed(self) -> Phase:
        for (opcode, dtype), times in self.ops.items():
            one = price(opcode, dtype)
            for unit in ("flops", "flops64", "special", "int_ops"):
                self.units[unit] = self.units.get(unit, 0) + times * getattr(one, unit)
        return Phase(
            loads={key: Traffic(*found) for key, found in self.loads.items()},
            stores={key: Traffic(*found) for key, found in self.stores.items()},
            instructions=Instructions(**{unit: int(n) for unit, n in self.units.items()}),
            barriers=self.barriers,
            shuffles=self.shuffles,
        )


class _Walk:
    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        self.functions = {function.name: function for function in lowered.functions}
        self.thread, self.grid = Axis(0, lowered.block), Axis(1, lowered.grid)
        self.axes = 2
        self.names = Names()
        self.kinds: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.now = _Amounts()
        self.phases: list[Phase] = []
        self.upper = self.sampled = False
        self.runs = Executions((self.thread, self.grid))
        self.sectors = Sectors(self.thread)
        self.pressure = Pressure()

    def run(self) -> None:
        self.names.values |= self._numbers()
        for buffer in self.lowered.buffers:
            place = Place(_MEMORY[buffer.space], bytes_of(buffer.kind))
            self.names.places[buffer.name] = place
        self.body(self.lowered.body)
        self.pressure.wait()
        self.phases.append(self.now.closed())

    def _numbers(self) -> dict[str, Value]:
        return {THREAD.name: along(self.thread), BLOCK.name: along(self.grid)}

    # ---- statements ------------------------------------------------------------------------------

    def body(self, body: Sequence[Statement]) -> None:
        """Statements one after the other; what a `Skip` leaves out, it leaves out to their end."""
        outer, arrays = self.runs, self.pressure.arrays
        for one in body:
            handler = _STATEMENTS.get(type(one))
            if handler:
                handler(self, one)
        self.runs, self.pressure.arrays = outer, arrays

    def group(self, one: Group) -> None:
        for inner in one.body:
            handler = _STATEMENTS.get(type(inner))
            if handler:
                handler(self, inner)

    def let(self, one: Let) -> None:
        self.expr(one.value)
        self.kinds[one.name] = one.kind
        if one.kind[-1] == "*":
            place = self.names.place(one.value)
            if place:
                self.names.places[one.name] = place
        self.names.values[one.name] = UNKNOWN if one.changes else one.value

    def array(self, one: Array) -> None:
        self.kinds[one.name] = one.kind
        self.sizes[one.name] = size = one.size or 1
        self.pressure.array(-(-kind_of(one.kind).bytes // 4) * size)

    def shared(self, one: Shared) -> None:
        self.names.places[one.name] = Place(Memory.SHARED, one.item, one.offset)

    def table(self, one: Table) -> None:
        first = one.values[0]
        place = self.names.place(first) if one.kind[-1] == "*" else None
        if place:
            self.names.places[one.name] = place

    def assign(self, one: Assign) -> None:
        self.expr(one.value)
        if isinstance(one.target, Name):
            self.names.values[one.target.name] = UNKNOWN
        if one.operator:
            kind = self.kind(one.target)
            multiplied = isinstance(one.value, Infix) and one.value.operator == "*"
            self.compute(kind.unit, (2 if multiplied and kind.unit != "int_ops" else 1))

    def store(self, one: Store) -> None:
        self.expr(one.value)
        self.expr(one.address)
        place = self.names.places.get(one.buffer)
        if place:
            at = self._address(place, one.address)
            self.access(self.now.stores, place, at, place.item)

    def store_vector(self, one: StoreVector) -> None:
        place = self.names.places.get(one.buffer)
        outer = self.runs
        if one.condition is not None:
            self.where(one.condition)
        if place:
            width = kind_of(self.kinds[one.values]).bytes
            self.access(self.now.stores, place, self._address(place, one.address), width)
        self.runs = outer

    def fill(self, one: Fill) -> None:
        outer = self.runs
        self.runs = outer.repeated(one.size)
        self.expr(one.value)
        self.runs = outer

    def barrier(self, one: Barrier) -> None:
        lowered = self.lowered
        together = {
            Scope.TEAM: one.threads,
            Scope.BLOCK: lowered.block,
            Scope.CLUSTER: lowered.block * lowered.cluster,
            Scope.GRID: lowered.block * lowered.grid,
        }[one.scope]
        self.meet(one.scope, self.runs.total // together)
        self.pressure.wait()
        if one.scope is Scope.GRID:
            self.phases.append(self.now.closed())
            self.now = _Amounts()

    def meet(self, scope: Scope, times: int) -> None:
        self.now.barriers[scope] = self.now.barriers.get(scope, 0) + times

    def skip(self, one: Skip) -> None:
        self.otherwise(self.names.conditions(one.condition))
        self.expr(one.condition)

    def branches(self, one: If) -> None:
        outer = self.runs
        if one.given:
            self.let(one.given)
        found = self.where(one.condition)
        if self.runs.total:
            self.body(one.body)
        left = outer
        for other in one.others:
            self.runs = left
            self.otherwise(found)
            left = self.runs
            found = self.where(other.condition) if other.condition else []
            if self.runs.total:
                self.body(other.body)
        self.runs = outer

    def where(self, expr: Expr) -> list[Condition]:
        """Goes on with the executions for which a condition holds, whose parts are asked one after
        the other."""
        found: list[Condition] = []
        operands = expr.operands if isinstance(expr, Infix) and expr.operator == "&&" else (expr,)
        for operand in operands:
            self.expr(operand)
            own = self.names.conditions(operand)
            for condition in own:
                self.restrict(condition)
            found += own
        return found

    def otherwise(self, conditions: Sequence[Condition]) -> None:
        """Goes on with the executions for which not all conditions hold."""
        self.restrict(negated(both(conditions)))

    def restrict(self, condition: Condition) -> None:
        if isinstance(condition, Unknown):
            self.upper = True
            self.pressure.wait()
        self.runs = self.runs.where(condition)
        self.sampled |= bool(self.runs.chances)

    def loop(self, one: For) -> None:
        self.expr(one.start)
        self.expr(one.stop)
        start, stop = self.names.value(one.start), self.names.value(one.stop)
        distance = start - stop + 1 if one.down else stop - start
        outer = self.runs
        if isinstance(distance, Unknown):
            self.upper = True
            self.names.values[one.variable] = UNKNOWN
            self.body(one.body)
            return
        most = max(0, -(-outer.greatest(distance) // one.step))
        if most > LONGEST:
            self.names.values[one.variable] = UNKNOWN
            weight = turns(distance, one.step)
            if isinstance(weight, int):
                self.runs = outer.repeated(weight)
            else:
                self.restrict(weight)
        else:
            self.axes += 1
            axis = Axis(self.axes, most)
            self.runs = outer.along(axis) if most != 1 else outer
            self.names.values[one.variable] = start + along(axis, -1 if one.down else one.step)
            if not isinstance(distance, int):
                self.restrict(below_zero(along(axis, one.step) - distance))
        begun = self.pressure.begun
        if self.runs.total:
            self.body(one.body)
        self.pressure.repeated(begun, most, one.unroll)
        self.runs = outer

    def call(self, one: Call) -> None:
        name, _, given = one.function.partition("<")
        function = self.functions.get(one.function)
        if function:
            self.own(function, one.arguments)
            return
        for argument in one.arguments:
            self.expr(argument)
        if name == "fs_store_packed":
            place = self.names.place(one.arguments[0])
            if place:
                element, count = _given(given)
                self.access(self.now.stores, place, place.offset, bytes_of(element) * int(count))
            return
        self.exchanged(name, given, one.arguments)

    def own(self, function: Function, arguments: Sequence[Expr]) -> None:
        """A function of the kernel's own, as called with these arguments."""
        outer, inner = self.names, Names(self._numbers())
        for (kind, name), argument in zip(function.parameters, arguments, strict=True):
            self.kinds[name] = kind
            if kind[-1] == "*":
                place = outer.place(argument)
                if place:
                    inner.places[name] = place
            else:
                inner.values[name] = outer.value(argument)
        for buffer in self.lowered.buffers:
            if buffer.space is Space.TABLE:
                inner.places.setdefault(buffer.name, outer.places[buffer.name])
        self.names = inner
        self.body(function.body)
        self.names = outer

    # ---- expressions -----------------------------------------------------------------------------

    def expr(self, expr: Any) -> None:
        """What it takes to compute an expression."""
        handler = _EXPRESSIONS.get(type(expr))
        if handler:
            handler(self, expr)

    def load(self, one: Load) -> None:
        self.expr(one.at)
        place = self.names.place(one.buffer)
        if place:
            self.access(self.now.loads, place, self._address(place, one.at), place.item)

    def load_vector(self, one: LoadVector) -> None:
        place = self.names.place(one.buffer)
        if place:
            width = bytes_of(one.kind) * one.width
            self.access(self.now.loads, place, self._address(place, one.at), width)

    def arithmetic(self, one: Arithmetic) -> None:
        for argument in one.arguments:
            self.expr(argument)
        op, ops = one.op, self.now.ops
        key = op.opcode, (op.operands[0] if op.operands else op).dtype
        ops[key] = ops.get(key, 0) + self.runs.total

    def applied(self, one: Apply) -> None:
        for argument in one.arguments:
            self.expr(argument)
        name, _, given = one.function.partition("<")
        if name.endswith("::apply"):
            kind = self.kind(one.arguments[0])
            self.compute(kind.unit, kind.fields)
        elif name in _FUNCTIONS:
            key = _FUNCTIONS[name], "f32"
            self.now.ops[key] = self.now.ops.get(key, 0) + self.runs.total
        else:
            self.exchanged(name, given, one.arguments)

    def choice(self, one: Choice) -> None:
        outer = self.runs
        left = outer
        for condition, value in one.cases:
            self.runs = left
            found = self.where(condition)
            self.expr(value)
            self.runs = left
            self.otherwise(found)
            left = self.runs
        self.expr(one.otherwise)
        self.runs = outer

    def infix(self, one: Infix) -> None:
        if one.operator == "&&":
            outer = self.runs
            self.where(one)
            self.runs = outer
            return
        for operand in one.operands:
            self.expr(operand)

    def element(self, one: Element) -> None:
        self.expr(one.array)
        self.expr(one.at)

    # ---- amounts ---------------------------------------------------------------------------------

    def compute(self, unit: str, amount: float) -> None:
        units = self.now.units
        units[unit] = units.get(unit, 0) + amount * self.runs.total

    def access(
        self, into: dict[tuple[Memory, int], list[int]], place: Place, at: Value, width: int
    ) -> None:
        found = into.setdefault((place.memory, width), [0, 0])
        found[0] += self.runs.total
        if place.memory not in (Memory.SHARED, Memory.TABLE):
            if into is self.now.loads:
                if at is UNKNOWN:
                    self.pressure.wait()
                self.pressure.load(width)
            found[1] += self.sectors.touched(at, width, self.runs)

    def _address(self, place: Place, at: Expr) -> Value:
        """Bytes behind the begin of a buffer."""
        if place.memory in (Memory.SHARED, Memory.TABLE):
            return UNKNOWN
        return self.names.value(at) * place.item + place.offset

    def exchanged(self, name: str, given: str, arguments: Sequence[Expr]) -> None:
        """What a function of the headers does that threads call together."""
        values = [self.kind(a) for a in arguments if not isinstance(a, Pointer)]
        if name in _SCRATCH_FIRST:
            values = values[1:]
        found = exchange(name, Called(_given(given), values, self.lowered.block))
        if found is None:
            return
        if found.shuffles or found.barriers:
            self.pressure.wait()
        times, now = self.runs.total, self.now
        for scope, meetings in found.barriers:
            whole = self.lowered.cluster if scope is Scope.CLUSTER else 1
            self.meet(scope, times // (found.threads * whole) * meetings)
        for into, accesses in ((now.loads, found.loads), (now.stores, found.stores)):
            for width, number in accesses:
                one = into.setdefault((Memory.SHARED, width), [0, 0])
                one[0] += times * number // found.threads
        now.shuffles += times * found.shuffles
        if found.joins and values:
            self.compute(values[0].unit, found.joins)
        if found.tensor:
            self.compute("tensor_flops", found.tensor)
        number, width = found.operand
        place = self.names.place(arguments[-1]) if number else None
        if place:
            for _ in range(number):
                self.access(now.loads, place, place.offset, width)

    def kind(self, expr: Expr) -> Kind:
        """The type of a value that is joined: that of its variable or array."""
        if isinstance(expr, Name):
            found = kind_of(self.kinds.get(expr.name, ""))
            size = self.sizes.get(expr.name, 1)
            return Kind(found.bytes, found.fields, size, found.unit)
        if isinstance(expr, Element):
            found = kind_of(self.kinds.get(getattr(expr.array, "name", ""), ""))
            return Kind(found.bytes, found.fields, 1, found.unit)
        return kind_of("float")


def _given(text: str) -> list[str]:
    """Template arguments."""
    return text.removesuffix(">").split(", ")


#: Functions that are called by name, and the ops whose price they have.
_FUNCTIONS = {"expf": "exponential", "fs_approximate_exp": "exponential"}
#: Functions whose first argument is where they exchange values.
_SCRATCH_FIRST = ("fs_reduce_block", "fs_reduce_team", "fs_reduce_cluster")
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
    Barrier: _Walk.barrier,
    Skip: _Walk.skip,
    Group: _Walk.group,
    For: _Walk.loop,
    If: _Walk.branches,
}
_EXPRESSIONS: Mapping[type, Callable[[_Walk, Any], None]] = {
    Load: _Walk.load,
    LoadVector: _Walk.load_vector,
    Arithmetic: _Walk.arithmetic,
    Apply: _Walk.applied,
    Choice: _Walk.choice,
    Infix: _Walk.infix,
    Element: _Walk.element,
}
