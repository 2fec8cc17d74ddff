"""Rewriting graphs by declared rules until none applies: what XLA leaves, and the basics for
lowered programs that XLA has not simplified.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Module, Op, topological
from fusionstitch.hlo.literals import content
from fusionstitch.hlo.rewrite import Make
from fusionstitch.hlo.rules import RULES, fold
from fusionstitch.hlo.semantics import SEMANTICS, has_effect
from fusionstitch.hlo.verify import verify

_MAX_SWEEPS = 10
_MAX_STEPS = 100
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
#: Opcodes whose equal ops are merged. Each loop begins with a tuple of its own (`loop_tuples.py`).
_MERGED = frozenset(SEMANTICS) - {"parameter", "opaque-constant", "after-all", "tuple"}
_MERGED_CONSTANT_BYTES = 256


def simplify(graph: Graph, called: Mapping[Graph, Graph] | None = None) -> Graph:
    """The graph after all rules, merging of equal ops and removal of unread ones; verified.

    Every op keeps the origin of the op it stands for; origins without an op any more are in
    `Graph.aliases`. Ops with side effects or control dependences stay as they are. `called`
    replaces called graphs. The same graph comes back when nothing changes.
    Raises VerifyError when the rules do not come to an end or break the graph.
    """
    rewriter = Rewriter(graph, called or {})
    rewriter.run()
    result = rewriter.result()
    if result is not graph:
        verify(result)
    return result


def simplify_module(module: Module) -> Module:
    """The module with all graphs that run as kernels simplified, callees first."""
    done: dict[Graph, Graph] = {}
    for graph in module.stitchable:
        done[graph] = simplify(graph, done)
    graphs = tuple(done.get(graph, graph) for graph in module.graphs)
    return Module(module.name, graphs, done[module.entry], module.proto)


class Rewriter:
    """Rewrites copies of a graph's ops in place, operands before users."""

    def __init__(self, graph: Graph, called: Mapping[Graph, Graph]):
        self.graph = graph
        ordered = {origin for op in graph for origin in op.control}
        copies: dict[Op, Op] = {}
        self.pinned: set[Op] = set()
        self.changed = False
        for op in graph:
            copy = dataclasses.replace(op, operands=tuple([copies[o] for o in op.operands]))
            if any(c in called for c in op.called):
                copy.called = tuple(called.get(c, c) for c in op.called)
                self.changed |= copy.called != op.called
            copies[op] = copy
            if op.control or op.origin in ordered or has_effect(op):
                self.pinned.add(copy)
        self.ops = list(copies.values())
        self.root = copies[graph.root]
        #: removed op -> the op that stands for it
        self.instead: dict[Op, Op] = {}
        #: the operands that were made for the op which is rewritten
        self.made: list[Op] = []

    def run(self) -> None:
        """Sweeps until nothing changes; raises VerifyError where that does not come about."""
        for _ in range(_MAX_SWEEPS):
            if not self.sweep():
                return
        raise VerifyError(
            f"{self.graph.name}: simplification did not end after {_MAX_SWEEPS} sweeps. This is a "
            "defect of fusionstitch."
        )

    def sweep(self) -> bool:
        """Rewrites every op once; returns whether anything changed."""
        seen: dict[Hashable, Op] = {}
        ops: list[Op] = []
        changed = False
        instead = self.instead
        for op in self.ops:
            if any(o in instead for o in op.operands):
                op.operands = tuple([instead.get(o, o) for o in op.operands])
            if op in self.pinned:
                ops.append(op)
                continue
            other, rewritten = self.rewrite(op)
            changed |= rewritten
            ops += self.made
            self.made = []
            if other is None:
                other = self.merge(op, seen)
            if other is None:
                ops.append(op)
                continue
            if other.shape != op.shape:
                raise VerifyError(f"{op!r} was to be replaced by {other!r} of another shape.")
            instead[op] = other
            changed = True
        self.ops = ops
        self.root = instead.get(self.root, self.root)
        self.changed |= changed
        return changed

    def rewrite(self, op: Op) -> tuple[Op | None, bool]:
        """Applies rules to `op` until none matches: what stands for it, and if it changed."""
        rewritten = False
        for _ in range(_MAX_STEPS):
            result = self.match(op)
            if not isinstance(result, Make):
                return result, rewritten
            operands = tuple([self.operand(one, op) for one in result.operands])
            op.opcode, op.operands, op.attrs = result.opcode, operands, result.attrs
            op.called = ()
            rewritten = True
        raise VerifyError(f"{op!r}: its rules did not end. This is a defect of fusionstitch.")

    def match(self, op: Op) -> Op | Make | None:
        """What the first rule that applies makes of an op."""
        for rule in RULES.get(op.opcode, ()):
            result = rule(op)
            if result is not None:
                return result
        return fold(op)

    def operand(self, one: Op | Make, reader: Op) -> Op:
        """An operand of `reader`, which stands before it where it has to be made."""
        if isinstance(one, Op):
            return one
        shape = one.shape or reader.shape
        made = Op(one.opcode, shape, attrs=one.attrs, source=reader.source)
        made.operands = tuple([self.operand(o, made) for o in one.operands])
        self.made.append(made)
        return made

    def merge(self, op: Op, seen: dict[Hashable, Op]) -> Op | None:
        """The earlier op with the same opcode, attributes and operands, if there is one."""
        if op.opcode not in _MERGED:
            return None
        operands = [id(o) for o in op.operands]
        attrs: Hashable
        if op.opcode == "constant":
            value = op.attrs["value"]
            if any(value.strides) and value.nbytes > _MERGED_CONSTANT_BYTES:
                return None
            attrs = content(value)
        else:
            attrs = frozenset(op.attrs.items())
        if op.opcode in _COMMUTATIVE:
            operands.sort()
        bodies = () if op.attrs.get("reducer") else tuple(map(id, op.called))
        key = (op.opcode, op.shape, op.source.left, *operands, attrs, bodies)
        first = seen.setdefault(key, op)
        return None if first is op else first

    def result(self) -> Graph:
        needed = [op for op in self.ops if op.opcode == "parameter" or op in self.pinned]
        live = topological(self.root, needed)
        if not self.changed and len(live) == len(self.graph):
            return self.graph
        return Graph(self.graph.name, live, self.root, self.graph.proto_id, self.aliases(live))

    def aliases(self, live: list[Op]) -> dict[int, int]:
        origins = {op.origin for op in live}
        stands: dict[int, int] = dict(self.graph.aliases)
        for op, other in self.instead.items():
            if op.origin is not None and other.origin is not None:
                stands[op.origin] = other.origin

        def final(origin: int) -> int:
            while origin in stands:
                origin = stands[origin]
            return origin

        return {a: final(b) for a, b in stands.items() if final(b) in origins}
