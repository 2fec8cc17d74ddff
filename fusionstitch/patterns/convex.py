"""Sets of ops as bitsets: convexity, dependence, connected parts."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.hlo.graph import Graph, ids, of_graph


@of_graph
def predecessors(graph: Graph) -> tuple[int, ...]:
    """Per op, the bitset of its operands and control predecessors."""
    by_origin = {op.origin: op.id for op in graph if op.origin is not None}
    found = []
    for op in graph:
        bits = 0
        for operand in op.operands:
            bits |= 1 << operand.id
        for origin in op.control:
            before = by_origin.get(origin)
            if before is not None and before < op.id:
                bits |= 1 << before
        found.append(bits)
    return tuple(found)


@of_graph
def operands(graph: Graph) -> tuple[int, ...]:
    """Per op, the bitset of its operands."""
    return tuple(sum(1 << i for i in {o.id for o in op.operands}) for op in graph)


@of_graph
def arrays(graph: Graph) -> int:
    """The ops whose value has more than one element."""
    return sum(1 << op.id for op in graph if op.shape.size > 1)


@of_graph
def users(graph: Graph) -> tuple[int, ...]:
    """Per op, the bitset of the ops that read it."""
    found = []
    for readers in graph.users:
        bits = 0
        for reader in readers:
            bits |= 1 << reader.id
        found.append(bits)
    return tuple(found)


def ancestors(graph: Graph, bits: int) -> int:
    """All ops that `bits` depend on, including `bits`."""
    reach, found = graph.reach, 0
    while bits & ~found:
        # the last uncovered op covers most of the others: a few steps instead of one per op
        found |= reach[(bits & ~found).bit_length() - 1]
    return found


def borders(graph: Graph, bits: int) -> int:
    """The direct predecessors of `bits` outside of it."""
    before, found = predecessors(graph), 0
    for i in ids(bits):
        found |= before[i]
    return found & ~bits


def escaping(graph: Graph, bits: int) -> int:
    """The members of `bits` that are read outside or are the graph's result."""
    readers, root, found = users(graph), graph.root.id, 0
    for i in ids(bits):
        if readers[i] & ~bits or i == root:
            found |= 1 << i
    return found


def is_convex(graph: Graph, bits: int, border: int | None = None) -> bool:
    """Whether no path leaves `bits` and comes back. The last op of such a path outside `bits` is a
    direct predecessor of a member, so only these (`border`, if known) are checked."""
    reach = graph.reach
    before = borders(graph, bits) if border is None else border
    return not any(reach[i] & bits for i in ids(before))


def components(graph: Graph, bits: int, shared_inputs: bool = False) -> Iterator[int]:
    """The weakly connected parts of `bits`, by their first op. With `shared_inputs`, ops that read
    the same outside array (not a scalar) count as connected."""
    readers, read = users(graph), operands(graph)
    outside = arrays(graph) & ~bits if shared_inputs else 0
    rest = bits
    while rest:
        part, waiting = 0, rest & -rest
        while waiting:
            i = waiting.bit_length() - 1
            part |= 1 << i
            near = read[i] | readers[i]
            for shared in ids(read[i] & outside):
                near |= readers[shared]
                outside ^= 1 << shared
            waiting = (waiting | near & rest) & ~part
        yield part
        rest &= ~part
