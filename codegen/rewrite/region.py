"""A region: the ops of one kernel as a graph of its own, with inputs as parameters.

Code generation sees nothing else, so equal patterns give equal regions and equal source text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionstitch.codegen.annotations import like
from fusionstitch.hlo.graph import Graph, Op, Shape


def region(name: str, ops: Sequence[Op], inputs: Sequence[Op], outputs: Sequence[Op]) -> Graph:
    """Copies `ops` (topological) into a graph with one parameter per input and a tuple root."""
    copies: dict[int, Op] = {}
    for number, value in enumerate(inputs):
        copies[value.id] = Op(
            "parameter",
            value.shape,
            attrs={"index": number},
            name=value.name,
            origin=value.origin,
            source=value.source,
        )
    new: list[Op] = list(copies.values())
    for op in ops:
        copy = rebuilt(op, [copies[o.id] for o in op.operands])
        copies[op.id] = copy
        new.append(copy)
    return with_root(name, new, [copies[o.id] for o in outputs])


def rebuilt(op: Op, operands: Sequence[Op]) -> Op:
    """A copy of `op` that reads `operands`."""
    fields = op.opcode, op.shape, tuple(operands), op.attrs, op.name, op.origin, op.called
    return like(Op(*fields, op.source), op)


def with_root(name: str, ops: list[Op], outputs: Sequence[Op]) -> Graph:
    """A graph of `ops` whose root is the tuple of `outputs`."""
    shape = Shape("tuple", elements=tuple(o.shape for o in outputs))
    root = Op("tuple", shape, tuple(outputs), name="outputs")
    return Graph(name, [*ops, root], root)


def with_used(name: str, ops: Sequence[Op], outputs: Sequence[Op]) -> Graph:
    """The same of those `ops` alone, which are in order, that an output is made of; and of the
    parameters."""
    used = set(outputs)
    for op in reversed(ops):
        if op in used or op.opcode == "parameter":
            used |= {op, *op.operands}
    return with_root(name, [op for op in ops if op in used], outputs)


def rewrite(graph: Graph, rule: Callable[[Op], list[Op] | None]) -> Graph:
    """`graph` with each op for which `rule` gives a list replaced by that chain of new ops.

    The rule sees ops whose operands are already rewritten, under the numbers they have in `graph`;
    the last of the list replaces the op. Where it gives none at all, the graph stays as it is.
    """
    if not any(rule(op) for op in graph.ops[:-1]):
        return graph
    copies: dict[int, Op] = {}
    new: list[Op] = []
    for op in graph.ops[:-1]:
        copy = rebuilt(op, [copies[o.id] for o in op.operands])
        copy.id = op.id
        chain = rule(copy) or [copy]
        copies[op.id] = chain[-1]
        new.extend(chain)
    return with_root(graph.name, new, [copies[o.id] for o in graph.root.operands])
