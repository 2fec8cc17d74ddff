"""Conditions that threads compute together become carried values.

    while p(s): s = f(s)   ->   go = p(s); while go: s = f(s); go = p(f(s))

What `p` sums is then summed in the phases of the body, and all threads read the result. A condition
of a few scalars stays as it is: each thread computes it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from fusionstitch.codegen.rewrite.region import rebuilt, with_root
from fusionstitch.codegen.while_loops.flat import Carried, Flat, Loop, made_of
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops of a condition that every thread computes.
MOST_OPS = 16


def carry_conditions(flat: Flat) -> Flat:
    """The same loops, each with a condition that every thread can compute alone."""
    carrier = _Carrier(flat)
    loops = tuple(map(carrier.loop, flat.loops))
    if loops == flat.loops:
        return flat
    graph = with_root(flat.graph.name, carrier.ops, carrier.roots)
    return Flat(graph, flat.inputs, flat.outputs, loops)


def is_simple(condition: Op, known: Container[int] = ()) -> bool:
    """Whether every thread can compute a condition alone, of what is `known` by the ids of ops."""
    ops = made_of([condition], known)
    return len(ops) <= MOST_OPS and not any(
        kind_of(op.opcode) in (Kind.REDUCTION, Kind.DOT) or op.shape.rank for op in ops
    )


class _Carrier:
    def __init__(self, flat: Flat):
        self.flat = flat
        self.ops = list(flat.graph.ops[:-1])
        self.roots = list(flat.graph.root.operands)
        self.parameters = len(flat.graph.parameters)

    def loop(self, loop: Loop) -> Loop:
        inner = tuple(map(self.loop, loop.inner))
        flat, condition = self.flat, self.flat.root(loop.condition)
        if is_simple(condition):
            return replace(loop, inner=inner)
        inside, after = self.parameter(condition), self.parameter(condition)
        firsts = {flat.parameter(c.inside).id: flat.root(c.first) for c in loop.carried}
        nexts = {flat.parameter(c.inside).id: flat.root(c.next) for c in loop.carried}
        first = self.root(self.substituted(condition, firsts))
        next_ = self.root(self.substituted(condition, nexts))
        carried = Carried(inside.attrs["index"], after.attrs["index"], first, next_)
        return Loop((*loop.carried, carried), self.root(inside), inner, loop.chosen)

    def parameter(self, like: Op) -> Op:
        new = Op("parameter", like.shape, attrs={"index": self.parameters}, name="goes_on")
        self.parameters += 1
        self.ops.insert(0, new)
        return new

    def root(self, op: Op) -> int:
        self.roots.append(op)
        return len(self.roots) - 1

    def substituted(self, condition: Op, values: Mapping[int, Op]) -> Op:
        """The condition of these values of what the loop carries."""
        copies = dict(values)
        for op in made_of([condition]):
            copy = rebuilt(op, [copies.get(o.id, o) for o in op.operands])
            copies[op.id] = copy
            self.ops.append(copy)
        return copies.get(condition.id, condition)
