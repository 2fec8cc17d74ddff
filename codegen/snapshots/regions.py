"""A region as text: a line per op."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.rewrite.monoids import Monoid
from fusionstitch.codegen.snapshots.page import counted, name, numbers, page, table
from fusionstitch.hlo import foreign
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import only_element

#: Characters of an attribute that is neither numbers nor a word of ours.
MOST = 60


def region_text(graph: Graph) -> str:
    """Number, name, type, opcode, operands and attributes of each op."""
    ops = [op for op in graph.ops[:-1] if op.opcode != "parameter"]
    inputs, outputs = graph.parameters, graph.root.operands
    lines = [
        f"{counted(len(ops), 'op')}, {counted(len(inputs), 'input')}, "
        f"{counted(len(outputs), 'output')}: {numbers(outputs)}",
        "",
    ]
    rows = [
        (f"%{op.id}", name(op), str(op.shape), op.opcode, "; ".join(_rest(op)))
        for op in graph.ops[:-1]
    ]
    return page([*lines, *table(rows)])


def _rest(op: Op) -> Iterator[str]:
    if op.operands:
        yield numbers(op.operands)
    for key, value in op.attrs.items():
        yield f"{key.replace('_', ' ')} {_attribute(value)}"
    known = annotations_of(op)
    for field in fields(known):
        if (value := getattr(known, field.name)) != field.default:
            yield f"{field.name} {_attribute(value)}"
    if op.called:
        yield f"with a body of {', '.join(counted(len(g), 'op') for g in op.called)}"


def _attribute(value: object) -> str:
    if isinstance(value, np.ndarray):
        one = only_element(value)
        return f"of {counted(value.size, 'element')}" if one is None else str(one)
    if isinstance(value, Monoid):
        return f"{value.functor}{', in order' if value.in_order else ''}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, tuple):
        return f"({', '.join(map(_attribute, value))})"
    return foreign.line(str(value), MOST)
