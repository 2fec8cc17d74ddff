"""What crosses the border of a set of ops: the bytes that it must read or write.

Of an input, what is needed is read once; a result is written once. An array that is updated in
place moves as many bytes as change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.costmodel.least_work import RUN, invariant_elements, iterations, live, results
from fusionstitch.costmodel.work import READS_PART, computed_elements, needed_bytes
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import ITEM_BYTES, Graph, Op, of_graph
from fusionstitch.hlo.semantics import READ_WHOLES, Kind, kind_of
from fusionstitch.hlo.trips import carried

#: Ops that replace a part of their first operand.
UPDATES = frozenset({"dynamic-update-slice", "scatter"})


@dataclass(frozen=True)
class Border:
    """Bytes by the values that are read, and those that are written."""

    read: Mapping[Op, int]
    written: Mapping[Op, int]

    @property
    def bytes(self) -> int:
        """Both together."""
        return sum(self.read.values()) + sum(self.written.values())


def border(
    graph: Graph, ops: Sequence[Op], outputs: Iterable[Op], donated: Collection[int] = ()
) -> Border:
    """That of `ops` (topological, without tuples and parameters) that give `outputs`. Parameters
    of the graph whose numbers are `donated` may be overwritten."""
    inside = set(ops)
    outputs = [op for op in outputs if op in inside]
    replaced = {op: base for op in outputs if (base := _overwrites(graph, op, inside, donated))}
    bases = set(replaced.values())
    whole = [*outputs, *(op for op in ops if kind_of(op.opcode) in READ_WHOLES)]
    counts = computed_elements(ops, whole)
    free, read = free_ops(graph), dict[Op, int]()
    for op in ops:
        for operand in dict.fromkeys(op.operands):
            for spread, size in _values(op, operand, counts[op]):
                value = spread
                while value.opcode == "broadcast" and value not in inside:
                    value = value.operands[0]  # whoever reads it spreads it again
                if value not in inside and value not in bases and value not in free:
                    read[value] = min(read.get(value, 0) + size, value.shape.bytes)
    written = {}
    for op in outputs:
        written[op] = op.shape.bytes
        if op in replaced:
            changed, joined = _changed(op, inside)
            written[op] = min(changed, op.shape.bytes)
            if joined:
                read[replaced[op]] = min(joined, op.shape.bytes)
    return Border({op: size for op, size in read.items() if size}, written)


@of_graph
def free_ops(graph: Graph) -> frozenset[Op]:
    """Constants, counts, and what follows from these alone: whoever reads it has it."""
    free: set[Op] = set()
    for op in graph:
        kind = kind_of(op.opcode)
        follows = kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and bool(op.operands)
        if kind is Kind.SOURCE or (follows and free.issuperset(op.operands)):
            free.add(op)
    return frozenset(free)


def _values(op: Op, operand: Op, count: int) -> Iterable[tuple[Op, int]]:
    """What `count` elements of `op` read of an operand, value by value of a tuple."""
    if op.opcode == "while":
        return _of_loop(op)
    if op.opcode in RUN:
        # a branch reads what it likes: nothing is certain
        return ()
    if operand.opcode == "tuple":
        return ((value, value.shape.bytes) for value in operand.operands)
    if op.opcode == "get-tuple-element":
        return ((operand, op.shape.bytes),)
    return ((operand, _needed(op, operand, count)),)


def _needed(op: Op, operand: Op, count: int) -> int:
    """Bytes that `count` elements of an op read. Which ones is not known: perhaps neighbours."""
    size = needed_bytes(op, operand, count)
    if count == op.shape.size or kind_of(op.opcode) in (Kind.REDUCTION, Kind.DOT):
        return size
    return min(size, count * ITEM_BYTES.get(operand.dtype, 1))


def _of_loop(loop: Op) -> Iterable[tuple[Op, int]]:
    """What all iterations read of the values that a loop starts from."""
    [start] = loop.operands
    if start.opcode != "tuple":
        return ((start, start.shape.bytes),)
    trips, invariant = iterations(loop), invariant_elements(loop)
    if trips == 0:
        return ()
    sizes = [_read_inside(loop, i, trips, i in invariant) for i in range(len(start.operands))]
    return zip(start.operands, sizes, strict=True)


def _read_inside(loop: Op, element: int, trips: int | None, same: bool) -> int:
    """Bytes of an element that a loop reads: of one that stays the `same`, what iterations take."""
    whole = loop.shape.elements[element].bytes
    if not same:
        return 0 if _is_written_over(loop, element, trips) else whole
    total = 0
    for graph in loop.called:
        for op in live(graph):
            for operand in dict.fromkeys(op.operands):
                if carried(operand) != element or op is graph.root:
                    continue
                taken = op.opcode in READS_PART and op.operands[0] is operand
                total += needed_bytes(op, operand, op.shape.size) * (trips or 1) if taken else whole
    return min(total, whole)


def _is_written_over(loop: Op, element: int, trips: int | None) -> bool:
    """Whether iterations write a whole element, part by part, and never read it."""
    body = loop.called[1]
    if trips is None:
        return False
    made = results(body)[element]
    if made.opcode != "dynamic-update-slice" or carried(made.operands[0]) != element:
        return False
    alone = len(body.users[made.operands[0].id]) == 1
    return alone and trips * made.operands[1].shape.bytes >= made.shape.bytes


def _overwrites(
    graph: Graph, op: Op, inside: Collection[Op], donated: Collection[int]
) -> Op | None:
    """The array outside that `op` updates and may overwrite, if there is one."""
    while op in inside and op.opcode in UPDATES and not op.shape.is_tuple:
        base = op.operands[0]
        if graph.users[base.id] != (op,) or base is graph.root:
            return None
        op = base
    if op in inside or op in free_ops(graph) or op.opcode == "broadcast":
        return None
    if op.opcode == "parameter":
        return op if op.attrs["index"] in donated else None
    return op


def _changed(op: Op, inside: Collection[Op]) -> tuple[int, int]:
    """Bytes that a chain of updates writes, and those of them that it reads before."""
    written = read = 0
    while op in inside:
        update = op.operands[1] if op.opcode == "dynamic-update-slice" else op.operands[-1]
        written += update.shape.bytes
        if op.opcode == "scatter" and op.attrs["reducer"] != REPLACE:
            read += update.shape.bytes
        op = op.operands[0]
    return written, read
