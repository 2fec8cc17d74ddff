"""Taking sums out of a loop, in a module's proto: the loop stacks terms, and one op behind it adds
them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.edit import FreshNames, fill_shape, put
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.loop_editor import Element, LoopEditor


@dataclass(frozen=True, eq=False)
class StackedInput:
    """What iterations read one behind the other: element `index` that the loop carries. `op` is
    what one of them reads."""

    op: Op
    index: int


@dataclass(frozen=True, eq=False)
class Stacked:
    """A stack that the loop is to write: `value` of each iteration, the `number`th new one."""

    value: Op
    number: int

    @property
    def op(self) -> Op:
        """What one iteration writes."""
        return self.value


@dataclass(frozen=True, eq=False)
class Joined:
    """Stacks, concatenated as `op` does it in an iteration."""

    op: Op
    parts: tuple[Lifted, ...]


Lifted = StackedInput | Stacked | Joined


@dataclass(frozen=True, eq=False)
class Summed:
    """`inside`, an element of what a loop carries, adds up `moves` of `term`, the first of which
    comes last; `term` is a dot or a reduction, its operands over all iterations are `operands`."""

    inside: Op
    moves: tuple[Op, ...]
    term: Op
    operands: tuple[Lifted, ...]


@dataclass(frozen=True, eq=False)
class LoopSums:
    """The sums to be taken out of a loop of `trips` iterations, and the stacks that it writes for
    that, an iteration at place `at` of each."""

    graph: Graph
    loop: Op
    trips: int
    at: Op
    stacks: tuple[Stacked, ...]
    sums: tuple[Summed, ...]


def take_out(module: Module, found: Sequence[LoopSums]) -> None:
    """Edits the module's proto, which is to be read again."""
    names = FreshNames(module.proto)
    for one in found:
        edit = _Edit(module.proto, names, one)
        if not edit.loop.sharded:
            edit.inside()
            edit.behind()
            edit.loop.close()
    # an order fixed before the edit no longer lists the instructions there are
    module.proto.ClearField("schedule")


class _Edit:
    """The edit of one loop."""

    def __init__(self, module: Any, names: FreshNames, sums: LoopSums):
        self.sums = sums
        self.loop = LoopEditor(module, names, sums.graph, sums.loop)
        self.inner, self.outer = self.loop.inner, self.loop.outer
        #: the stacks behind the loop, by their element of what it carries
        self.stacks: dict[int, Any] = {}

    def shape(self, op: Op) -> Shape:
        """That of a stack of `op` of all iterations."""
        return Shape(op.dtype, (self.sums.trips, *op.dims))

    def inside(self) -> None:
        """An iteration writes its values into stacks that the loop carries, and adds nothing up
        any more."""
        inner, outer, at = self.inner, self.outer, self.sums.at
        elements = []
        for stack in self.sums.stacks:
            value, shape = stack.value, self.shape(stack.value)
            source = inner.by_id[value.origin]
            whole = self.loop.read(self.loop.carried + stack.number, shape, source)
            row = inner.add("reshape", Shape(value.dtype, (1, *value.dims)), [source.id], source)
            zeros = [inner.zero(at.dtype, source).id] * len(value.dims)
            operands = [whole.id, row.id, inner.by_id[at.origin].id, *zeros]
            written = inner.add("dynamic-update-slice", shape, operands, source)
            zero = outer.zero(shape.dtype, self.loop.instruction)
            first = outer.add("broadcast", shape, [zero.id], self.loop.instruction)
            elements.append(Element(shape, first.id, written.id))
        self.loop.widen(elements)
        for summed in self.sums.sums:
            self.loop.root.operand_ids[summed.inside.attrs["index"]] = summed.inside.origin

    def behind(self) -> None:
        """What the loop wrote is added up behind it."""
        for summed in self.sums.sums:
            self._add_up(summed)

    def _add_up(self, one: Summed) -> None:
        """The sum over all iterations, added to what the loop would begin with."""
        outer, inner, loop = self.outer, self.inner, self.loop.instruction
        term = inner.by_id[one.term.origin]
        operands = [self._stack(operand).id for operand in one.operands]
        if term.opcode == "reduce":
            operands.append(outer.zero(one.term.dtype, loop).id)
        made = outer.bring(term, operands)
        if term.opcode == "reduce":
            _deepen(made.dimensions)
        else:
            numbers = made.dot_dimension_numbers
            for dims in (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions):
                _deepen(dims)
            for dims in (numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions):
                _shift(dims)
        for move in reversed(one.moves):
            rest = [outer.zero(move.dtype, loop).id] if move.opcode == "reduce" else []
            made = outer.bring(inner.by_id[move.origin], [made.id, *rest])
        index = one.inside.attrs["index"]
        for result in outer.computation.instructions:
            if (
                result.opcode == "get-tuple-element"
                and result.tuple_index == index
                and result.operand_ids[0] == loop.id
            ):
                result.opcode, result.tuple_index = "add", 0
                put(result.operand_ids, [self.loop.given.operand_ids[index], made.id])

    def _stack(self, lifted: Lifted) -> Any:
        """What all iterations had, behind the loop."""
        outer = self.outer
        if isinstance(lifted, Joined):
            source = self.inner.by_id[lifted.op.origin]
            made = outer.bring(source, [self._stack(part).id for part in lifted.parts])
            made.shape.Clear()
            fill_shape(made.shape, self.shape(lifted.op))
            _shift(made.dimensions)
            return made
        if isinstance(lifted, StackedInput):
            return outer.by_id[self.loop.given.operand_ids[lifted.index]]
        index = self.loop.carried + lifted.number
        if index not in self.stacks:
            self.stacks[index] = self.loop.result(index, self.shape(lifted.op))
        return self.stacks[index]


def _deepen(dims: Any) -> None:
    """The dims that an op goes along, and that of the iterations before them."""
    put(dims, [0, *(dim + 1 for dim in dims)])


def _shift(dims: Any) -> None:
    """Dims behind that of the iterations."""
    put(dims, [dim + 1 for dim in dims])
