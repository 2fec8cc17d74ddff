"""Residuals that a gradient's loop computes again instead of reading them, in a module's proto.

The loop of a gradient reads, iteration by iteration, what the loop before it stacked. What follows
from less than that is computed where it is read, and is stacked no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.edit import Editor, FreshNames, forget_order
from fusionstitch.hlo.extract import instruction_of
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.lifting import StackRead
from fusionstitch.hlo.loop_editor import Element, LoopEditor, read_part, write_part
from fusionstitch.hlo.tuples import unhindered


@dataclass(frozen=True, eq=False)
class Residual:
    """What an iteration of the first loop makes as `op`, and stacks as element `index`; the second
    loop has that stack as its element `inside`, of which it `reads` parts."""

    op: Op
    index: int
    inside: int
    reads: tuple[StackRead, ...]


@dataclass(frozen=True, eq=False)
class Again:
    """Residuals of `loop` that `reader`, which has as many iterations, computes again.

    `loop` stacks `new` values at position `at`. By the ids of ops of its body, `stacks` are the
    elements of what it carries that have the values of all iterations, the new ones after the
    others; `same` those that are invariant. `feeds` are the elements of `reader` that are elements
    of `loop`, by these."""

    graph: Graph
    loop: Op
    reader: Op
    trips: int
    residuals: tuple[Residual, ...]
    new: tuple[Op, ...]
    at: Op
    stacks: dict[int, int]
    same: dict[int, int]
    feeds: dict[int, int]


def compute_again(module: Module, found: Sequence[Again]) -> bool:
    """Edits the module's proto, which is to be read again where this is true."""
    names, changed = FreshNames(module.proto), False
    computations = {c.id: c for c in module.proto.computations}
    for one in found:
        around = Editor(module.proto, computations[one.graph.proto_id], names)
        loops = (around.by_id[instruction_of(loop, {})] for loop in (one.loop, one.reader))
        first, second = (LoopEditor(around, loop) for loop in loops)
        if not first.sharded and not second.sharded:
            _Edit(first, second, one).run()
            changed = True
    if changed:
        forget_order(module.proto)
    return changed


class _Edit:
    """The edit of the two loops."""

    def __init__(self, first: LoopEditor, second: LoopEditor, found: Again):
        self.first, self.second, self.found = first, second, found
        self.elements: list[Element] = []
        #: elements of the first loop in the second one
        self.inside: dict[int, Any] = {}
        self.made: dict[tuple[int, int], Any] = {}

    def run(self) -> None:
        found, first, second = self.found, self.first, self.second
        first.widen(
            [
                write_part(first, n, op, self.stack(first.carried + n), found.at)
                for n, op in enumerate(found.new)
            ]
        )
        made = {}
        for one in found.residuals:
            for part in one.reads:
                value = self.value(one.op, part)
                row = second.inner.add("reshape", part.op.shape, [value.id], value)
                made[instruction_of(part.op, {})] = row
        second.inner.replace_each(made)
        second.widen(self.elements)
        first.drop([one.index for one in found.residuals])  # neither loop has the stack any more
        second.drop([one.inside for one in found.residuals])
        first.close()
        second.close()

    def stack(self, index: int) -> Shape:
        """The shape of a stack, by its element of the first loop."""
        if index < self.first.carried:
            return self.found.loop.shape.elements[index]
        op = self.found.new[index - self.first.carried]
        return Shape(op.dtype, (self.found.trips, *op.dims))

    def value(self, op: Op, read: StackRead) -> Any:
        """An op of the first loop's body, in the second one's, where that read a part."""
        needed, todo = dict[int, Op](), [op]
        while todo:
            one = unhindered(todo.pop())
            if one.id not in needed and (one.id, read.position.id) not in self.made:
                needed[one.id] = one
                todo += () if self.is_read(one) else one.operands
        for number in sorted(needed):
            self.made[number, read.position.id] = self.made_of(needed[number], read)
        return self.made[unhindered(op).id, read.position.id]

    def is_read(self, op: Op) -> bool:
        """Whether the second loop reads an op instead of computing it."""
        return op.id in self.found.stacks or op.id in self.found.same

    def made_of(self, op: Op, read: StackRead) -> Any:
        """The same of an op whose operands are there."""
        inner, found = self.second.inner, self.found
        source = self.first.inner.by_id[op.origin]
        if op.id in found.stacks:
            stack = self.element(found.stacks[op.id], source)
            position = inner.by_id[read.position.origin]
            return read_part(inner, stack, op, position, read.position.dtype, source)
        if op.id in found.same:
            return self.element(found.same[op.id], source)
        operands = (self.made[unhindered(o).id, read.position.id] for o in op.operands)
        return inner.bring(source, [operand.id for operand in operands])

    def element(self, index: int, source: Any) -> Any:
        """Element `index` of the first loop in the second one."""
        shape = self.stack(index)
        if index not in self.inside:
            number = self.found.feeds.get(index, self.second.carried + len(self.elements))
            made = self.inside[index] = self.second.read(number, shape, source)
            if index not in self.found.feeds:
                invariant = self.first.is_invariant(index)
                given = self.first.begin(index) if invariant else self.first.result(index, shape)
                self.elements.append(Element(shape, given.id, made.id))
        return self.inside[index]
