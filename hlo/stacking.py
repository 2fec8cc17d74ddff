"""Taking sums out of a loop, in a module's proto: the loop stacks terms, and one op behind it adds
them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.hlo.edit import Editor, FreshNames, fill_shape, put, sort_instructions
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES, fill_literal


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
        if any(instruction.HasField("sharding") for instruction in edit.carriers):
            continue  # each element of what the loop carries has one
        edit.inside()
        edit.behind()
        sort_instructions(edit.body)
        sort_instructions(edit.around)
    # an order fixed before the edit no longer lists the instructions there are
    module.proto.ClearField("schedule")


class _Editor(Editor):
    def bring(self, source: Any, operands: Sequence[int]) -> Any:
        """A copy of what may be of another computation, as what it has to wait for is."""
        made = self.copy(source, operands)
        put(made.control_predecessor_ids, [])
        return made

    def zero(self, dtype: str, source: Any) -> Any:
        """A scalar zero."""
        made = self.add("constant", Shape(dtype, ()), (), source)
        fill_literal(made.literal, np.zeros((), NUMPY_DTYPES[dtype]), made.shape)
        return made


class _Edit:
    """One loop's edit: `around` is the computation with the loop."""

    def __init__(self, module: Any, names: FreshNames, sums: LoopSums):
        self.module, self.names, self.sums = module, names, sums
        computations = {c.id: c for c in module.computations}
        self.around = computations[sums.graph.proto_id]
        self.condition, self.body = (computations[g.proto_id] for g in sums.loop.called)
        by_id = {i.id: i for i in self.around.instructions}
        self.loop = by_id[sums.loop.origin]
        self.given = by_id[self.loop.operand_ids[0]]
        self.root = next(i for i in self.body.instructions if i.id == self.body.root_id)
        self.parameters = [
            next(i for i in c.instructions if i.opcode == "parameter")
            for c in (self.body, self.condition)
        ]
        self.carried = len(self.loop.shape.tuple_shapes)
        #: the stacks behind the loop, by their element of what it carries
        self.stacks: dict[int, Any] = {}

    @property
    def carriers(self) -> list[Any]:
        """The instructions whose shape is that of what the loop carries."""
        return [self.loop, self.given, self.root, *self.parameters]

    def shape(self, op: Op) -> Shape:
        """That of a stack of `op` of all iterations."""
        return Shape(op.dtype, (self.sums.trips, *op.dims))

    def inside(self) -> None:
        """An iteration writes its values into stacks, and adds nothing up any more."""
        self.inner = inner = _Editor(self.module, self.body, self.names)
        at = self.sums.at
        for stack in self.sums.stacks:
            value, shape = stack.value, self.shape(stack.value)
            source = inner.by_id[value.origin]
            whole = inner.add("get-tuple-element", shape, [self.parameters[0].id], source)
            whole.tuple_index = self.carried + stack.number
            row = inner.add("reshape", Shape(value.dtype, (1, *value.dims)), [source.id], source)
            zeros = [inner.zero(at.dtype, source).id] * len(value.dims)
            operands = [whole.id, row.id, inner.by_id[at.origin].id, *zeros]
            written = inner.add("dynamic-update-slice", shape, operands, source)
            self.root.operand_ids.append(written.id)
            for one in (self.root, *self.parameters):
                fill_shape(one.shape.tuple_shapes.add(), shape)
            for computation in (self.condition, self.body):
                said = computation.program_shape
                for one in (*said.parameters, said.result):
                    if one.tuple_shapes:
                        fill_shape(one.tuple_shapes.add(), shape)
        for summed in self.sums.sums:
            self.root.operand_ids[summed.inside.attrs["index"]] = summed.inside.origin

    def behind(self) -> None:
        """The loop carries the stacks, and what it wrote is added up behind it."""
        self.outer = outer = _Editor(self.module, self.around, self.names)
        self.given = outer.bring(self.given, self.given.operand_ids)
        self.loop.operand_ids[0] = self.given.id
        for stack in self.sums.stacks:
            shape = self.shape(stack.value)
            zero = outer.zero(shape.dtype, self.loop)
            self.given.operand_ids.append(outer.add("broadcast", shape, [zero.id], self.loop).id)
            for one in (self.given, self.loop):
                fill_shape(one.shape.tuple_shapes.add(), shape)
        for summed in self.sums.sums:
            self._add_up(summed)

    def _add_up(self, one: Summed) -> None:
        """The sum over all iterations, added to what the loop would begin with."""
        outer, inner = self.outer, self.inner
        term = inner.by_id[one.term.origin]
        operands = [self._stack(operand).id for operand in one.operands]
        if term.opcode == "reduce":
            operands.append(outer.zero(one.term.dtype, self.loop).id)
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
            rest = [outer.zero(move.dtype, self.loop).id] if move.opcode == "reduce" else []
            made = outer.bring(inner.by_id[move.origin], [made.id, *rest])
        index = one.inside.attrs["index"]
        for result in self.around.instructions:
            if (
                result.opcode == "get-tuple-element"
                and result.tuple_index == index
                and result.operand_ids[0] == self.loop.id
            ):
                result.opcode, result.tuple_index = "add", 0
                put(result.operand_ids, [self.given.operand_ids[index], made.id])

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
            return outer.by_id[self.given.operand_ids[lifted.index]]
        index = self.carried + lifted.number
        if index not in self.stacks:
            shape = self.shape(lifted.op)
            self.stacks[index] = outer.add("get-tuple-element", shape, [self.loop.id], self.loop)
            self.stacks[index].tuple_index = index
        return self.stacks[index]


def _deepen(dims: Any) -> None:
    """The dims that an op goes along, and that of the iterations before them."""
    put(dims, [0, *(dim + 1 for dim in dims)])


def _shift(dims: Any) -> None:
    """Dims behind that of the iterations."""
    put(dims, [dim + 1 for dim in dims])
