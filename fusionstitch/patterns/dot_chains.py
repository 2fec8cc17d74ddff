"""Chains of dots that can be streamed, each with what it stands among.

    s = q k^T    p = softmax(s + bias)    o = p v

All ops between the dots are in the pattern. What else they read, such as a mask or a bias, and what
is computed of the result may be in it or not: where a bias comes from a table, or from a product of
its own, a kernel that reads what was stored may be the faster one. Intervals and windows are cut by
the depths of ops, so that it is chance whether one has the chain without the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fusionstitch.codegen.dots.chains import Chain, find_chains
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.patterns.pattern import Offer, spread_values, spreads

#: Whether an op is in a pattern that reads it.
Takes = Callable[[Op], bool]


def dot_chains(graph: Graph, fusible: int, device: Device) -> Iterator[Offer]:
    """The chains, which stay candidates: the dots and what lies between with more and more of what
    they read, each with more and more of what is computed of it."""
    for chain in find_chains(graph, device):
        inside = _between(graph, chain)
        if inside & ~fusible:
            continue
        for what, (multiplied, others) in _READ.items():
            operands = _with_operands(graph, inside, fusible, multiplied)
            whole = _with_read(graph, operands, fusible, others)
            for opcodes in _RESULTS:
                found = _with_results(graph, whole, fusible, opcodes)
                for bits in (_without_rim(graph, found), found):
                    yield Offer(bits, f"chain of dots ({what})", stays=True)


def _between(graph: Graph, chain: Chain) -> int:
    """The dots of a chain and all ops on the ways from one to the other."""
    products = sum(1 << i for i in chain.products)
    return sum(1 << i for i in ids(graph.reach[chain.dot.id]) if graph.reach[i] & products)


def _with_operands(graph: Graph, bits: int, fusible: int, takes: Takes) -> int:
    """A pattern with the ops that its dots multiply results of, as far as it `takes` them."""
    for i in ids(bits):
        if graph.ops[i].opcode == "dot":
            bits |= _with_read(graph, 1 << i, fusible & ~bits, takes)
    return bits


def _with_read(graph: Graph, bits: int, fusible: int, takes: Takes) -> int:
    """A pattern with the ops it is made of, as far as it `takes` them."""
    todo = list(ids(bits))
    while todo:
        for operand in graph.ops[todo.pop()].operands:
            bit = 1 << operand.id
            if fusible & bit & ~bits and takes(operand):
                bits |= bit
                todo.append(operand.id)
    return bits


def _with_results(graph: Graph, bits: int, fusible: int, opcodes: frozenset[str]) -> int:
    """A pattern with what is computed of it, element by element or by ops of these `opcodes`, and
    with what is spread for that."""
    inside = bits
    for op in graph.ops[min(ids(bits), default=0) :]:
        if not fusible & 1 << op.id & ~bits:
            continue
        passes = op.opcode in opcodes or kind_of(op.opcode) is Kind.ELEMENTWISE
        if passes and any(inside >> o.id & 1 for o in op.operands):
            inside |= 1 << op.id
    return _with_read(graph, inside, fusible, _is_spread)


def _without_rim(graph: Graph, bits: int) -> int:
    """A pattern without the ops that only spread values which it reads. The kernel is the same; XLA
    may spread them for others, or need not."""
    for i in ids(bits):
        op = graph.ops[i]
        if spreads(op) and not any(bits >> value.id & 1 for value in spread_values(op)):
            bits &= ~(1 << i)
    return bits


def _is_arranged(op: Op) -> bool:
    """Whether an op gives a dot elements in its order: it reads them as well in the one that they
    had (codegen/rewrite/dot_dims.py)."""
    return op.opcode in ("transpose", "reshape", "copy")


def _is_spread(op: Op) -> bool:
    """Whether an op makes more of less: one of a mask, or of the vector that a bias is."""
    return _is_cheap(op) and sum(o.shape.bytes for o in op.operands) < op.shape.bytes


def _is_cheap(op: Op) -> bool:
    return op.opcode != "gather" and _is_free(op)


def _is_free(op: Op) -> bool:
    return kind_of(op.opcode) in (Kind.SOURCE, Kind.ELEMENTWISE, Kind.MOVEMENT)


#: Which ops are in a pattern, of those that its dots multiply and of those that it reads else.
_READ: dict[str, tuple[Takes, Takes]] = {
    "on what is stored": (_is_arranged, _is_spread),
    "on stored elements": (_is_cheap, _is_spread),
    "on what is cheap": (_is_cheap, _is_cheap),
    "on tables": (_is_free, _is_free),
}
#: Ops after a chain, besides elementwise ones, that are in its pattern.
_RESULTS = (frozenset({"transpose"}), frozenset({"transpose", "reshape"}))
