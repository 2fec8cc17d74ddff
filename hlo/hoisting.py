"""Taking products out of a loop, in a module's proto: one product before it for all iterations,
of which each reads its part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.edit import Editor, FreshNames, fill_shape, put
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.loop_editor import Element, LoopEditor
from fusionstitch.hlo.trips import carried


@dataclass(frozen=True, eq=False)
class Hoisted:
    """`dot`, of which operand `side` is a part of a stack, as the ops `path` make it of element
    `index` of what the loop carries; `place` says which part. The other operand, the weights, is
    made of what the loop hands on. Where operand `side` is a concatenation along the one dim that
    is summed over, its operand `joined` is the part, and the others stay in the loop."""

    dot: Op
    side: int
    path: tuple[Op, ...]
    index: int
    place: Op
    joined: int | None = None

    @property
    def weights(self) -> Op:
        return self.dot.operands[1 - self.side]

    @property
    def part(self) -> Op:
        operand = self.dot.operands[self.side]
        return operand if self.joined is None else operand.operands[self.joined]

    @property
    def contracted(self) -> tuple[int, ...]:
        """The dims of the part that are summed over."""
        dims: tuple[int, ...] = self.dot.attrs[_CONTRACT[self.side]]
        return dims

    @property
    def rows(self) -> tuple[int, int, int]:
        """The dim of the weights that is summed over with a concatenation; where the rows of the
        part begin and end."""
        [along], [dim] = self.contracted, self.dot.attrs[_CONTRACT[1 - self.side]]
        before = self.dot.operands[self.side].operands[: self.joined]
        start = sum(op.dims[along] for op in before)
        return dim, start, start + self.part.dims[along]

    @property
    def order(self) -> tuple[int, ...]:
        """The dims of the dot, those of the part first."""
        rank = self.dot.shape.rank
        if self.side == 0:
            return tuple(range(rank))
        free = self.dot.operands[0].shape.rank - len(self.dot.attrs[_CONTRACT[0]])
        return (*range(free, rank), *range(free))


_CONTRACT = ("lhs_contract", "rhs_contract")


@dataclass(frozen=True, eq=False)
class LoopProducts:
    """The products to be taken out of a loop of `trips` iterations."""

    graph: Graph
    loop: Op
    trips: int
    products: tuple[Hoisted, ...]


def hoist(module: Module, found: Sequence[LoopProducts]) -> None:
    """Edits the module's proto, which is to be read again."""
    names = FreshNames(module.proto)
    for one in found:
        edit = _Edit(LoopEditor(module.proto, names, one.graph, one.loop), one.trips)
        if not edit.loop.sharded:
            edit.hoist(one.products)
            edit.loop.close()
    # an order fixed before the edit no longer lists the instructions there are
    module.proto.ClearField("schedule")


class _Edit:
    """The edit of one loop."""

    def __init__(self, loop: LoopEditor, trips: int):
        self.loop, self.trips = loop, trips
        self.elements: list[Element] = []
        #: what stands around the loop for ops of the body that are the same in each iteration
        self.brought: dict[int, Any] = {}

    def hoist(self, products: Sequence[Hoisted]) -> None:
        body = self.loop.inner.computation
        for one in products:
            dot, made = self._source(one.dot), self._read(one)
            if one.joined is not None:
                operands = [self._rest(one).id, made.id]
                made = self.loop.inner.add("add", one.dot.shape, operands, dot)
            for reader in body.instructions:
                put(reader.operand_ids, [made.id if i == dot.id else i for i in reader.operand_ids])
            body.instructions.remove(dot)
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
        inner, dot = self.loop.inner, self._source(one.dot)
        shape = Shape(one.dot.dtype, (self.trips, *(one.dot.dims[d] for d in one.order)))
        whole = self._carry(shape, self._product(one, shape))
        zeros = [inner.zero(one.place.dtype, dot).id] * (shape.rank - 1)
        part = Shape(shape.dtype, (1, *shape.dims[1:]))
        operands = [whole.id, self._source(one.place).id, *zeros]
        piece = inner.add("dynamic-slice", part, operands, dot)
        piece.dynamic_slice_sizes.extend(part.dims)
        made = inner.add("reshape", Shape(shape.dtype, shape.dims[1:]), [piece.id], dot)
        if one.side == 1:
            made = inner.add("transpose", one.dot.shape, [made.id], dot)
            made.dimensions.extend(one.order.index(d) for d in range(len(one.order)))
        return made

    def _product(self, one: Hoisted, shape: Shape) -> Any:
        """The product for all iterations, around the loop: its first operand is the stack."""
        outer, dot = self.loop.outer, self._source(one.dot)
        stack = outer.by_id[self.loop.given.operand_ids[one.index]]
        for op in one.path:
            stack = outer.bring(self._source(op), [stack.id])
            stack.shape.Clear()
            fill_shape(stack.shape, Shape(op.dtype, (self.trips, *op.dims)))
        weights = self._bring(one.weights)
        if one.joined is not None:
            dim, start, end = one.rows
            weights = self._cut(one.weights.shape, weights, dim, start, end)
        made = outer.bring(dot, [stack.id, weights.id])
        made.shape.Clear()
        fill_shape(made.shape, shape)
        numbers = made.dot_dimension_numbers
        mine, others = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
        if one.side == 1:
            left, right = list(others), list(mine)
            put(mine, left)
            put(others, right)
            precisions = made.precision_config.operand_precision
            put(precisions, list(precisions)[::-1])
        put(mine, [dim + 1 for dim in mine])
        return made

    def _rest(self, one: Hoisted) -> Any:
        """The product of what is not the part, in the loop, with its rows of the weights."""
        inner, dot = self.loop.inner, self._source(one.dot)
        whole, (dim, start, end) = one.dot.operands[one.side], one.rows
        shape, brought = one.weights.shape, self._bring(one.weights)
        size = shape.dims[dim]
        ends = [(a, b) for a, b in ((0, start), (end, size)) if a < b]
        rows = [self._cut(shape, brought, dim, a, b) for a, b in ends]
        left = Shape(shape.dtype, _with(shape.dims, dim, size - (end - start)))
        weights = self._carry(left, _joined(self.loop.outer, left, dim, rows))
        [along] = one.contracted
        others = [self._source(op) for i, op in enumerate(whole.operands) if i != one.joined]
        kept = Shape(whole.dtype, _with(whole.dims, along, left.dims[dim]))
        operands = [_joined(inner, kept, along, others).id, weights.id]
        return inner.copy(dot, operands if one.side == 0 else operands[::-1])

    def _cut(self, shape: Shape, whole: Any, dim: int, start: int, end: int) -> Any:
        """Rows of the weights, around the loop."""
        part = Shape(shape.dtype, _with(shape.dims, dim, end - start))
        made = self.loop.outer.add("slice", part, [whole.id], whole)
        for d, size in enumerate(shape.dims):
            begin, limit = (start, end) if d == dim else (0, size)
            made.slice_dimensions.add(start=begin, limit=limit, stride=1)
        return made

    def _bring(self, op: Op) -> Any:
        """What is the same in each iteration, around the loop."""
        index = carried(op)
        if index is not None:
            return self.loop.outer.by_id[self.loop.given.operand_ids[index]]
        if op.id not in self.brought:
            operands = [self._bring(operand).id for operand in op.operands]
            self.brought[op.id] = self.loop.outer.bring(self._source(op), operands)
        return self.brought[op.id]


def _with(dims: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    return (*dims[:dim], size, *dims[dim + 1 :])


def _joined(editor: Editor, shape: Shape, dim: int, parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    made = editor.add("concatenate", shape, [part.id for part in parts], parts[0])
    made.dimensions.append(dim)
    return made
