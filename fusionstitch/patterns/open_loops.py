"""Loops of which a rule may change what they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from fusionstitch.hlo.graph import Graph, Module, Op, inside
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.trips import Counted, carried, counted


@dataclass(frozen=True, eq=False)
class StackRead:
    """What an iteration reads of a stack that the loop hands on: the part at `place` of its first
    axis. Element `index` of what the loop carries is the stack."""

    op: Op
    index: int
    place: Op


@dataclass(frozen=True, eq=False)
class OpenLoop:
    """A while of `graph` that carries a tuple, which is made and read element by element."""

    graph: Graph
    op: Op

    @property
    def condition(self) -> Graph:
        return self.op.called[0]

    @property
    def body(self) -> Graph:
        return self.op.called[1]

    @cached_property
    def results(self) -> list[Op]:
        """What an iteration makes of each element."""
        return [resolved(op) for op in self.body.root.operands]

    @cached_property
    def count(self) -> Counted | None:
        return counted(self.op)

    def is_handed_on(self, op: Op) -> bool:
        """Whether `op` is an element that stays what it is."""
        index = carried(op)
        return index is not None and self.results[index] is op

    def streamed(self, trips: int) -> int:
        """Bytes of the stacks that all iterations read and write."""
        stacks = (op.shape for op in self.results if op.shape.rank > 1 and op.dims[0] == trips)
        return sum(shape.bytes for shape in stacks)

    def read(self, op: Op) -> StackRead | None:
        """`op` as a part of a stack with as many parts as there are iterations."""
        piece = resolved(op.operands[0]) if op.opcode == "reshape" else op
        if piece.opcode != "dynamic-slice" or self.count is None:
            return None
        stack, place, *others = map(resolved, piece.operands)
        index = carried(stack)
        if index is None or not self.is_handed_on(stack):
            return None
        whole = piece.dims == (1, *op.dims) and stack.dims == (self.count.trips, *op.dims)
        if not whole or any(splat(other) != 0 for other in others):
            return None
        return StackRead(op, index, place)


def open_loops(module: Module) -> Iterator[OpenLoop]:
    """Those whose body nothing else runs, and of which nothing is left to XLA."""
    loops = [(graph, op) for graph in module.graphs for op in graph if op.opcode == "while"]
    runs = Counter(called for _, loop in loops for called in loop.called)
    for graph, loop in loops:
        alone = all(runs[called] == 1 for called in loop.called)
        left = any(op.source.left for op in (loop, *inside(loop)))
        if alone and not left and _is_open(graph, loop):
            yield OpenLoop(graph, loop)


def _is_open(graph: Graph, loop: Op) -> bool:
    wholes = [(graph, loop)]
    wholes += [(called, p) for called in loop.called for p in called.parameters]
    made = loop.operands[0].opcode == loop.called[1].root.opcode == "tuple"
    return made and all(
        around.root is not whole and is_taken_apart(around, whole) for around, whole in wholes
    )


def is_taken_apart(graph: Graph, op: Op) -> bool:
    """Whether a tuple is only read element by element."""
    return all(user.opcode == "get-tuple-element" for user in graph.users[op.id])


def resolved(op: Op) -> Op:
    """What an op is, where tuples of the same computation lie between."""
    while op.opcode == "get-tuple-element" and op.operands[0].opcode == "tuple":
        op = op.operands[0].operands[op.attrs["index"]]
    return op
