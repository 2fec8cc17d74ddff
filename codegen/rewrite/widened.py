"""Numbers of 16 bits that are only read as wider ones, and by which something is decided.

    s = bf16 dot(q, k)    f32 convert(s)    ->    f32 dot(q, k)

XLA drops a rounding between two conversions (`xla_allow_excess_precision`), and so do kernels. But
what decides has to be one value for all who read it, wherever a schedule keeps it: memory holds as
many bits as the type says. So the value itself gets the wider type. Where it leaves the kernel, is
read as it is, or meets what another kernel has found the extremum of, it stays what it was, and
`codegen/rewrite/roundings.py` has it rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusionstitch.codegen.rewrite.comparisons import meets_others
from fusionstitch.codegen.rewrite.region import rebuilt, with_root
from fusionstitch.codegen.rewrite.roundings import decisions, extrema, gives_excess, made_of
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

_WIDER = ("f32", "f64")
_TYPED = frozenset({Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCTION, Kind.DOT})
#: Ops whose results depend on their types: the program uses the bits or the rounding.
_TYPE_MATTERS = frozenset({"bitcast-convert", "convert", "reduce-precision", "member"})


def widen(graph: Graph) -> Graph:
    """The region in which each value of 16 bits that is only read as f32 or f64, and by which
    something is decided here alone, is computed in f32."""
    wide = _wide(graph)
    return _written(graph, wide) if wide else graph


def _wide(graph: Graph) -> set[Op]:
    if not any(map(gives_excess, graph)):
        return set()
    elsewhere = [x for op in graph if meets_others(op) for x in op.operands]
    decided = made_of(decisions(graph)) - made_of([*elsewhere, *extrema(graph)])
    may: set[Op] = set()
    for op in reversed(graph.ops[:-1]):
        if op in decided and _may_be_wide(op):
            readers = graph.users[op.id]
            if readers and all((r in may and not _is_dot(r)) or _widens(r) for r in readers):
                may.add(op)
    found: set[Op] = set()
    for op in graph:
        if op in may and (gives_excess(op) or not found.isdisjoint(op.operands)):
            found.add(op)
    return found


def _may_be_wide(op: Op) -> bool:
    """Whether an op may give f32 for a float of 16 bits."""
    if op.dtype not in ("bf16", "f16") or op.opcode in _TYPE_MATTERS:
        return False
    if kind_of(op.opcode) not in _TYPED:
        return False
    return not op.called or isinstance(op.attrs.get("reducer"), str)


def _widens(op: Op) -> bool:
    return op.opcode == "convert" and op.dtype in _WIDER


def _is_dot(op: Op) -> bool:
    return kind_of(op.opcode) is Kind.DOT


def _written(graph: Graph, wide: set[Op]) -> Graph:
    copies: dict[Op, Op] = {}
    ops: list[Op] = []

    def converted(value: Op, dtype: str) -> Op:
        if value.dtype != dtype:
            value = Op("convert", replace(value.shape, dtype=dtype), (value,), source=value.source)
            ops.append(value)
        return value

    def operands(op: Op) -> Iterator[Op]:
        for operand in op.operands:
            copy = copies[operand]
            yield converted(copy, "f32") if copy.dtype == op.dtype and op in wide else copy

    for op in graph.ops[:-1]:
        if op.opcode == "convert" and op.operands[0] in wide:
            copies[op] = converted(copies[op.operands[0]], op.dtype)
            continue
        copy = rebuilt(op, [copies[o] for o in op.operands] if _is_dot(op) else list(operands(op)))
        if op in wide:
            copy.shape = replace(op.shape, dtype="f32")
        ops.append(copy)
        copies[op] = copy
    return with_root(graph.name, ops, [copies[o] for o in graph.root.operands])
