"""Loops that become the ops of all their iterations, one after the other, in a module's proto."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.hlo.edit import drop_uncalled
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.loop_editor import LoopEditor, edit_loops
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import resolved


@dataclass(frozen=True, eq=False)
class Unrolling:
    """A loop of `trips` iterations, which give `results`. `needed` are the ops of its body that
    these need, looking through tuples; those whose ids are not in `varying` are the same in each
    iteration. `numbers` are the elements that count: their values, by iteration."""

    graph: Graph
    loop: Op
    trips: int
    results: tuple[Op, ...]
    needed: tuple[Op, ...]
    varying: Collection[int]
    numbers: Mapping[int, np.ndarray]


def unroll(module: Module, found: Sequence[Unrolling]) -> dict[Unrolling, dict[int, int]]:
    """Edits the module's proto, which is to be read again where this is not empty: for each loop,
    the ids of the instructions that stand for it, and those of its body's that they are copies of.
    A sharded loop stays."""
    made: dict[Unrolling, dict[int, int]] = {}

    def edit(loop: LoopEditor, one: Unrolling) -> None:
        made[one] = _Unrolled(loop, one).run()

    if edit_loops(module, found, edit):
        drop_uncalled(module.proto)
    return made


class _Unrolled:
    """The edit of one loop."""

    def __init__(self, loop: LoopEditor, found: Unrolling):
        self.loop, self.found = loop, found
        self.inner, self.outer = loop.inner, loop.outer
        self.copies: dict[int, int] = {}
        #: the instructions for ops that are the same in each iteration, by the ops' ids
        self.once: dict[int, int] = {}

    def run(self) -> dict[int, int]:
        elements = [self.loop.begin(index).id for index in range(self.loop.carried)]
        for number in range(self.found.trips):
            elements = self.iteration(number, elements)
        for index, values in self.found.numbers.items():  # one step after the last iteration
            elements[index] = self.constant(index, 2 * int(values[-1]) - int(values[-2]))
        self.take_place(elements)
        return self.copies

    def iteration(self, number: int, elements: Sequence[int]) -> list[int]:
        """Adds one iteration. What the loop carries before it, and after it."""
        made = dict(self.once)
        for op in self.found.needed:
            index = carried(op)
            if index is not None:
                counts = self.found.numbers.get(index)
                made[op.id] = (
                    elements[index] if counts is None else self.constant(index, int(counts[number]))
                )
            elif op.id not in made and op.opcode != "parameter":
                operands = [made[resolved(operand).id] for operand in op.operands]
                made[op.id] = self.bring(self.inner.by_id[op.origin], operands)
                if op.id not in self.found.varying:
                    self.once[op.id] = made[op.id]
        return [made[op.id] for op in self.found.results]

    def bring(self, source: Any, operands: Sequence[int]) -> int:
        ident: int = self.outer.bring(source, operands).id
        self.copies[ident] = source.id
        return ident

    def constant(self, index: int, value: int) -> int:
        dtype = self.found.loop.shape.elements[index].dtype
        ident: int = self.outer.constant(dtype, value, self.loop.instruction).id
        return ident

    def take_place(self, elements: Sequence[int]) -> None:
        """Has who reads the loop's results read these instructions, and deletes the loop."""
        computation, loop = self.outer.computation, self.loop.instruction
        whole = {loop.id, self.loop.given.id}
        parts = {
            i.id: self.outer.by_id[elements[i.tuple_index]]
            for i in computation.instructions
            if i.opcode == "get-tuple-element" and i.operand_ids[0] == loop.id
        }
        self.outer.replace_each(parts)
        if computation.root_id in parts:
            computation.root_id = parts[computation.root_id].id
        for position in reversed(range(len(computation.instructions))):
            if computation.instructions[position].id in whole | parts.keys():
                del computation.instructions[position]
