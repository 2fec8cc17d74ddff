"""A fusion pattern: a convex set of ops of one graph that becomes one kernel."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.free import FREE_KINDS, free_bits
from fusionstitch.hlo.graph import INTEGERS, Graph, Op, ids, of_graph
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import kind_of
from fusionstitch.patterns.canonical import Order, canonical_order, order_key


class Offer(NamedTuple):
    """A set of ops that a generator offers: its bits, the rule that proposed it, and whether it
    stays a candidate where there are many (`Pattern.stays`)."""

    bits: int
    rule: str
    stays: bool = False


@dataclass(frozen=True, eq=False)
class Pattern:
    """A set of ops of a graph that becomes one kernel.

    Free ops (see `free_bits`) are not in `bits`: every pattern that reads one computes it itself,
    so `ops` contains them and `inputs` does not. The same holds for ops that spread a smaller value
    (see `spreads`): a pattern reads that value instead, and passes it on instead.

    `ops` is topological. `ops`, `inputs` and `outputs` are in canonical order, so that patterns
    with equal `key` correspond position by position.

    Attributes:
        graph: the graph that contains the ops
        bits: the members, as a bitset of their ids
        rule: the rule that proposed it
        stays: whether it is not dropped for its size where planning has many candidates: of a kind
            that is rare, and whose kernels are known to be good
    """

    graph: Graph
    bits: int
    rule: str
    stays: bool = False

    def __hash__(self) -> int:
        return hash((id(self.graph), self.bits))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.graph is other.graph and self.bits == other.bits

    def __repr__(self) -> str:
        return brief(
            f"Pattern: {count(self.ops, 'op')} of {self.graph.name}, "
            f"{count(self.inputs, 'input')}, {count(self.outputs, 'output')}, found by {self.rule}"
        )

    @property
    def ops(self) -> tuple[Op, ...]:
        """The members and the free ops they need."""
        return self._order.ops

    @property
    def inputs(self) -> tuple[Op, ...]:
        """The values read from outside."""
        return self._order.inputs

    @property
    def outputs(self) -> tuple[Op, ...]:
        """The members that are read outside, or by the caller."""
        return self._order.outputs

    @functools.cached_property
    def key(self) -> str:
        """A hash of the structure, the key of plans and kernels. Equal keys have equal kernels."""
        return order_key(self.graph, self._order)

    @functools.cached_property
    def _order(self) -> Order:
        members = [self.graph.ops[i] for i in ids(self.bits)]
        free = free_bits(self.graph)
        needed = 0
        stack = list(members)
        while stack:
            for operand in stack.pop().operands:
                bit = 1 << operand.id
                elsewhere = not (self.bits | needed) & bit
                if elsewhere and (free & bit or spreads(operand)):
                    needed |= bit
                    stack.append(operand)
        outputs = [op for op in members if self._escapes(op)]
        ops = [self.graph.ops[i] for i in ids(self.bits | needed)]
        return canonical_order(self.graph, ops, outputs)

    def _escapes(self, op: Op) -> bool:
        """Whether the pattern must write `op`."""
        if op is self.graph.root:
            return True
        if spreads(op):
            return False  # other readers spread the smaller value again
        return self._read_outside(op)

    def _read_outside(self, op: Op) -> bool:
        """Whether anything outside reads `op`, or computes it from its operands."""
        return any(
            not self.bits >> user.id & 1
            or (spreads(user) and (user is self.graph.root or self._read_outside(user)))
            for user in self.graph.users[op.id]
        )


def loop_bits(graph: Graph, loop: Op) -> int:
    """A loop with its initial tuple and the elements of its result."""
    bits = 1 << loop.id
    if not loop.shape.is_tuple:
        return bits
    for user in graph.users[loop.id]:
        if user.opcode == "get-tuple-element":
            bits |= 1 << user.id
    [start] = loop.operands
    if start.opcode == "tuple" and graph.users[start.id] == (loop,):
        bits |= 1 << start.id
    return bits


#: A broadcast this many times as large as its operand is repeated by every reader.
SPREAD = 8


def spreads(op: Op) -> bool:
    """Whether `op` is the broadcast of a much smaller value, or index vectors that join a value
    with positions: cheaper to recompute than to read. Ops left to XLA are read."""
    if op.source.left:
        return False
    if op.opcode == "broadcast":
        return op.shape.size >= SPREAD * op.operands[0].shape.size
    if op.opcode == "reshape" and op.operands[0].opcode == "concatenate":
        return spreads(op.operands[0])
    if op.opcode != "concatenate" or op.dtype not in INTEGERS:
        return False
    return any(map(_is_position, op.operands))


def spread_values(op: Op) -> tuple[Op, ...]:
    """The operands of an op that `spreads`."""
    return tuple(value for o in op.operands for value in (spread_values(o) if spreads(o) else (o,)))


@of_graph
def spread_bits(graph: Graph) -> int:
    """Bitset of the ops that `spreads`."""
    return sum(1 << op.id for op in graph if spreads(op))


#: Whether ops depend on nothing but an iota.
_positions: WeakKeyDictionary[Op, bool] = WeakKeyDictionary()


def _is_position(op: Op) -> bool:
    """Whether `op` depends on nothing but an iota."""
    known = _positions
    stack = [] if op in known else [op]
    while stack:
        each = stack[-1]
        follows = each.operands if kind_of(each.opcode) in FREE_KINDS else ()
        waiting = [o for o in follows if o not in known]
        if waiting:
            stack += waiting
            continue
        known[stack.pop()] = each.opcode == "iota" or (
            any(known[o] for o in follows)
            and all(known[o] or o.opcode == "constant" or splat(o) is not None for o in follows)
        )
    return known[op]
