"""Loops whose carried values a rule may change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from fusionstitch.hlo.evaluate import evaluate_op
from fusionstitch.hlo.graph import Graph, Module, Op, inside
from fusionstitch.hlo.lifting import Cone, StackRead, Steps, is_liftable
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.stacking import StackWrite
from fusionstitch.hlo.trips import Counted, carried, counted, integer, stepped
from fusionstitch.hlo.tuples import is_taken_apart, resolved, unhindered

#: Integer types that count further than most loops iterate.
_WIDE = frozenset({"s32", "u32", "s64", "u64"})


@dataclass(frozen=True, eq=False)
class OpenLoop:
    """A while op of `graph` that carries a tuple, which is built and read element by element. Its
    static trip count is at least two."""

    graph: Graph
    op: Op
    count: Counted

    @property
    def condition(self) -> Graph:
        return self.op.called[0]

    @property
    def body(self) -> Graph:
        return self.op.called[1]

    @property
    def trips(self) -> int:
        return self.count.trips

    @cached_property
    def results(self) -> list[Op]:
        """The next value of each element."""
        return [resolved(op) for op in self.body.root.operands]

    @cached_property
    def inside(self) -> Mapping[int, Op]:
        """Elements by index, as the one op of the body that reads each."""
        elements = [(carried(op), op) for op in self.body]
        found = Counter(index for index, _ in elements)
        return {index: op for index, op in elements if index is not None and found[index] == 1}

    @cached_property
    def steps(self) -> Mapping[int, int]:
        """What iterations add to integer elements, by index, without small types, which soon
        overflow."""
        found = {}
        for index, after in enumerate(self.results):
            step = stepped(after, partial(is_element, index))
            if step is not None and not after.shape.rank and after.dtype in _WIDE:
                found[index] = step
        return found

    @cached_property
    def users(self) -> Mapping[Op, list[Op]]:
        """The ops of the body that its result needs, each with its readers, looking through tuples.
        The root is listed once per element of the result that the op provides."""
        found: dict[Op, list[Op]] = {}
        elements, wanted = Counter(self.results), list(self.results)
        while wanted:
            op = wanted.pop()
            if op not in found:
                found[op] = [self.body.root] * elements[op]
                wanted += map(resolved, op.operands)
        for op in self.body.ops:
            for operand in dict.fromkeys(map(resolved, op.operands)) if op in found else ():
                found[operand].append(op)
        return found

    def is_read_once(self, op: Op) -> bool:
        return len(self.users.get(op, ())) == 1

    @cached_property
    def asked(self) -> frozenset[int | None]:
        """The elements that the condition reads."""
        return frozenset(carried(op) for op in self.condition)

    @cached_property
    def streamed(self) -> int:
        """Bytes of the stacks that all iterations read and write."""
        return sum(op.shape.bytes for op in self.results if self.is_stack(op))

    def is_stack(self, op: Op) -> bool:
        """Whether an array has a part for each iteration."""
        return op.shape.rank > 1 and op.dims[0] == self.trips

    def is_handed_on(self, op: Op) -> bool:
        """Whether `op` is a loop-invariant element."""
        index = carried(op)
        return index is not None and self.results[index] is op

    def read(self, op: Op) -> StackRead | None:
        """`op` as a read of one part of a stack, which has as many parts as there are
        iterations."""
        part = self.part(resolved(op.operands[0])) if op.opcode == "reshape" else None
        if part is None or part.op.dims != (1, *op.dims):
            return None
        return StackRead(op, part.index, part.position)

    def part(self, op: Op) -> StackRead | None:
        """The same, with the stack dim still in `op`'s dims."""
        if op.opcode != "dynamic-slice":
            return None
        stack, position, *others = map(resolved, op.operands)
        index = carried(stack)
        if index is None or not self.is_handed_on(stack):
            return None
        whole = op.dims == (1, *stack.dims[1:]) and stack.dims[0] == self.trips
        if not whole or any(splat(other) != 0 for other in others):
            return None
        return StackRead(op, index, position)

    def write(self, index: int) -> StackWrite | None:
        """Element `index` as a stack into which each iteration writes one part, computed without
        the stack dim."""
        row = self.row(index)
        if row is None or row.op.opcode != "reshape" or not self.is_read_once(row.op):
            return None
        value = resolved(row.op.operands[0])
        return StackWrite(value, index, row.position) if row.op.dims == (1, *value.dims) else None

    def row(self, index: int) -> StackWrite | None:
        """The same for the parts as written, with that dim."""
        op, stack = self.results[index], self.inside.get(index)
        if op.opcode != "dynamic-update-slice" or index in self.asked:
            return None
        target, part, position, *others = map(resolved, op.operands)
        if target is not stack or not all(map(self.is_read_once, (op, stack))):
            return None
        whole = part.dims == (1, *op.dims[1:]) and op.dims[0] == self.trips
        if not whole or any(splat(other) != 0 for other in others) or not self.is_order(position):
            return None
        return StackWrite(part, index, position)

    def is_order(self, position: Op) -> bool:
        """Whether the positions go through all iterations in order, forward or backward."""
        found = self.evaluated(position)
        first = np.arange(self.trips)
        return found is not None and any(np.array_equal(found, o) for o in (first, first[::-1]))

    def evaluated(self, op: Op) -> np.ndarray | None:
        """A scalar integer in every iteration; None if it depends on more than the counter."""
        if (index := carried(op)) is not None:
            return self.count_of(index)
        if (value := splat(op)) is not None:
            return np.asarray(value)
        if kind_of(op.opcode) is not Kind.ELEMENTWISE or op.shape.rank:
            return None
        values = [self.evaluated(resolved(o)) for o in op.operands]
        known = [value for value in values if value is not None]
        return evaluate_op(op, known) if len(known) == len(values) else None

    def count_of(self, index: int) -> np.ndarray | None:
        """An element in every iteration; None if it is not static, or overflows its type."""
        ordered = np.arange(self.trips, dtype=np.int64)
        if index == self.count.index:
            return self.count.start + self.count.step * ordered
        if index not in self.steps:
            return None
        op = self.op.operands[0].operands[index]
        first, limits = integer(op), np.iinfo(NUMPY_DTYPES[op.dtype])
        if first is None or not limits.min <= first + self.trips * self.steps[index] <= limits.max:
            return None
        return first + self.steps[index] * ordered

    @cached_property
    def reads(self) -> Mapping[int, StackRead]:
        """The reads of parts of stacks in the body, by op id."""
        found = ((op.id, self.read(op)) for op in self.body)
        return {ident: read for ident, read in found if read is not None}

    @cached_property
    def parts(self) -> Mapping[int, StackRead]:
        """The same with the stack dim, by op id."""
        found = ((op.id, self.part(op)) for op in self.body)
        return {ident: part for ident, part in found if part is not None}

    @cached_property
    def ahead(self) -> Mapping[int, Op | None]:
        """The ops that do not depend on the state, by id: the position of the stack parts that they
        are computed from, or None if they are loop-invariant."""
        found: dict[int, Op | None] = {}
        for op in self.body:
            if op.id in self.reads:
                found[op.id] = self.reads[op.id].position
            elif self.is_handed_on(op):
                found[op.id] = None
            elif op.opcode not in ("parameter", "tuple", "get-tuple-element"):
                operands = [unhindered(operand).id for operand in op.operands]
                if all(operand in found for operand in operands):
                    positions = [found[operand] for operand in operands]
                    known = {position for position in positions if position is not None}
                    if len(known) < 2 and is_liftable(op, [p is not None for p in positions]):
                        found[op.id] = next(iter(known), None)
        return found

    def cone(
        self,
        ops: Iterable[Op],
        stacks: Mapping[int, int] | None = None,
        steps: Mapping[int, Steps] | None = None,
    ) -> Cone:
        """What is needed to compute ops for all iterations at once.

        `stacks` maps ids of ops to carried elements that have, or will have, their values of all
        iterations. `steps` has the ops that are elements to which iterations add a number.
        """
        known = dict(stacks or {})
        found: dict[int, Op] = {}
        wanted = list(ops)
        while wanted:
            op = unhindered(wanted.pop())
            if op.id in self.reads:
                known.setdefault(op.id, self.reads[op.id].index)
            if op.id not in found and op.id not in known:
                found[op.id] = op
                wanted += () if carried(op) is not None else op.operands
        return Cone(tuple(found[i] for i in sorted(found)), known, steps or {})


def is_element(index: int, op: Op) -> bool:
    """Whether an op of a loop's body, looking through tuples, is an element of what the loop
    carries."""
    return carried(resolved(op)) == index


def open_loops(module: Module) -> Iterator[OpenLoop]:
    """The editable loops with a static trip count."""
    for graph, loop in editable_loops(module):
        count = counted(loop)
        if count is not None and count.trips > 1:
            yield OpenLoop(graph, loop, count)


def editable_loops(module: Module) -> Iterator[tuple[Graph, Op]]:
    """The loops whose body nothing else runs, and of which nothing is left to XLA, inner loops
    first."""
    loops = [(graph, op) for graph in module.graphs for op in graph if op.opcode == "while"]
    runs = Counter(called for _, loop in loops for called in loop.called)
    for graph, loop in loops:
        alone = all(runs[called] == 1 for called in loop.called)
        left = any(op.source.left for op in (loop, *inside(loop)))
        if alone and not left and _is_open(graph, loop):
            yield graph, loop


def _is_open(graph: Graph, loop: Op) -> bool:
    wholes = [(graph, loop)]
    wholes += [(called, p) for called in loop.called for p in called.parameters]
    made = loop.operands[0].opcode == loop.called[1].root.opcode == "tuple"
    return made and all(
        around.root is not whole and is_taken_apart(around, whole) for around, whole in wholes
    )
