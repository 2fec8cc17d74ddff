"""Editing a loop in a module's proto: what it carries gets more elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fusionstitch.hlo.edit import Editor, FreshNames, fill_shape, forget_order, sort_instructions
from fusionstitch.hlo.graph import Graph, Module, Op, Shape


@dataclass(frozen=True)
class Element:
    """One more element that a loop carries: the instruction `first` around the loop is what it
    begins with, `next` in the body what an iteration makes of it."""

    shape: Shape
    first: int
    next: int


class LoopEditor:
    """A `loop` of `graph`, whose body and condition no other loop runs. `inner` adds instructions
    to the body, `outer` to the computation around the loop."""

    def __init__(self, module: Any, names: FreshNames, graph: Graph, loop: Op):
        computations = {c.id: c for c in module.computations}
        condition, body = (computations[called.proto_id] for called in loop.called)
        self.computations = (condition, body)
        self.outer = Editor(module, computations[graph.proto_id], names)
        self.inner = Editor(module, body, names)
        if not (self.outer.fresh.own and self.inner.fresh.own):
            self.inner.fresh = self.outer.fresh
        self.instruction = self.outer.by_id[loop.origin]
        self.given = self.outer.by_id[self.instruction.operand_ids[0]]
        self.root = self.inner.by_id[body.root_id]
        self.parameters = [
            next(i for i in computation.instructions if i.opcode == "parameter")
            for computation in (body, condition)
        ]
        self.carried = len(self.instruction.shape.tuple_shapes)

    @property
    def sharded(self) -> bool:
        """Whether each element of what the loop carries has a sharding, as new ones would need."""
        return any(one.HasField("sharding") for one in self._carriers)

    @property
    def _carriers(self) -> list[Any]:
        return [self.instruction, self.given, self.root, *self.parameters]

    def begin(self, index: int) -> Any:
        """What element `index` begins with, around the loop."""
        return self.outer.by_id[self.given.operand_ids[index]]

    def is_handed_on(self, index: int) -> bool:
        """Whether an iteration leaves element `index` what it is."""
        made = self.inner.by_id[self.root.operand_ids[index]]
        return made.opcode == "get-tuple-element" and (
            made.tuple_index == index and made.operand_ids[0] == self.parameters[0].id
        )

    def read(self, index: int, shape: Shape, source: Any) -> Any:
        """Element `index` of what an iteration begins with."""
        made = self.inner.add("get-tuple-element", shape, [self.parameters[0].id], source)
        made.tuple_index = index
        return made

    def result(self, index: int, shape: Shape) -> Any:
        """Element `index` of what the loop gives."""
        made = self.outer.add("get-tuple-element", shape, [self.instruction.id], self.instruction)
        made.tuple_index = index
        return made

    def widen(self, elements: Sequence[Element]) -> None:
        """Appends elements: the first has index `carried`."""
        firsts = [element.first for element in elements]
        self.given = self.outer.bring(self.given, [*self.given.operand_ids, *firsts])
        self.instruction.operand_ids[0] = self.given.id
        self.root.operand_ids.extend(element.next for element in elements)
        shapes = [one.shape for one in self._carriers]
        for computation in self.computations:
            said = computation.program_shape
            shapes += [one for one in (*said.parameters, said.result) if one.tuple_shapes]
        for shape in shapes:
            for element in elements:
                fill_shape(shape.tuple_shapes.add(), element.shape)

    def close(self) -> None:
        """Puts all instructions behind what they need."""
        sort_instructions(self.inner.computation)
        sort_instructions(self.outer.computation)


class Found(Protocol):
    """What is to be edited of a loop."""

    @property
    def graph(self) -> Graph: ...

    @property
    def loop(self) -> Op: ...


F = TypeVar("F", bound=Found)


def edit_loops(module: Module, found: Sequence[F], edit: Callable[[LoopEditor, F], None]) -> bool:
    """Has `edit` change the loops in the module's proto, which is to be read again if any did."""
    names, changed = FreshNames(module.proto), False
    for one in found:
        loop = LoopEditor(module.proto, names, one.graph, one.loop)
        if not loop.sharded:
            edit(loop, one)
            loop.close()
            changed = True
    if changed:
        forget_order(module.proto)
    return changed
