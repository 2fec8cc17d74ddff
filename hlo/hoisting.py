"""Taking products out of a loop, in a module's proto: one product before it for all iterations,
of which each reads its part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.edit import Editor, put
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.lifting import Cone, Lifted, Lifter
from fusionstitch.hlo.loop_editor import Element, LoopEditor, edit_loops, read_part
from fusionstitch.hlo.tuples import unhindered

#: The attributes that name the dims which a dot sums over, of its operands.
CONTRACT = ("lhs_contract", "rhs_contract")


@dataclass(frozen=True, eq=False)
class Hoisted:
    """`dot`, of which operand `side` is made of parts of stacks, those at `position`; the other
    operand, the weights, is the same in each iteration. Where operand `side` is a concatenation
    along the one dim that is summed over, its operand `joined` is made so, and the others stay in
    the loop."""

    dot: Op
    side: int
    position: Op
    joined: int | None = None

    @property
    def weights(self) -> Op:
        return self.dot.operands[1 - self.side]

    @property
    def part(self) -> Op:
        return self.whole if self.joined is None else self.whole.operands[self.joined]

    @property
    def whole(self) -> Op:
        """The other operand."""
        return unhindered(self.dot.operands[self.side])

    @property
    def contracted(self) -> tuple[int, ...]:
        """The dims of the part that are summed over."""
        dims: tuple[int, ...] = self.dot.attrs[CONTRACT[self.side]]
        return dims

    @property
    def rows(self) -> tuple[int, int, int]:
        """The dim of the weights that is summed over with a concatenation; where the rows of the
        part begin and end."""
        [along], [dim] = self.contracted, self.dot.attrs[CONTRACT[1 - self.side]]
        before = self.whole.operands[: self.joined]
        start = sum(op.dims[along] for op in before)
        return dim, start, start + self.part.dims[along]


@dataclass(frozen=True, eq=False)
class LoopProducts:
    """The products to be taken out of a loop of `trips` iterations, and what they are made of."""

    graph: Graph
    loop: Op
    trips: int
    products: tuple[Hoisted, ...]
    cone: Cone


def hoist(module: Module, found: Sequence[LoopProducts]) -> None:
    """Edits the module's proto, which is to be read again."""
    edit_loops(module, found, lambda loop, one: _Edit(loop, one).hoist())


class _Edit:
    """The edit of one loop."""

    def __init__(self, loop: LoopEditor, found: LoopProducts):
        self.loop, self.found = loop, found
        self.lifter = Lifter(loop, found.trips, loop.begin)
        self.elements: list[Element] = []

    def hoist(self) -> None:
        self.lifter.lift(self.found.cone)
        body = self.loop.inner.computation
        for one in self.found.products:
            dot, made = self._source(one.dot), self._read(one)
            if one.joined is not None:
                operands = [self._rest(one).id, made.id]
                made = self.loop.inner.add("add", one.dot.shape, operands, dot)
            for reader in body.instructions:
                put(reader.operand_ids, [made.id if i == dot.id else i for i in reader.operand_ids])
        self.loop.widen(self.elements)

    def _source(self, op: Op) -> Any:
        return self.loop.inner.by_id[op.origin]

    def _carry(self, shape: Shape, first: Any) -> Any:
        """What is there before the loop, as an iteration has it."""
        inside = self.loop.read(self.loop.carried + len(self.elements), shape, first)
        self.elements.append(Element(shape, first.id, inside.id))
        return inside

    def _read(self, one: Hoisted) -> Any:
        """The part of the product that is an iteration's."""
        whole = self._carry(self.lifter.shape(one.dot), self._product(one))
        position = self._source(one.position)
        return read_part(self.loop.inner, whole, one.dot, position, one.position.dtype)

    def _product(self, one: Hoisted) -> Any:
        """The product for all iterations, around the loop."""
        part, weights = self.lifter[one.part], self.lifter[one.weights]
        if one.joined is not None:
            dim, start, end = one.rows
            rows = self._cut(one.weights.shape, weights.instruction, dim, start, end)
            weights = Lifted(rows, stacked=False)
        operands = (part, weights) if one.side == 0 else (weights, part)
        return self.lifter.product(one.dot, *operands)

    def _rest(self, one: Hoisted) -> Any:
        """The product of what is not the part, in the loop, with its rows of the weights."""
        inner, dot = self.loop.inner, self._source(one.dot)
        whole, (dim, start, end) = one.whole, one.rows
        shape, brought = one.weights.shape, self.lifter[one.weights].instruction
        size = shape.dims[dim]
        ends = [(a, b) for a, b in ((0, start), (end, size)) if a < b]
        rows = [self._cut(shape, brought, dim, a, b) for a, b in ends]
        left = Shape(shape.dtype, _with(shape.dims, dim, size - (end - start)))
        weights = self._carry(left, _joined(self.loop.outer, left, dim, rows))
        [along] = one.contracted
        others = [self._source(op) for i, op in enumerate(whole.operands) if i != one.joined]
        joined = Shape(whole.dtype, _with(whole.dims, along, left.dims[dim]))
        operands = [_joined(inner, joined, along, others).id, weights.id]
        return inner.copy(dot, operands if one.side == 0 else operands[::-1])

    def _cut(self, shape: Shape, whole: Any, dim: int, start: int, end: int) -> Any:
        """Rows of the weights, around the loop."""
        part = Shape(shape.dtype, _with(shape.dims, dim, end - start))
        made = self.loop.outer.add("slice", part, [whole.id], whole)
        for d, size in enumerate(shape.dims):
            begin, limit = (start, end) if d == dim else (0, size)
            made.slice_dimensions.add(start=begin, limit=limit, stride=1)
        return made


def _with(dims: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    return (*dims[:dim], size, *dims[dim + 1 :])


def _joined(editor: Editor, shape: Shape, dim: int, parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    made = editor.add("concatenate", shape, [part.id for part in parts], parts[0])
    made.dimensions.append(dim)
    return made
