"""Products that a program computes several times: before a loop, in it, in its gradient; of whole
arrays, and of some rows at a time."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

from fusionstitch.hlo.edit import put
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.literals import content
from fusionstitch.hlo.semantics import has_effect
from fusionstitch.hlo.tuples import resolved

#: HIGHEST, for both operands, as a proto has it.
_HIGHEST = (2, 2)
#: The precision of a dot that asks for none, and must not be rounded in one place alone.
REPEATED = "default, repeated"


#: A value by its number, and by dim of another one which whole dim of it that is.
_Source: TypeAlias = tuple[int, Sequence[int | None]]


def products(module: Module) -> Mapping[Op, Hashable]:
    """What each dot of a module is a product of: equal for dots that may have elements in common.

    Those are sums of the same products: of the same dims of the same two arrays, whichever comes
    first, however they are transposed, reshaped or widened before, and whichever rows are taken.
    Values in loops and branches are known as they are around them.
    """
    numbering = _Numbering()
    numbering.graph(module.entry, {})
    return numbering.products


def ask_for_all_bits(module: Module, dots: Collection[Op]) -> None:
    """Has XLA keep all bits of the operands of `dots` in the module's proto."""
    computations = {c.id: c for c in module.proto.computations}
    for graph in module.graphs:
        origins = {op.origin for op in graph if op in dots}
        for instruction in computations[graph.proto_id].instructions if origins else ():
            if instruction.id in origins:
                put(instruction.precision_config.operand_precision, _HIGHEST)


class _Numbering:
    """Numbers values, so that equal ones have one number."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.values: dict[Op, int] = {}
        self.products: dict[Op, Hashable] = {}
        #: what values are elements of, where that is another one
        self.sources: dict[int, _Source] = {}
        #: by loop its invariant elements, with the numbers of their values
        self.results_of: dict[Op, dict[int | None, int]] = {}

    def number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def graph(self, graph: Graph, given: Mapping[int | None, int]) -> None:
        """Numbers the ops of a graph. `given` are the numbers of elements of its parameter, or of
        the parameter itself for None, where they are known."""
        for op in graph:
            self.values[op] = self.of(op, given)

    def of(self, op: Op, given: Mapping[int | None, int]) -> int:
        plain = _seen_through(op)
        if plain is not op:
            return self.values[plain]
        if op.opcode == "parameter" and None in given:
            return given[None]
        if op.opcode == "get-tuple-element":
            [whole], index = op.operands, op.attrs["index"]
            if whole.opcode == "parameter" and index in given:
                return given[index]
            if index in (known := self.results_of.get(whole, {})):
                return known[index]
        if op.opcode in ("while", "conditional", "call"):
            for number, called in enumerate(op.called):
                self.graph(called, self.arguments(op, number))
            return self.number(op)
        if op.opcode in ("parameter", "opaque-constant") or has_effect(op):
            return self.number(op)
        operands = [self.values[o] for o in op.operands]
        if op.opcode == "dot":
            self.products[op] = self.product(op)
        if op.opcode == "constant":
            return self.number((op.shape, content(op.attrs["value"])))
        bodies = () if op.attrs.get("reducer") else op.called
        attrs = frozenset(op.attrs.items())
        found = self.number((op.opcode, op.shape, attrs, bodies, *operands))
        if found not in self.sources and (dims := _moved(op)) is not None:
            value, of = self.source(op.operands[0])
            self.sources[found] = value, tuple(None if d is None else of[d] for d in dims)
        return found

    def source(self, op: Op) -> _Source:
        """What the elements of an op are elements of."""
        value = self.values[op]
        return self.sources.get(value, (value, tuple(range(op.shape.rank))))

    def loop_results(self, loop: Op) -> dict[int | None, int]:
        [init], root = loop.operands, loop.called[1].root
        if not init.opcode == root.opcode == "tuple":
            return {}
        return {
            index: self.values[first]
            for index, (first, last) in enumerate(zip(init.operands, root.operands, strict=True))
            if _is_element(resolved(last), index)
        }

    def arguments(self, op: Op, number: int) -> dict[int | None, int]:
        """What the graph that an op calls as the `number`-th is given."""
        if op.opcode == "while":
            self.results_of[op] = self.loop_results(op)
            return self.results_of[op]
        if op.opcode != "conditional":
            return {}
        given = op.operands[1 + number]
        found: dict[int | None, int] = {None: self.values[given]}
        if given.opcode == "tuple":
            found |= {index: self.values[o] for index, o in enumerate(given.operands)}
        return found

    def product(self, dot: Op) -> Hashable:
        sides = []
        for side, name in enumerate(("lhs", "rhs")):
            value, dims = self.source(dot.operands[side])
            summed = [dims[d] for d in dot.attrs[f"{name}_contract"]]
            if None in summed:
                value, summed = self.values[dot.operands[side]], dot.attrs[f"{name}_contract"]
            sides.append((value, summed))
        return min(_paired(*sides), _paired(*reversed(sides))), dot.dtype


def _paired(one: Any, other: Any) -> tuple[Any, ...]:
    """Both arrays, and which of their dims are summed together."""
    return one[0], other[0], tuple(sorted(zip(one[1], other[1], strict=True)))


def _moved(op: Op) -> Sequence[int | None] | None:
    """Of an op whose elements are elements of its first operand: which whole dim of that each of
    its own dims is. None for other ops."""
    dims, given = op.shape.dims, op.operands[0].shape if op.operands else op.shape
    if op.opcode == "transpose":
        return list(op.attrs["dimensions"])
    if op.opcode == "broadcast":
        kept = {d: n for n, d in enumerate(op.attrs["dimensions"])}
        return [kept.get(d) for d in range(op.shape.rank)]
    if op.opcode in ("slice", "dynamic-slice"):
        return [d if dims[d] == given.dims[d] else None for d in range(op.shape.rank)]
    if op.opcode == "reshape":
        before = {(prod(given.dims[:d]), n): d for d, n in enumerate(given.dims)}
        return [before.get((prod(dims[:d]), n)) for d, n in enumerate(dims)]
    if op.opcode == "convert" and _is_widened(op):
        return range(op.shape.rank)
    return None


def _is_widened(op: Op) -> bool:
    """Whether a convert keeps every value."""
    return (op.operands[0].dtype, op.dtype) in (("bf16", "f32"), ("f16", "f32"))


def _seen_through(op: Op) -> Op:
    """What an op is before tuples and barriers, which keep values."""
    while True:
        before, op = op, resolved(op)
        if op.opcode == "get-tuple-element" and op.operands[0].opcode == "opt-barrier":
            [given] = op.operands[0].operands
            if given.opcode == "tuple":
                op = given.operands[op.attrs["index"]]
        elif op.opcode in ("opt-barrier", "copy"):
            op = op.operands[0]
        if op is before:
            return op


def _is_element(op: Op, index: int) -> bool:
    return (
        op.opcode == "get-tuple-element"
        and op.operands[0].opcode == "parameter"
        and op.attrs["index"] == index
    )
