"""Numbers by which something is decided: they are rounded as their types say.

Floats of 16 bits may keep more bits inside of a kernel, and lose them where they pass memory. For
arithmetic that is a difference in the last bit, but comparisons notice it: an extremum read from
memory equals none of the numbers that it is the extremum of, if these were not rounded. So all
operands of comparisons and other steps are rounded. So are those of extrema that leave the kernel:
their gradients are comparisons in another kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.monoids import Monoid
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.text.expressions import is_excessive
from fusionstitch.hlo.deciding import has_floats, is_extremum, is_step
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

_COMPUTED = frozenset({Kind.ELEMENTWISE, Kind.REDUCTION, Kind.DOT})


def keep_roundings(graph: Graph, becomes: Mapping[int, Sequence[Op]] | None = None) -> Graph:
    """The region with each op annotated as `rounded` that gives a float of 16 bits on which a
    decision depends. `becomes` says, for the numbers of parameters that a loop carries, of
    which ops they have the values."""
    if not any(map(is_excessive, graph)):
        return graph
    found = made_of([*decisions(graph), *extrema(graph)], becomes or {})
    rounded = {op.id for op in found if gives_excess(op)}
    return rewrite(graph, lambda op: [annotated(op, rounded=True)] if op.id in rounded else None)


def made_of(
    ops: Iterable[Op], becomes: Mapping[int, Sequence[Op]] = MappingProxyType({})
) -> set[Op]:
    """The floats that ops are computed from, themselves included; `becomes` as above."""
    found, todo = set[Op](), list(ops)
    while todo:
        op = todo.pop()
        if op not in found and has_floats(op):
            found.add(op)
            todo += op.operands
            if op.opcode == "parameter":
                todo += becomes.get(op.attrs["index"], ())
    return found


def decisions(ops: Iterable[Op]) -> Iterator[Op]:
    """What some of the ops decide by."""
    for op in ops:
        if _decides(op):
            yield from op.operands


def _decides(op: Op) -> bool:
    steep = op.opcode == "inverse-erf"  # infinite at its ends
    return steep or is_step(op) or isinstance(op.attrs.get("reducer"), Monoid)


def extrema(graph: Graph) -> Iterator[Op]:
    """The extrema that leave the kernel."""
    for op in graph.root.operands:
        while op.opcode == "convert" or kind_of(op.opcode) is Kind.MOVEMENT:
            op = op.operands[0]
        if is_extremum(op):
            yield op


def gives_excess(op: Op) -> bool:
    """Whether an op gives more bits than its type has though its operands do not; bodies of the
    user's round."""
    computed = kind_of(op.opcode) in _COMPUTED and is_excessive(op)
    return computed and op.attrs.get("reducer", "add") in ("add", "multiply")
