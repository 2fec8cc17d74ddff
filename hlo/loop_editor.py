"""Editing a loop in a module's proto: what it carries gets more elements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fusionstitch.hlo import schema
from fusionstitch.hlo.edit import (
    Editor,
    FreshNames,
    fill_shape,
    forget_order,
    put,
    sort_instructions,
)
from fusionstitch.hlo.graph import Graph, Module, Op, Shape


@dataclass(frozen=True)
class Element:
    """One more element that a loop carries: the instruction `first` around the loop is what it
    begins with, `next` in the body what an iteration makes of it."""

    shape: Shape
    first: int
    next: int


class LoopEditor:
    """The loop `instruction` of a computation that `outer` edits, whose body and condition no other
    loop runs. `inner` adds instructions to the body, `condition` to the condition."""

    def __init__(self, outer: Editor, instruction: Any):
        computations = {c.id: c for c in outer.module.computations}
        body, condition = (computations[i] for i in instruction.called_computation_ids)
        self.computations = (condition, body)
        self.outer, self.instruction = outer, instruction
        self.inner, self.condition = outer.beside(body), outer.beside(condition)
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

    def is_invariant(self, index: int) -> bool:
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
        for shape in self._shapes:
            for element in elements:
                fill_shape(shape.tuple_shapes.add(), element.shape)

    def drop(self, indices: Collection[int]) -> None:
        """Has the loop carry scalars as these elements, whose values nothing needs: what reads them
        reads zeros."""
        elements = self.instruction.shape.tuple_shapes
        dtypes = {i: schema.PRIMITIVE_TYPES[elements[i].element_type] for i in indices}
        for editor, whole in self._wholes:
            readers = [i for i in editor.computation.instructions if whole.id in i.operand_ids]
            for reader in readers:
                if reader.opcode == "get-tuple-element" and reader.tuple_index in dtypes:
                    become(
                        reader, "broadcast", [editor.zero(dtypes[reader.tuple_index], reader).id]
                    )
        operands = list(self.given.operand_ids)
        for index, dtype in dtypes.items():
            operands[index] = self.outer.zero(dtype, self.instruction).id
        self.given = self.outer.bring(self.given, operands)
        self.instruction.operand_ids[0] = self.given.id
        for whole in self._shapes:
            for index, dtype in dtypes.items():
                whole.tuple_shapes[index].Clear()
                fill_shape(whole.tuple_shapes[index], Shape(dtype))
        for index, dtype in dtypes.items():
            self.root.operand_ids[index] = self.read(index, Shape(dtype), self.instruction).id

    @property
    def _wholes(self) -> list[tuple[Editor, Any]]:
        """The tuples that elements are read of, by who edits where that is."""
        body, condition = self.parameters
        return [(self.outer, self.instruction), (self.inner, body), (self.condition, condition)]

    @property
    def _shapes(self) -> list[Any]:
        """Those of all that carries the elements."""
        shapes = [one.shape for one in self._carriers]
        for computation in self.computations:
            shape = computation.program_shape
            shapes += [one for one in (*shape.parameters, shape.result) if one.tuple_shapes]
        return shapes

    def close(self) -> None:
        """Puts all instructions after what they need."""
        for editor in (self.inner, self.condition, self.outer):
            sort_instructions(editor.computation)


def write_part(loop: LoopEditor, number: int, op: Op, shape: Shape, at: Op) -> Element:
    """A stack as one more element of a loop, the `number`-th new one, of that `shape`: an iteration
    writes what it makes as `op`, at position `at`."""
    inner, outer, around = loop.inner, loop.outer, loop.instruction
    source = inner.by_id[op.origin]
    whole = loop.read(loop.carried + number, shape, source)
    row = inner.add("reshape", Shape(op.dtype, (1, *op.dims)), [source.id], source)
    zeros = [inner.zero(at.dtype, source).id] * len(op.dims)
    operands = [whole.id, row.id, inner.by_id[at.origin].id, *zeros]
    written = inner.add("dynamic-update-slice", shape, operands, source)
    first = outer.add("broadcast", shape, [outer.zero(shape.dtype, around).id], around)
    return Element(shape, first.id, written.id)


def read_part(
    inner: Editor, stack: Any, op: Op, position: Any, dtype: str, source: Any = None
) -> Any:
    """Reads from a stack the value that one iteration computed as `op`: the part at `position`, an
    integer of type `dtype`. `source` is the instruction it replaces, if `op` is not in the body."""
    source, shape = source or inner.by_id[op.origin], op.shape
    cut = Shape(shape.dtype, (1, *tuple(stack.shape.dimensions)[1:]))
    begins = [position.id, *[inner.zero(dtype, source).id] * (cut.rank - 1)]
    piece = inner.add("dynamic-slice", cut, [stack.id, *begins], source)
    piece.dynamic_slice_sizes.extend(cut.dims)
    return inner.add("reshape", shape, [piece.id], source)


def become(result: Any, opcode: str, operands: Sequence[int]) -> None:
    """Has a result of the loop be another op."""
    result.opcode, result.tuple_index = opcode, 0
    put(result.operand_ids, operands)


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
    computations = {c.id: c for c in module.proto.computations}
    for one in found:
        around = computations[one.graph.proto_id]
        instruction = next(i for i in around.instructions if i.id == one.loop.origin)
        loop = LoopEditor(Editor(module.proto, around, names), instruction)
        if not loop.sharded:
            edit(loop, one)
            loop.close()
            changed = True
    if changed:
        forget_order(module.proto)
    return changed
