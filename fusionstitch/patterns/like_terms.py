"""Sums of like terms: what an unrolled loop adds up step by step, as one op over all steps.

    dot(a, x) + dot(b, y) + ...    ->    dot(concatenate(a, b, ...), concatenate(x, y, ...))
    reduce(a) + reduce(b) + ...    ->    reduce(concatenate(a, b, ...))
    pad(a) + pad(b) + ...          ->    concatenate(a, b, ...)

The gradient of a weight is such a sum of dots, and that of a bias a sum of reductions. If an array
was split into parts, its gradient is a sum of pads. XLA keeps the terms separate: it writes and
reads a whole result per step, and computes every pad for every element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import FLOATS, Graph, Op
from fusionstitch.hlo.joining import Joint, Sum
from fusionstitch.hlo.rewrite import is_positive_zero, splat
from fusionstitch.patterns.fusible import gemm_flops

#: The fewest like terms that are joined; fewer are fused unchanged.
FEWEST = 4


def joined_sums(graph: Graph, device: Device) -> list[Sum]:
    """The sums of `graph` with terms worth joining. Dots are, if one library GEMM does them all and
    their operands are smaller than their results. Reductions are, if dots join their operands
    anyway. Pads to adjacent positions always are."""
    sums = list(_sums(graph))
    joints: list[list[Joint]] = []
    orders: dict[tuple[int, frozenset[int]], tuple[Op, ...]] = {}
    for one in sums:
        terms = one.free(graph)
        found = [Joint(tuple(run), ((0, dim),)) for dim, run in _runs(terms)]
        for dots in _alike(terms, "dot"):
            if _is_one_gemm(dots, device):
                sides = (dots[0].attrs["lhs_contract"][0], dots[0].attrs["rhs_contract"][0])
                found.append(Joint(tuple(dots), tuple(enumerate(sides))))
                for side, dim in enumerate(sides):
                    read = tuple(dot.operands[side] for dot in dots)
                    orders.setdefault((dim, frozenset(x.id for x in read)), read)
        joints.append(found)
    for one, found in zip(sums, joints, strict=True):
        for reduces in _alike(one.free(graph), "reduce"):
            by_operand = {reduce.operands[0].id: reduce for reduce in reduces}
            for dim in reduces[0].attrs["dimensions"]:
                order = orders.get((dim, frozenset(by_operand)))
                if order is not None and len(by_operand) == len(reduces) == len(order):
                    found.append(Joint(tuple(by_operand[x.id] for x in order), ((0, dim),)))
                    break
    return [one.joined(found) for one, found in zip(sums, joints, strict=True) if found]


@dataclass
class _Terms:
    """An add, the adds that only it reads, directly or indirectly, and the terms of all of them."""

    root: Op
    adds: list[Op]
    terms: list[Op]
    awaited: set[int]

    def free(self, graph: Graph) -> list[Op]:
        """The terms that nothing else reads."""
        return [
            op
            for op in self.terms
            if _read_once(graph, op)
            and not (op.control or op.source.left)
            and op.origin not in self.awaited
        ]

    def joined(self, joints: Sequence[Joint]) -> Sum:
        gone = {op for joint in joints for op in joint.terms}
        rest = tuple(op for op in self.terms if op not in gone)
        return Sum(self.root, tuple(self.adds), rest, tuple(joints))


def _sums(graph: Graph) -> Iterator[_Terms]:
    """Sums of floats, each as large as possible."""
    awaited = {origin for op in graph for origin in op.control}
    inside: set[Op] = set()
    for root in reversed(graph.ops):
        if root in inside or not _is_add(root) or root.origin in awaited:
            continue
        found = _Terms(root, [], [], awaited)
        waiting = list(reversed(root.operands))
        while waiting:
            op = waiting.pop()
            if _is_add(op) and _read_once(graph, op) and op.origin not in awaited:
                found.adds.append(op)
                waiting += reversed(op.operands)
            else:
                found.terms.append(op)
        inside.update(found.adds)
        if len(found.terms) >= FEWEST:
            yield found


def _is_add(op: Op) -> bool:
    return op.opcode == "add" and op.dtype in FLOATS and not (op.control or op.source.left)


def _read_once(graph: Graph, op: Op) -> bool:
    users = graph.users[op.id]
    return len(users) == 1 and users[0].operands.count(op) == 1 and op is not graph.root


def _alike(terms: Sequence[Op], opcode: str) -> list[list[Op]]:
    """The terms of an opcode that differ only in their operands, if there are enough."""
    groups: dict[object, list[Op]] = {}
    for op in terms:
        if op.opcode != opcode:
            continue
        if opcode == "reduce" and (
            op.attrs["reducer"] != "add" or not is_positive_zero(splat(op.operands[1]))
        ):
            continue
        key = tuple(o.shape for o in op.operands), tuple(op.attrs.items())
        groups.setdefault(key, []).append(op)
    return [group for group in groups.values() if len(group) >= FEWEST]


def _is_one_gemm(dots: Sequence[Op], device: Device) -> bool:
    """Whether a library can do the sum of `dots` as one GEMM, joining their operands moves less
    than adding their results, and there is a dim to join along."""
    dot = dots[0]
    if not dot.attrs["lhs_contract"] or dot.attrs["lhs_batch"]:
        return False
    large = len(dots) * gemm_flops(dot) >= device.large_gemm_flops
    return large and sum(o.shape.bytes for o in dot.operands) <= dot.shape.bytes


def _range(op: Op) -> tuple[int, int, int] | None:
    """(dim, first, end) of the range where a zero pad along one dim puts its operand, or None."""
    if op.opcode != "pad" or any(op.attrs["interior"]):
        return None
    edges = list(zip(op.attrs["low"], op.attrs["high"], strict=True))
    padded = [dim for dim, edge in enumerate(edges) if any(edge)]
    if len(padded) != 1 or min(edges[padded[0]]) < 0:
        return None
    if not is_positive_zero(splat(op.operands[1])):
        return None
    dim = padded[0]
    first = edges[dim][0]
    return dim, first, first + op.operands[0].dims[dim]


def _runs(terms: Sequence[Op]) -> list[tuple[int, list[Op]]]:
    """(dim, pads with adjacent operands along it), if there are enough."""
    ranges = [(range_, number) for number, op in enumerate(terms) if (range_ := _range(op))]
    runs: dict[tuple[int, int], list[list[Op]]] = {}  # (dim, end) -> runs that end there
    for (dim, first, end), number in sorted(ranges):
        before = runs.get((dim, first))
        run = [*before.pop(0), terms[number]] if before else [terms[number]]
        runs.setdefault((dim, end), []).append(run)
    found = [(dim, run) for (dim, _), ends in runs.items() for run in ends]
    return [(dim, run) for dim, run in found if len(run) >= FEWEST]
