"""A flat region with loops as statements: each thread runs all iterations of its row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import (
    Index,
    constant,
    delinearize,
    linearize,
    variable,
)
from fusionstitch.codegen.index_maps.maps import Indices, in_range, position
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Cast,
    Expr,
    Integer,
    Load,
    Name,
    Not,
    Number,
    all_of,
    element,
    infix,
    number,
)
from fusionstitch.codegen.ir.statements import (
    ALL,
    Array,
    Assign,
    For,
    If,
    Leave,
    Let,
    Statement,
    Store,
    While,
)
from fusionstitch.codegen.ir.types import LONG, IndexType, computed
from fusionstitch.codegen.lower.known import AtDepth, Elementwise, Known
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.lower.vector_access import as_computed, as_stored
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.while_loops.flat import Carried, Flat, Loop, made_of
from fusionstitch.codegen.while_loops.partial_updates import (
    MOST_IN_REGISTERS,
    Update,
    fits,
    is_whole,
    read_by_others,
    updates,
)
from fusionstitch.codegen.while_loops.rows import Dim, Rows
from fusionstitch.codegen.while_loops.trips import counter
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op

#: Elements of inputs that a thread reads before its loop and keeps in registers.
MOST_READ_BEFORE = 64
#: Iterations that are written out where an iteration is short: the next ones' loads begin early.
#: Of a long one only itself is: left to the compiler, a filter of 700 instructions was written out
#: for all of its 200 iterations, which took 4.6 s and no instruction cache holds.
UNROLL, SHORT = 4, 128
#: Most elements of an array in registers of which an iteration replaces some at an index that the
#: data decides. It selects each element anew: registers have no index, and local memory takes as
#: long.
FEW = 16


@dataclass(frozen=True)
class Locations:
    """C names of inputs by the number of their parameter, of outputs by that of their root, and of
    tables of constants by op id; instructions that the cache of a multiprocessor holds."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    tables: Mapping[int, str]
    cached: int


@dataclass(frozen=True)
class _Home:
    """Where a carried value is: an array of the thread, or the buffer of an output, or nowhere, as
    the `value` after its loop is known. `depth` is that of the frame from which on it is there."""

    depth: int
    array: str = ""
    value: Expr | None = None


class Lowering(Elementwise):
    """Writes the loops of `flat` for the `rows` that its threads deal out."""

    def __init__(
        self,
        flat: Flat,
        rows: Rows,
        steps: Mapping[Loop, str],
        memory: Locations,
        numerics: str,
        int_: IndexType,
        w: Writer,
    ):
        self.flat, self.rows, self.steps = flat, rows, steps
        self.memory, self.writer, self.int = memory, w, int_
        self.values = Values(Known(w, _label, int_), self, numerics, dict(memory.tables))
        self.homes: dict[int, _Home] = {}
        self.digits: dict[Dim, Index] = {}
        #: the outputs that loops write
        self.written: set[int] = set()

    def body(self, block: int) -> tuple[Statement, ...]:
        """The kernel's statements, for blocks of so many threads."""
        writer, count = self.writer, self.rows.count
        row = writer.name("row")
        first = infix("*", Cast(self.int, BLOCK), block)
        guard = If(infix("<", Name(row), count), Let(self.int, row, infix("+", first, THREAD)))
        with writer.nested(guard, pinned=True):
            writer.declare(row)
            digits = delinearize(variable(row, count), [n for _, n in self.rows.chosen])
            for (axis, _), digit in zip(self.rows.chosen, digits, strict=True):
                self.digits[axis] = digit
            for loop in self.flat.loops:
                self.loop(loop)
            self.outputs()
        return writer.body

    # ---- loops -----------------------------------------------------------------------------------

    def loop(self, loop: Loop) -> None:
        flat, writer = self.flat, self.writer
        count = counter(flat, loop)
        stacked = {c: parts for c in loop.carried if (parts := self.stacked(c)) is not None}
        self.written |= {self.output_of(c) for c in stacked}
        changing = [
            c for c in loop.carried if c not in stacked and not (count and c is count.carried)
        ]
        chosen = None if loop.chosen is None else self.value(flat.root(loop.chosen), ())
        step = self.steps.get(loop, "")
        filled = {
            c
            for c in loop.carried
            if count and (parts := updates(flat, c)) and is_whole(flat, c, parts, count, step)
        }
        assigned = {c: parts for c in changing if (parts := self.assigned(c, c in filled))}
        # what iterations fill and nothing reads until they end begins with nothing
        empty = {c for c in filled if chosen is None and not read_by_others(flat, c)}
        arrays = {c: self.declared(c, c not in empty) for c in changing}
        for c in stacked:
            if c not in empty:
                self.filled(c)
        frame: For | While = While()
        if count:
            kind = LONG if count.trips >= 1 << 31 else self.int
            unroll = self.unroll(loop, count.trips, filled & assigned.keys())
            frame = For(kind, step, number(0), number(count.trips), unroll=unroll)
        if count is None or count.trips:
            self.iteration(loop, frame, {**stacked, **assigned}, arrays, chosen)
        depth = writer.depth
        for c, name in arrays.items():
            self.homes[c.after] = _Home(depth, name)
        if count:
            last = count.start + count.trips * count.step
            dtype = flat.parameter(count.carried.inside).dtype
            self.homes[count.carried.after] = _Home(0, value=Number(literal(last, dtype)))

    def iteration(
        self,
        loop: Loop,
        frame: For | While,
        parts: Mapping[Carried, tuple[Update, ...]],
        arrays: Mapping[Carried, str],
        chosen: Expr | None,
    ) -> None:
        """What a loop repeats, if it is `chosen`: new values for `arrays`, and for those carried
        values that have some only these `parts` of them."""
        flat, writer = self.flat, self.writer
        with writer.nested(frame, pinned=self.reads_much(), ordered=True):
            depth = writer.depth
            if isinstance(frame, For):
                writer.declare(frame.variable)
            for c, name in arrays.items():
                self.homes[c.inside] = _Home(depth, name)
            if chosen is not None:
                writer.add(Leave(Not(chosen)))
            if isinstance(frame, While):
                conditions = self.elements(flat.root(loop.condition))
                done = all_of(Not(goes_on) for goes_on in conditions)
                assert done is not None
                writer.add(Leave(done))  # where none of the thread's rows goes on
            for inner in loop.inner:
                self.loop(inner)
            new = {c: list(self.elements(flat.root(c.next))) for c in arrays if c not in parts}
            replaced = [
                one for c, some in parts.items() for one in self.replaced(c, some, arrays.get(c))
            ]
            for c, values in new.items():
                for at, value in enumerate(values):
                    writer.add(Assign(element(arrays[c], constant(at)), value))
            for condition, store in replaced:
                self.guarded(condition, [store])

    def unroll(self, loop: Loop, trips: int, filled: Set[Carried]) -> int:
        """How many iterations are unrolled: all where they fill arrays of the thread, which are in
        registers if all indices are constants."""
        flat = self.flat
        if loop.inner:
            return 1
        if filled:
            stored = {flat.root(c.next) for c in filled}
            changing = self.changing(loop)
            if (
                trips * sum(self.rows.work(op) for op in changing if op not in stored)
                <= self.memory.cached
            ):
                return ALL
        return UNROLL if self.rows.total(flat) <= SHORT else 1

    def changing(self, loop: Loop) -> list[Op]:
        """The ops of an iteration that depend on what the loop carries."""
        found = {self.flat.parameter(c.inside).id for c in loop.carried}
        ops = made_of(self.flat.root(c.next) for c in loop.carried)
        for op in ops:
            if any(operand.id in found for operand in op.operands):
                found.add(op.id)
        return [op for op in ops if op.id in found]

    def assigned(self, c: Carried, filled: bool) -> tuple[Update, ...] | None:
        """The parts of an array of the thread that an iteration assigns; None if it chooses each
        element anew."""
        flat, inside = self.flat, self.flat.parameter(c.inside)
        parts = updates(flat, c)
        own = math.prod(self.rows.own(inside))
        if parts is None or not (filled or own > FEW):
            return None
        if any(q.dims not in ((), inside.dims) for part in parts for q in part.conditions):
            return None
        several = sum(math.prod(self.rows.own(part.value)) for part in parts)
        return parts if filled or several * FEW <= own else None

    def declared(self, c: Carried, begins: bool) -> str:
        """Declares the registers of a carried value, with what they hold first if it `begins` with
        something."""
        op, first = self.flat.parameter(c.inside), self.flat.root(c.first)
        if not fits(self.rows, op):
            raise CodegenError(f"A thread cannot keep {op.name}, {op.shape}, of one row.")
        values = list(self.elements(first)) if begins else []
        size = math.prod(self.rows.own(op))
        name = self.writer.name(f"{_label(op)}_kept")
        self.writer.add(Array(computed(op.dtype), name, size))
        for at, value in enumerate(values):
            self.writer.add(Assign(element(name, constant(at)), value))
        return name

    def reads_much(self) -> bool:
        """Whether what an iteration reads of the inputs should not wait in registers."""
        inputs = (self.flat.parameter(i) for i in range(self.flat.inputs))
        return sum(math.prod(self.rows.own(op)) for op in inputs) > MOST_READ_BEFORE

    # ---- arrays in memory ------------------------------------------------------------------------

    def stacked(self, c: Carried) -> tuple[Update, ...] | None:
        """The parts of an output that an iteration writes, if nothing reads them in it."""
        flat, inside = self.flat, self.flat.parameter(c.inside)
        parts = updates(flat, c)
        if parts is None or self.output(c) is None:
            return None
        if read_by_others(flat, c):
            return None
        return parts if all(self.deals_all(inside)) else None

    def deals_all(self, op: Op) -> Iterator[bool]:
        """By axis of the rows, whether it is one of the op."""
        own = {self.rows.axes[op.id, d] for d in range(op.shape.rank)}
        return (axis in own for axis, _ in self.rows.chosen)

    def output(self, c: Carried) -> int | None:
        """The one output that a carried value becomes."""
        after = self.flat.parameter(c.after)
        roots = self.flat.graph.root.operands
        found = [n for n, op in enumerate(roots) if op is after]
        if len(found) != 1 or found[0] >= self.flat.outputs or self.flat.graph.users[after.id][1:]:
            return None
        return found[0]

    def filled(self, c: Carried) -> None:
        """Writes what an array in memory holds before its loop."""
        first = self.flat.root(c.first)
        self.stored_all(first, self.memory.outputs[self.output_of(c)])

    def output_of(self, c: Carried) -> int:
        found = self.output(c)
        assert found is not None
        return found

    def stored_all(self, op: Op, buffer: str) -> None:
        """Writes what this thread has of a value, by loops over the dims that it has whole."""
        writer, index = self.writer, list(self.index(op))
        with ExitStack() as stack:
            for d, n in enumerate(self.rows.own(op)):
                if n > 1:
                    name = writer.name("at")
                    frame = For(self.int, name, number(0), number(n))
                    stack.enter_context(writer.nested(frame, ordered=True))
                    index[d] = variable(writer.declare(name), n)
            value = self.value(op, tuple(index))
            writer.add(Store(buffer, Integer(linearize(index, op.dims)), as_stored(op, value)))

    def replaced(
        self, c: Carried, parts: Sequence[Update], array: str | None
    ) -> Iterator[tuple[Expr | None, Store | Assign]]:
        """The stores of the parts that an iteration replaces: of an array of the thread, or in
        memory."""
        inside = self.flat.parameter(c.inside)
        for part in parts:
            counts = [n - size + 1 for n, size in zip(inside.dims, part.value.dims, strict=True)]
            starts = self.values.named(
                tuple(position(s, (), count) for s, count in zip(part.starts, counts, strict=True))
            )
            for index in self.indices(part.value):
                at = tuple(i + s for i, s in zip(index, starts, strict=True))
                conditions = [
                    self.value(q, at if q.shape.rank else ())
                    if q.dims in ((), inside.dims)
                    else None
                    for q in part.conditions
                ]
                if None in conditions:
                    raise CodegenError(f"{inside.name} is replaced where an array decides.")
                value = self.value(part.value, index)
                if array:
                    target = element(array, self.own_index(inside, at))
                    yield all_of(conditions), Assign(target, value)
                else:
                    buffer = self.memory.outputs[self.output_of(c)]
                    address = Integer(linearize(at, inside.dims))
                    yield all_of(conditions), Store(buffer, address, as_stored(inside, value))

    # ---- values ----------------------------------------------------------------------------------

    def outputs(self) -> None:
        """Writes the outputs that no loop wrote."""
        for number_, name in enumerate(self.memory.outputs):
            if number_ in self.written:
                continue
            op = self.flat.root(number_)
            own = self.rows.own(op)
            absent = [
                self.digits[a]
                for (a, _), has in zip(self.rows.chosen, self.deals_all(op), strict=True)
                if not has
            ]
            first = all_of([infix("==", Integer(i), 0) for i in absent if i.terms])
            stores = []
            if math.prod(own) > MOST_IN_REGISTERS:
                raise CodegenError(f"A thread would write {math.prod(own)} elements of {op.name}.")
            for index in self.indices(op):
                value = self.value(op, index)
                address = Integer(linearize(index, op.dims))
                stores.append(Store(name, address, as_stored(op, value)))
            self.guarded(first, stores)

    def guarded(self, condition: Expr | None, stores: Sequence[Store | Assign]) -> None:
        with ExitStack() as stack:
            if condition is not None:
                stack.enter_context(self.writer.nested(If(condition), pinned=True))
            for store in stores:
                self.writer.add(store)

    def indices(self, op: Op) -> Iterator[Indices]:
        """The indices of the elements of `op` that this thread has."""
        index = self.index(op)
        for own in itertools.product(*map(range, self.rows.own(op))):
            yield tuple(i if i.terms else constant(o) for i, o in zip(index, own, strict=True))

    def index(self, op: Op) -> Indices:
        """The index of the first element of `op` that this thread has."""
        dims = ((op.id, d) for d in range(op.shape.rank))
        return tuple(self.digits.get(self.rows.axes[dim], Index()) for dim in dims)

    def elements(self, op: Op) -> Iterator[Expr]:
        """The elements of what this thread has of `op`, each by a name of its own."""
        for index in self.indices(op):
            yield self.value(op, index)

    def value(self, op: Op, index: Indices) -> Expr:
        """An element, by name: carried values change before it is used."""
        value, depth = self.values.at_depth(op, index)
        if isinstance(value, (Name, Number)):
            return value
        return self.values.known.define(op, index, value, depth)[0]

    # ---- sources of values -----------------------------------------------------------------------

    def stored(self, op: Op, index: Indices) -> AtDepth | None:
        """Reads inputs from memory, and carried values from where they are."""
        if op.opcode != "parameter":
            return None
        number_ = op.attrs["index"]
        if number_ < self.flat.inputs:
            load = Load(Name(self.memory.inputs[number_]), Integer(linearize(index, op.dims)))
            return as_computed(op, load), self.values.depth_of(op, index)
        home = self.homes.get(number_)
        if home is None and (counted := self.values.known.counted(op)) is not None:
            return counted
        if home is None:
            raise CodegenError(f"{op.name} is read while it is written: its loop is left to XLA.")
        if home.value is not None:
            return home.value, home.depth
        depth = home.depth
        if not in_range(op, index):  # the check of its index stands around it
            depth = max(depth, self.writer.ordered_depth)
        return element(home.array, self.own_index(op, index)), depth

    def own_index(self, op: Op, index: Indices) -> Index:
        """Where an element of `op` is in an array of what this thread has of it."""
        own = self.rows.own(op)
        return linearize([i if n > 1 else Index() for i, n in zip(index, own, strict=True)], own)


def _label(op: Op) -> str:
    return op.name or op.opcode
