"""Equal patterns get equal keys, so that each structure is scored, generated and compiled once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fusionstitch.patterns.pattern import Pattern
from hlo.graph import Graph, Op


def canonical_key(pattern: Pattern) -> str:
    """A hash of opcodes, shapes, attributes, wiring, and which ops are outputs.

    Two patterns with one key have the same kernel with the same order of operands and results:
    ops, inputs and outputs are numbered in the pattern's own order. Names, source lines and ids
    do not enter. A permuted copy of a pattern may get another key.
    """
    number = {op.id: f"i{k}" for k, op in enumerate(pattern.inputs)}
    lines = [f"{op.shape}" for op in pattern.inputs]
    for k, op in enumerate(pattern.ops):
        number[op.id] = f"o{k}"
        lines.append(_line(op, [number[o.id] for o in op.operands]))
    lines.append(" ".join(number[op.id] for op in pattern.outputs))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _line(op: Op, operands: list[str]) -> str:
    attrs = " ".join(f"{name}={_text(op.attrs[name])}" for name in sorted(op.attrs))
    called = " ".join(map(_graph, op.called)) if op.attrs.get("reducer") is None else ""
    return f"{op.opcode} {op.shape} ({', '.join(operands)}) {attrs} {called}"


def _graph(graph: Graph) -> str:
    return "; ".join(_line(op, [str(o.id) for o in op.operands]) for op in graph)


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype}{value.shape}{content}"
    return repr(value)
