"""Which values of a region are computed once, and read where they are stored.

Reductions, products, and elementwise values that would cost more to compute again for each reader.
Where threads may wait for each other once more, those too for which that pays.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.loops.dominance import DominanceTree
from fusionstitch.codegen.loops.stream import NOTHING, Stream
from fusionstitch.codegen.rewrite.exchanges import READ
from fusionstitch.codegen.rewrite.extents import needs_stage, reduced_size
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Operations a dot may spend on computing an element of an operand again and again; an operand
#: that would take more is computed once.
DOT_REPEATS = 32
#: Operations per element from which a value read by several stages is computed once.
RECOMPUTE_LIMIT = 64
#: Most indices at which a stage may recompute inlined values, each op at each index but its first.
#: Values that read two elements of others, level by level (a scan as a tree), double with each
#: level.
MOST_AGAIN = 1 << 11
#: Rows for which a streamed dot computes an element of an operand once.
BLOCK_ROWS = 128


@dataclass(frozen=True)
class Synchronisation:
    """What it costs that all threads wait for each other: `wait` operations of each lane, of which
    there are `lanes`. A lone block of so many `threads`, 0 for others, has idle ones."""

    wait: float
    lanes: int
    threads: int = 0

    def pays(self, cost: float, size: int, reads: Sequence[float]) -> bool:
        """Whether a value of a `size` is rather computed once, of which `reads` are the shares that
        are read at each place: an element takes `cost` operations. A stencil would compute elements
        again; of a value that is cut into parts, one thread would compute one of each while others
        are idle: half of the time is won by not reading what it is made of for each."""
        if size <= self.threads and cost * (len(reads) - 1) >= self.wait / 2:
            return True
        return cost * size * (sum(reads) - 1) >= self.wait * self.lanes


@dataclass(frozen=True)
class Again:
    """An elementwise value that is read at several indices, or computed once.

    Attributes:
        op: the value
        cost: operations to compute an element, including what it is made of
        reads: at how many indices an element is read
    """

    op: Op
    cost: float
    reads: float

    @property
    def spared(self) -> float:
        """Operations that computing it once spares."""
        return self.cost * self.op.shape.size * max(0.0, self.reads - 1)


#: More than any threshold. What reads a value twice doubles its effort, op after op.
_EFFORT_LIMIT = 1e18


def materialized(
    graph: Graph,
    stream: Stream = NOTHING,
    synchronisation: Synchronisation | None = None,
    spread: bool = False,
    short: bool = False,
) -> frozenset[int]:
    """Ids of the ops that are computed once: reductions, dots, and elementwise values too costly to
    compute again for each of several stages, or for each column of a dot. What lies between the
    dots of a stream is computed once anyway. Where threads may wait for each other once more
    (`synchronisation`), also values that are read at several indices, where recomputing them takes
    longer. With `spread` an element counts as read at each index that it is broadcast to. With
    `short` also values whose recomputation only makes code longer, as in each piece of what they
    are a part of."""
    readers = reading_stages(graph)
    outputs = {o.id for o in graph.root.operands}
    dear = {op.id for op in graph.ops if op.opcode == "dot" or annotations_of(op).matches}
    stored: set[int] = set()
    weight: dict[int, float] = {}
    #: the same, with what is read; and how many values are computed and read
    cost: dict[int, float] = {}
    values: dict[int, float] = {}
    tree = DominanceTree(graph.ops[:-1], dict.fromkeys(graph.root.operands))
    for op in graph.ops[:-1]:
        if needs_stage(op) or annotations_of(op).once:
            stored.add(op.id)
        inherited = sum(weight[o.id] for o in dict.fromkeys(op.operands) if o.id not in stored)
        weight[op.id] = min(inherited + _effort(op), _EFFORT_LIMIT)
        if synchronisation is not None:
            cost[op.id] = _summed(op, cost, stored, READ, _effort(op))
            values[op.id] = _summed(op, values, stored, 1, 1)
        if not _is_elementwise(op) or op.id in stream.between:
            continue
        again = max((_visits(graph.ops[r], op, stream) for r in readers[op.id] & dear), default=1.0)
        stages = len(readers[op.id]) + (op.id in outputs)
        if (
            weight[op.id] * (again - 1) >= DOT_REPEATS
            or (
                stages > 1
                and weight[op.id] >= RECOMPUTE_LIMIT
                and not _stands_in(op, readers, tree)
            )
            or (
                synchronisation is not None
                and (reads := _reads(graph, op, spread))
                and (
                    (cost[op.id] > READ and synchronisation.pays(cost[op.id], op.shape.size, reads))
                    or _too_often(values[op.id], _reads(graph, op, spread=short))
                )
            )
        ):
            stored.add(op.id)
    return frozenset(stored)


def _too_often(values: float, reads: Sequence[float]) -> bool:
    """Whether a value, which is computed with so many, would be computed at too many indices."""
    return sum(reads) > 1 and values * sum(reads) > MOST_AGAIN


def again(graph: Graph, stored: Container[int]) -> list[Again]:
    """The elementwise values that could as well be computed once, or are (`stored`), in the order
    of the graph."""
    readers = reading_stages(graph)
    outputs = {o.id for o in graph.root.operands}
    cost: dict[int, float] = {}
    found: list[Again] = []
    for op in graph.ops[:-1]:
        cost[op.id] = _summed(op, cost, stored, READ, _effort(op))
        if needs_stage(op) or not _is_elementwise(op):
            continue
        stages = len(readers[op.id]) + (op.id in outputs)
        reads = max(float(stages), sum(_reads(graph, op, spread=True)))
        if reads > 1 or op.id in stored:
            found.append(Again(op, cost[op.id], reads))
    return found


def _is_elementwise(op: Op) -> bool:
    """Whether an op makes elements of its own: records hold what others make."""
    return kind_of(op.opcode) is Kind.ELEMENTWISE and op.shape.rank > 0 and op.opcode != "record"


def _summed(
    op: Op, each: Mapping[int, float], stored: Container[int], read: float, own: float
) -> float:
    """What an op takes with what it is made of, where its operands take `each`, and what is an
    input or computed once is `read`."""
    if op.opcode == "parameter":
        return read
    made = [read if o.id in stored else each[o.id] for o in dict.fromkeys(op.operands)]
    return min(sum(made) + own, _EFFORT_LIMIT)


def _reads(graph: Graph, op: Op, spread: bool = False) -> list[float]:
    """The shares of a value that elementwise ops and sums read, for each index map to it. A
    broadcast counts once, as if threads reused the value, or with `spread` as often as it is
    larger."""
    found, todo = dict[int, float](), [op]
    while todo:
        one = todo.pop()
        for user in graph.users[one.id]:
            if kind_of(user.opcode) is Kind.MOVEMENT:
                todo.append(user)
            else:
                share = one.shape.size / max(1, op.shape.size)
                found[one.id] = share if spread else min(1.0, share)
    return list(found.values())


def reading_stages(graph: Graph) -> list[frozenset[int]]:
    """By op id, the stages (reductions, dots, outputs) that would compute the op inline."""
    outputs = {o.id for o in graph.root.operands}
    found: list[frozenset[int]] = [frozenset()] * len(graph.ops)
    for op in reversed(graph.ops[:-1]):
        reading: set[int] = set()
        for user in graph.users[op.id]:
            if user is graph.root:
                continue
            if needs_stage(user):
                reading.add(user.id)
            else:
                reading |= found[user.id] | ({user.id} if user.id in outputs else set())
        found[op.id] = frozenset(reading)
    return found


def _stands_in(op: Op, readers: list[frozenset[int]], tree: DominanceTree) -> bool:
    """Whether all that the stages need of `op` is one elementwise value further along, no larger:
    then that is the value to keep."""
    later = tree.immediate(op)
    while later is not None and readers[op.id] <= readers[later.id] | {later.id}:
        if kind_of(later.opcode) is Kind.ELEMENTWISE and later.shape.size <= op.shape.size:
            return True
        later = tree.immediate(later)
    return False


def _effort(op: Op) -> float:
    """Operations per element of an op, library routines at their real weight."""
    spec = spec_of(op.opcode)
    return spec.flops if kind_of(op.opcode) is Kind.ELEMENTWISE else 0


def _visits(stage: Op, op: Op, stream: Stream) -> float:
    """How often a dot would compute an element of its operand, or a sum of what matches one of the
    updates (codegen/rewrite/scatter_sums.py)."""
    rows = BLOCK_ROWS if stage.id in stream.dots else 1
    return max(1.0, stage.shape.size * reduced_size(stage) / max(1, op.shape.size) / rows)
