"""Moves computations from a loop to after it, in a module's proto: the loop stacks their
operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.edit import put
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.lifting import Cone, Lifter
from fusionstitch.hlo.loop_editor import LoopEditor, become, edit_loops, write_part


@dataclass(frozen=True, eq=False)
class Summed:
    """`inside`, an element of what a loop carries, adds up `moves` of `term`, the first of which
    comes last; `term` is a dot or a reduction of what is stacked. It may add up several terms."""

    inside: Op
    moves: tuple[Op, ...]
    term: Op


@dataclass(frozen=True, eq=False)
class StackWrite:
    """An iteration's write, at `position`, into a stack that nothing in the loop reads: element
    `index` of the carried tuple."""

    op: Op
    index: int
    position: Op


@dataclass(frozen=True, eq=False)
class AfterLoop:
    """What is computed after a loop of `trips` iterations: sums over them, and stacks. The loop
    writes the new stacks `stacks`, an iteration at position `at`."""

    graph: Graph
    loop: Op
    trips: int
    at: Op
    stacks: tuple[Op, ...]
    cone: Cone
    sums: tuple[Summed, ...] = ()
    written: tuple[StackWrite, ...] = ()


def take_out(module: Module, found: Sequence[AfterLoop]) -> None:
    """Edits the module's proto, which is to be read again."""
    edit_loops(module, found, lambda loop, one: _Edit(loop, one).take_out())


class _Edit:
    """The edit of one loop."""

    def __init__(self, loop: LoopEditor, found: AfterLoop):
        self.loop, self.found = loop, found
        self.inner, self.outer = loop.inner, loop.outer
        self.lifter = Lifter(loop, found.trips, self._stack)

    def take_out(self) -> None:
        self.inside()
        self.after_loop()

    def inside(self) -> None:
        """An iteration writes its values into stacks that the loop carries. What is computed after
        it is not touched any more."""
        found, shape = self.found, self.lifter.shape
        self.loop.widen(
            [write_part(self.loop, n, op, shape(op), found.at) for n, op in enumerate(found.stacks)]
        )
        for summed in self.found.sums:
            index = summed.inside.attrs["index"]
            self.loop.root.operand_ids[index] = summed.inside.origin
        for one in self.found.written:
            update = self.inner.resolved(self.loop.root.operand_ids[one.index])
            self.loop.root.operand_ids[one.index] = update.operand_ids[0]

    def after_loop(self) -> None:
        results = self.outer.computation.instructions
        results = [r for r in results if r.opcode == "get-tuple-element"]
        results = [r for r in results if r.operand_ids[0] == self.loop.instruction.id]
        self.lifter.lift(self.found.cone)
        added: dict[int, Any] = {}
        for summed in self.found.sums:
            index, made = summed.inside.attrs["index"], self._summed(summed)
            if index in added:
                operands = [added[index].id, made.id]
                made = self.outer.add("add", summed.inside.shape, operands, self.loop.instruction)
            added[index] = made
        for result in results:
            if (index := result.tuple_index) in added:
                become(result, "add", [self.loop.begin(index).id, added[index].id])
        for one in self.found.written:
            for result in results:
                if result.tuple_index == one.index:
                    become(result, "copy", [self.lifter.whole(one.op)])

    def _stack(self, index: int) -> Any:
        if index < self.loop.carried:
            shape = self.found.loop.shape.elements[index]
            unchanged = self.loop.is_invariant(index)
            return self.loop.begin(index) if unchanged else self.loop.result(index, shape)
        return self.loop.result(
            index, self.lifter.shape(self.found.stacks[index - self.loop.carried])
        )

    def _summed(self, one: Summed) -> Any:
        """What all iterations add up."""
        outer, inner, loop = self.outer, self.inner, self.loop.instruction
        term, count = inner.by_id[one.term.origin], 2 if one.term.opcode == "dot" else 1
        operands = [self.lifter.whole(op) for op in one.term.operands[:count]]
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
                put(dims, [dim + 1 for dim in dims])
        for move in reversed(one.moves):
            rest = [outer.zero(move.dtype, loop).id] if move.opcode == "reduce" else []
            made = outer.bring(inner.by_id[move.origin], [made.id, *rest])
        return made


def _deepen(dims: Any) -> None:
    """The dims that an op goes along, and that of the iterations before them."""
    put(dims, [0, *(dim + 1 for dim in dims)])
