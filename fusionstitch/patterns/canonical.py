"""Equal patterns get equal orders and equal keys, so that each structure is scored, generated and
compiled once, wherever it is in the graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.hlo.brief import Listed
from fusionstitch.hlo.graph import Graph, Op, of_graph
from fusionstitch.hlo.literals import content


@dataclass(frozen=True)
class Order:
    """The ops of a pattern (topological), its inputs and its outputs in an order that depends only
    on its structure, not on its position in the graph."""

    ops: tuple[Op, ...]
    inputs: tuple[Op, ...]
    outputs: tuple[Op, ...]


def canonical_order(graph: Graph, ops: Sequence[Op], outputs: Sequence[Op]) -> Order:
    """Depth first from the outputs, operands left to right. Outputs are ordered by a hash of what
    computes them. Equal hashes (parallel copies of one computation) are ordered by position in the
    graph."""
    inside = {op.id: op for op in ops}
    digest = _digests(graph, ops)
    ranked = sorted(outputs, key=lambda op: (digest[op.id], op.id))
    order: dict[int, Op] = {}
    inputs: dict[int, Op] = {}
    stack = list(reversed(ranked))
    while stack:
        op = stack[-1]
        if op.id not in inside:
            inputs.setdefault(op.id, op)
            stack.pop()
            continue
        waiting = [o for o in op.operands if o.id not in order and o.id not in inputs]
        if waiting:
            stack += reversed(waiting)
        else:
            order.setdefault(op.id, op)
            stack.pop()
    return Order(Listed(order.values()), Listed(inputs.values()), Listed(ranked))


def order_key(graph: Graph, order: Order) -> str:
    """A hash of opcodes, shapes, attributes, connections, and which ops are outputs, without names,
    source lines or ids. Equal keys mean the same kernel, with operands and results in the same
    order."""
    texts = _texts(graph)
    number = {op.id: f"i{k}" for k, op in enumerate(order.inputs)}
    lines = [texts[op.id].shape for op in order.inputs]
    for k, op in enumerate(order.ops):
        number[op.id] = f"o{k}"
        lines.append(texts[op.id].line([number[o.id] for o in op.operands]))
    lines.append(" ".join(number[op.id] for op in order.outputs))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _digests(graph: Graph, ops: Sequence[Op]) -> Mapping[int, str]:
    """Per op, a hash of its expression tree, in which inputs count by shape only."""
    texts, digests = _texts(graph), dict[int, str]()
    for op in ops:
        known = [digests.get(o.id) or texts[o.id].shape for o in op.operands]
        text = texts[op.id].line(known).encode()
        digests[op.id] = hashlib.blake2b(text, digest_size=8).hexdigest()
    return digests


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of an op, independent of the names of its operands."""

    opcode: str
    shape: str
    attributes: str

    def line(self, operands: list[str]) -> str:
        return f"{self.opcode} {self.shape} ({', '.join(operands)}) {self.attributes}"


@of_graph
def _texts(graph: Graph) -> tuple[_Text, ...]:
    return tuple(_Text(op.opcode, str(op.shape), _attributes(op)) for op in graph)


def _attributes(op: Op) -> str:
    attrs = " ".join(f"{name}={_text(op.attrs[name])}" for name in sorted(op.attrs))
    called = " ".join(map(_graph, op.called)) if op.attrs.get("reducer") is None else ""
    return f"{attrs} {called}"


def _graph(graph: Graph) -> str:
    lines = zip(_texts(graph), graph, strict=True)
    return "; ".join(text.line([str(o.id) for o in op.operands]) for text, op in lines)


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(content(value)).hexdigest()}"
    return repr(value)
