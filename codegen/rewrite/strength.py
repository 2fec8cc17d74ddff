"""Strength reduction: a region rewritten so that the same values take fewer instructions.

The simplifier of `hlo/` must preserve the correspondence of ops to XLA's module. A region has no
such constraint: rules may make new ops, and equal ops become one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.rewrite.ranges import at_most
from fusionstitch.codegen.rewrite.region import rebuilt, with_root
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES, content
from fusionstitch.hlo.semantics import Kind, kind_of

#: A rule looks at an op whose operands are rewritten already; it gives the op that replaces it,
#: made through the builder, or None.
Rule = Callable[["Builder", Op], Op | None]

#: Where `Builder.sizes` stop counting.
_MANY = 1 << 16
_MERGED = (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.SOURCE, Kind.REDUCTION)


class Builder:
    """The new region while it grows. `exact` allows only rules that keep every bit."""

    def __init__(self, rules: Mapping[str, tuple[Rule, ...]], exact: bool):
        self.rules = rules
        self.exact = exact
        self.ops: list[Op] = []
        #: values with several readers, or one outside
        self.shared: set[Op] = set()
        #: what no element of an integer op exceeds, where that is known
        self.bounds: dict[Op, int | None] = {}
        #: ops that a value is made of, those reached along several paths as often
        self.sizes: dict[Op, int] = {}
        self._equal: dict[Hashable, Op] = {}

    def add(self, op: Op) -> Op:
        """The op that stands for `op`: what a rule makes of it, an equal one, or itself."""
        for rule in self.rules.get(op.opcode, ()):
            found = rule(self, op)
            if found is not None:
                return found
        if kind_of(op.opcode) in _MERGED and (not op.called or op.attrs.get("reducer")):
            same = self._equal.setdefault(_key(op), op)
            if same is not op:
                return same
        self.append(op)
        return op

    def append(self, op: Op) -> None:
        """Takes `op` as it is."""
        self.ops.append(op)
        self.bounds[op] = at_most(op, self.bounds)
        self.sizes[op] = min(_MANY, 1 + sum(self.sizes[o] for o in op.operands))

    def make(self, like: Op, opcode: str, *operands: Op, dtype: str = "", **attrs: Any) -> Op:
        """A new op with the dims, name and source of `like`, of its dtype if not given."""
        shape = Shape(dtype or like.dtype, like.dims)
        return self.add(Op(opcode, shape, operands, attrs, like.name, source=like.source))

    def constant(self, like: Op, value: Any, dtype: str = "") -> Op:
        """`value` in each element of the dims of `like`."""
        array = np.array(value, NUMPY_DTYPES[dtype or like.dtype])
        array.flags.writeable = False
        shape = Shape(dtype or like.dtype)
        scalar = self.add(Op("constant", shape, (), {"value": array}, like.name))
        if not like.dims:
            return scalar
        return self.make(like, "broadcast", scalar, dtype=shape.dtype, dimensions=())


def reduce_strength(
    graph: Graph, rules: Mapping[str, tuple[Rule, ...]], exact: bool = False
) -> Graph:
    """`graph` after `rules` (by opcode), with equal ops merged and unread ones gone.

    All parameters stay, and an output never becomes one.
    """
    builder = Builder(rules, exact)
    outputs = set(graph.root.operands)
    stands: dict[Op, Op] = {}
    for op in graph.ops[:-1]:
        copy = rebuilt(op, [stands[o] for o in op.operands])
        found = builder.add(copy)
        if found.opcode == "parameter" and op in outputs and op.opcode != "parameter":
            builder.append(copy)
            found = copy
        if op in outputs or len(graph.users[op.id]) > 1:
            builder.shared.add(found)
        stands[op] = found
    roots = [stands[o] for o in graph.root.operands]
    needed = set(roots)
    for op in reversed(builder.ops):
        if op in needed:
            needed.update(op.operands)
    ops = [op for op in builder.ops if op in needed or op.opcode == "parameter"]
    return with_root(graph.name, ops, roots)


def _key(op: Op) -> Hashable:
    attrs: Hashable
    if op.opcode == "constant":
        attrs = content(op.attrs["value"])
    else:
        attrs = frozenset(op.attrs.items())
    return op.opcode, op.shape, tuple(map(id, op.operands)), attrs, annotations_of(op)
