"""Which values of tiles with a halo threads exchange through shared memory.

A value that its readers access at several indices is either recomputed at each of them, or computed
once and stored, for which its readers wait. Inputs are stored where many neighbors read them.
"""

from __future__ import annotations

from collections.abc import Container, Set

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.extents import needs_stage
from fusionstitch.codegen.rewrite.region import rebuilt, with_used
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Operations that take as long as reading an element, and as storing one in shared memory for other
#: threads to read.
READ, EXCHANGE = 8, 32
#: A view of an input is stored if it is read at so many indices.
LEAST_READ = 3


def with_exchanges(graph: Graph, tiled: Container[Op], views: Set[Op], outputs: Set[Op]) -> Graph:
    """The region with those of its values marked that are computed once for all threads of a block:
    those `tiled` values that take long to recompute, those `views` that are read at many indices,
    and all that become `outputs`."""
    reads = _reads(graph)
    once = {*outputs, *(op for op in views if reads.get(op, 0) >= LEAST_READ)}
    cost: dict[Op, float] = {}
    for op in graph.ops[:-1]:
        is_computed = kind_of(op.opcode) is Kind.ELEMENTWISE
        made = sum(READ if o in once else cost[o] for o in dict.fromkeys(op.operands))
        own = spec_of(op.opcode).flops if is_computed else 0
        cost[op] = READ if op.opcode == "parameter" else min(made + own, EXCHANGE)
        spread = is_computed and op in tiled and op.shape.rank > 0
        if spread and cost[op] * (reads[op] - 1) >= EXCHANGE:
            once.add(op)
    return _marked(graph, once)


def _reads(graph: Graph) -> dict[Op, int]:
    """At how many indices readers access each value. For loops that sum it up it should be
    stored."""
    found: dict[Op, int] = {}
    for op in reversed(graph.ops[:-1]):
        found[op] = sum(
            found[user] if kind_of(user.opcode) is Kind.MOVEMENT else 1 + needs_stage(user)
            for user in graph.users[op.id]
        )
    return found


def _marked(graph: Graph, once: Container[Op]) -> Graph:
    """The region with these values of tiles computed once."""
    copies: dict[Op, Op] = {}
    for op in graph.ops[:-1]:
        copies[op] = rebuilt(op, [copies[o] for o in op.operands])
        if op in once:
            copies[op] = annotated(copies[op], once=True, tile=True)
    outputs = [copies[o] for o in graph.root.operands]
    return with_used(graph.name, list(copies.values()), outputs)
