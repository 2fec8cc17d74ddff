"""A region with loops as one graph without any, and a tree that says what repeats.

Loop-carried values become parameters of the flat graph; their initial values, their next values and
the condition become roots. So rewriting passes and the evaluation of values see loop bodies like
any other ops. An invariant, which the body returns unchanged, becomes no parameter: its readers
read its initial value.

All branches of a conditional are computed, and their results selected from. A loop in a branch runs
only where the branch is taken; its result is not selected elsewhere.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.rewrite.region import rebuilt, with_root
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import has_effect
from fusionstitch.hlo.tuples import is_invariant

#: An array, or the values of a tuple.
Value = Op | tuple["Value", ...]


@dataclass(frozen=True)
class Carried:
    """A value that a loop carries. `inside` and `after` are the numbers of the parameters that
    stand for it in an iteration and after the loop; `first` and `next` those of the roots that it
    starts from and becomes."""

    inside: int
    after: int
    first: int
    next: int


@dataclass(frozen=True)
class Loop:
    """A loop: what it carries, the number of its condition's root, the loops in its body. One in
    branches runs only where the root `chosen` says that they are taken."""

    carried: tuple[Carried, ...]
    condition: int
    inner: tuple[Loop, ...] = ()
    chosen: int | None = None

    @property
    def nest(self) -> Iterator[Loop]:
        """The loop, and all those in it."""
        yield self
        for loop in self.inner:
            yield from loop.nest


@dataclass(frozen=True, eq=False)
class Flat:
    """The flat graph. The first `inputs` parameters are the region's, the first `outputs` roots its
    outputs; `loops` stand one after the other."""

    graph: Graph
    inputs: int
    outputs: int
    loops: tuple[Loop, ...]

    @property
    def every(self) -> Iterator[Loop]:
        """All loops, outer ones before those in them."""
        for loop in self.loops:
            yield from loop.nest

    @property
    def becomes(self) -> dict[int, tuple[Op, ...]]:
        """Of which ops a parameter that a loop carries has the values, by its number."""
        return {
            number: (self.root(c.first), self.root(c.next))
            for loop in self.every
            for c in loop.carried
            for number in (c.inside, c.after)
        }

    def copied(self) -> Flat:
        """The same with ops of its own: who makes another graph of them gives them new numbers."""
        copies: dict[int, Op] = {}
        for op in self.graph.ops[:-1]:
            copies[op.id] = rebuilt(op, [copies[o.id] for o in op.operands])
        roots = [copies[o.id] for o in self.graph.root.operands]
        graph = with_root(self.graph.name, list(copies.values()), roots)
        return Flat(graph, self.inputs, self.outputs, self.loops)

    def root(self, number: int) -> Op:
        return self.graph.root.operands[number]

    def parameter(self, number: int) -> Op:
        return self.graph.parameters[number]


def made_of(roots: Iterable[Op], known: Container[int] = ()) -> list[Op]:
    """The ops that roots are made of, in their order, back to parameters and to those whose ids are
    `known`."""
    found: dict[int, Op] = {}
    todo = list(roots)
    while todo:
        op = todo.pop()
        if op.id not in found and op.id not in known and op.opcode != "parameter":
            found[op.id] = op
            todo += op.operands
    return [found[i] for i in sorted(found)]


def conjuncts(condition: Op) -> list[Op]:
    """What must hold all together."""
    if condition.opcode != "and":
        return [condition]
    return [one for operand in condition.operands for one in conjuncts(operand)]


def has_loop(graph: Graph) -> bool:
    """Whether ops of the region repeat."""
    return any(op.opcode == "while" for op in graph)


def flatten(region: Graph) -> Flat:
    """Raises CodegenError for ops whose bodies cannot be taken apart."""
    flattener = _Flattener()
    inputs = [flattener.parameter(p.shape, p.name, p) for p in region.parameters]
    outputs = flattener.values(region, inputs)
    assert isinstance(outputs, tuple)
    roots = [*_leaves(outputs), *flattener.roots]
    loops = _moved(flattener.loops, len(outputs))
    return Flat(
        with_root(region.name, flattener.ops, roots), len(inputs), len(outputs), tuple(loops)
    )


def _moved(loops: Sequence[Loop], by: int) -> list[Loop]:
    """The loops with the numbers of their roots `by` higher."""
    return [
        Loop(
            tuple(Carried(c.inside, c.after, c.first + by, c.next + by) for c in loop.carried),
            loop.condition + by,
            tuple(_moved(loop.inner, by)),
            None if loop.chosen is None else loop.chosen + by,
        )
        for loop in loops
    ]


class _Flattener:
    """Copies ops. `loops` are those found since the present body began. `ways` are the branches
    entered since then: each a conditional, the number that selects its branch, and the number of
    the branch."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.parameters: list[Op] = []
        self.roots: list[Op] = []
        self.loops: list[Loop] = []
        self.ways: list[tuple[Op, Op, int]] = []

    def parameter(self, shape: Shape, name: str, like: Op | None = None) -> Op:
        new = Op("parameter", shape, attrs={"index": len(self.parameters)}, name=name)
        if like is not None:
            new.origin, new.source = like.origin, like.source
        self.parameters.append(new)
        self.ops.append(new)
        return new

    def root(self, op: Op) -> int:
        self.roots.append(op)
        return len(self.roots) - 1

    def values(self, graph: Graph, arguments: Sequence[Value]) -> Value:
        """What a graph gives for `arguments`: its ops are copied, its loops taken apart."""
        known: dict[int, Value] = {}
        for op in graph:
            operands = [known[o.id] for o in op.operands]
            known[op.id] = self.value(op, operands, arguments)
        return known[graph.root.id]

    def value(self, op: Op, operands: Sequence[Value], arguments: Sequence[Value]) -> Value:
        if has_effect(op):
            raise CodegenError(f"{op.name}: {op.opcode} has effects, so its loop is left to XLA.")
        if op.opcode == "parameter":
            return arguments[op.attrs["index"]]
        if op.opcode == "tuple":
            return tuple(operands)
        if op.opcode == "opt-barrier":  # keeps XLA from computing only once what is computed again
            return operands[0]
        if op.opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            return operands[0][op.attrs["index"]]
        if op.opcode == "while":
            return self.loop(op, operands[0])
        if op.opcode == "call":
            return self.values(op.called[0], operands)
        if op.opcode == "conditional":
            return self.chosen(op, operands)
        arrays = [o for o in operands if isinstance(o, Op)]
        if len(arrays) < len(operands):
            raise CodegenError(f"{op.name}: {op.opcode} of a tuple is left to XLA.")
        copy = rebuilt(op, arrays)
        copy.origin = None
        self.ops.append(copy)
        return copy

    def chosen(self, op: Op, operands: Sequence[Value]) -> Value:
        """All branches, and a selection among what they give: none of them has effects."""
        number, *arguments = operands
        assert isinstance(number, Op)
        values: list[Value] = []
        for branch, argument in zip(op.called, arguments, strict=True):
            self.ways.append((op, number, len(values)))
            values.append(self.values(branch, [argument]))
            self.ways.pop()
        found = values.pop()
        while values:
            this = values.pop()
            found = self.selected(op, self.selector(op, number, len(values)), this, found)
        return found

    def taken(self) -> Op | None:
        """Whether the present branches are taken; None outside of any."""
        found: Op | None = None
        for op, number, way in self.ways:
            this = self.takes(op, number, way)
            found = this if found is None else self.made(op, Op("and", this.shape, (found, this)))
        return found

    def takes(self, op: Op, number: Op, way: int) -> Op:
        """Whether a conditional takes a branch: the last one where no other is."""
        if way < len(op.called) - 1:
            return self.selector(op, number, way)
        first, *others = [self.selector(op, number, other) for other in range(way)]
        for other in others:
            first = self.made(op, Op("or", first.shape, (first, other)))
        return self.made(op, Op("not", first.shape, (first,)))

    def selector(self, op: Op, number: Op, way: int) -> Op:
        """Whether a conditional takes a branch that is not its last one."""
        if number.dtype == "pred":
            return number
        value = np.asarray(way, NUMPY_DTYPES[number.dtype])
        attrs = {"direction": "EQ", "total_order": False}
        this = self.made(op, Op("constant", number.shape, attrs={"value": value}))
        return self.made(op, Op("compare", Shape("pred"), (number, this), attrs))

    def selected(self, op: Op, condition: Op, this: Value, other: Value) -> Value:
        """One of two values, array by array."""
        if isinstance(this, Op) and isinstance(other, Op):
            if this is other:
                return this
            if this.shape.rank:
                spread = Shape("pred", this.dims)
                attrs = {"dimensions": ()}
                condition = self.made(op, Op("broadcast", spread, (condition,), attrs))
            return self.made(op, Op("select", this.shape, (condition, this, other)))
        assert isinstance(this, tuple)
        assert isinstance(other, tuple)
        pairs = zip(this, other, strict=True)
        return tuple(self.selected(op, condition, a, b) for a, b in pairs)

    def made(self, instead_of: Op, new: Op) -> Op:
        new.name, new.source = f"{instead_of.name}_{new.opcode}", instead_of.source
        self.ops.append(new)
        return new

    def loop(self, op: Op, start: Value) -> Value:
        alone = isinstance(start, Op)  # what it carries is no tuple
        values = (start,) if isinstance(start, Op) else start
        if not all(isinstance(x, Op) for x in values):
            raise CodegenError(f"{op.name} carries tuples in tuples: it is left to XLA.")
        condition, body = op.called
        invariant = invariant_elements(body)
        first = [x for x in values if isinstance(x, Op)]
        names = [f"carried_{number}" for number in range(len(first))]
        inside = [
            value if number in invariant else self.parameter(value.shape, name)
            for number, (value, name) in enumerate(zip(first, names, strict=True))
        ]
        chosen = self.taken()
        before, self.loops = self.loops, []
        ways, self.ways = self.ways, []
        argument = inside[0] if alone else tuple(inside)
        stop = self.values(condition, [argument])
        if self.loops:
            raise CodegenError(f"The condition of {op.name} has a loop: it is left to XLA.")
        after = self.values(body, [argument])
        inner, self.loops = self.loops, before
        self.ways = ways
        assert isinstance(stop, Op)
        carried: list[Carried] = []
        results: list[Value] = list(inside)
        for number, value in enumerate((after,) if isinstance(after, Op) else after):
            if number in invariant:
                continue
            assert isinstance(value, Op)
            result = self.parameter(value.shape, names[number])
            results[number] = result
            carried.append(
                Carried(
                    inside[number].attrs["index"],
                    result.attrs["index"],
                    self.root(first[number]),
                    self.root(value),
                )
            )
        flag = None if chosen is None else self.root(chosen)
        self.loops.append(Loop(tuple(carried), self.root(stop), tuple(inner), flag))
        return results[0] if alone else tuple(results)


def invariant_elements(body: Graph) -> set[int]:
    """The elements of a body's tuple that it returns unchanged."""
    return {number for number in range(len(body.root.operands)) if is_invariant(body, number)}


def _leaves(values: Value) -> list[Op]:
    return [values] if isinstance(values, Op) else [x for v in values for x in _leaves(v)]
