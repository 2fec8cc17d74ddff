"""Chains of products of many rows with small matrices, with all that is computed of the same rows.

    h = tanh(x w + b)     loss = sum(f(h v))     dv = h^T d     dw = x^T e

Libraries do such products one by one, and each row of each goes through memory. Here all ops that
have the rows are one pattern: forward, what the loss is, backward, and what sums up all rows. Ops
that wait for a sum over all rows are in a later one. `codegen/layers` makes kernels of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.layers.thin import rows_of_layer
from fusionstitch.codegen.layers.values import MOST_COLUMNS
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import dot_flops
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.patterns.convex import ancestors, components, users
from fusionstitch.patterns.pattern import Offer

RULE = "layers"
#: As many products of the same matrix may have been merged to one.
MOST_MERGED = 4


def layers(graph: Graph, fusible: int, device: Device) -> Iterator[Offer]:
    """The layers of a graph: all of the same rows, the forward part, and without products that sum
    over all rows."""
    by_rows: dict[int, int] = {}
    for op in graph:
        rows = rows_of_layer(op, device)
        if rows and _multiplies_floats(op) and not op.control and not op.source.left:
            by_rows[rows] = by_rows.get(rows, 0) | 1 << op.id
    for rows, dots in _joined(by_rows).items():
        found = _Rows(graph, fusible, rows)
        for phase in found.phases(found.around(dots)):
            for bits in components(graph, phase):
                if any(_is_large(graph.ops[i], device) for i in ids(bits & dots)):
                    yield from (Offer(part, RULE, True) for part in found.parts(bits, dots))


def _joined(by_rows: dict[int, int]) -> dict[int, int]:
    """Products by their rows, with those of a few times as many, which XLA merged."""
    found: dict[int, int] = {}
    for rows in sorted(by_rows):
        few = next((n for n in found if rows % n == 0 and rows // n <= MOST_MERGED), rows)
        found[few] = found.get(few, 0) | by_rows[rows]
    return found


def _is_large(dot: Op, device: Device) -> bool:
    return dot_flops(dot) >= device.large_gemm_flops


def _multiplies_floats(dot: Op) -> bool:
    kinds = {o.dtype for o in (dot, *dot.operands)}
    plain = dot.attrs.get("algorithm", "unset") == "unset"
    return kinds <= {"f32", "bf16", "f16"} and plain and dot.attrs.get("precision") != "highest"


class _Rows:
    """The ops of a graph that have so many rows, or sum them up."""

    def __init__(self, graph: Graph, fusible: int, rows: int):
        self.graph, self.rows = graph, rows
        self.having = sum(1 << op.id for op in graph if fusible >> op.id & 1 and self._has(op))
        self.summing = sum(1 << op.id for op in graph if fusible >> op.id & 1 and self._sums(op))
        self.small = sum(1 << op.id for op in graph if fusible >> op.id & 1 and self._is_small(op))

    def _has(self, op: Op) -> bool:
        size, kind = op.shape.size, kind_of(op.opcode)
        plain = kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) or op.opcode == "reduce"
        whole = plain and not op.shape.is_tuple and size % self.rows == 0
        return whole and 0 < size // self.rows <= MOST_COLUMNS

    def _sums(self, op: Op) -> bool:
        return op.opcode == "reduce" and self._has_rows(op.operands[0]) and not self._has_rows(op)

    def _has_rows(self, op: Op) -> bool:
        size = op.shape.size
        return not op.shape.is_tuple and size % self.rows == 0 and size > 0

    def _is_small(self, op: Op) -> bool:
        kind = kind_of(op.opcode)
        few = op.shape.size <= MOST_COLUMNS * MOST_COLUMNS and not op.shape.is_tuple
        return few and kind in (Kind.ELEMENTWISE, Kind.MOVEMENT) and not self._has_rows(op)

    def around(self, dots: int) -> int:
        """Some dots with all ops of their rows that are connected with them by such ops, and what
        makes the matrices alone."""
        graph, readers = self.graph, users(self.graph)
        may = dots | self.having | self.summing
        found, todo = 0, dots
        while todo:
            i = todo.bit_length() - 1
            todo &= ~(1 << i)
            found |= 1 << i
            beside = readers[i]
            for operand in graph.ops[i].operands:
                beside |= 1 << operand.id
            todo |= beside & may & ~found
        for op in reversed(graph.ops):
            read = readers[op.id]
            if self.small >> op.id & 1 and read and not read & ~found:
                found |= 1 << op.id
        return found

    def phases(self, bits: int) -> Iterator[int]:
        """The parts of a set that wait for a sum over all rows, or for an op outside of it, each
        for one more."""
        graph = self.graph
        while bits:
            ends = bits & self._ends()
            touched = late = 0
            for op in graph.ops:
                for operand in op.operands:
                    one = 1 << operand.id
                    if (touched | bits) & one:
                        touched |= 1 << op.id
                    if late & one or ends & one or touched & one & ~bits:
                        late |= 1 << op.id
            yield bits & ~late
            if not bits & late or not bits & ~late:
                return
            bits &= late

    def _ends(self) -> int:
        dots = (op for op in self.graph if op.opcode == "dot" and not self._has_rows(op))
        return self.summing | sum(1 << op.id for op in dots)

    def parts(self, bits: int, dots: int) -> Iterator[int]:
        """A set with what is computed of its sums alone, as it is, and smaller ones."""
        graph, ends = self.graph, self._ends()
        yield self._with_late(bits)
        yield bits
        without = bits & ~(dots & ends)
        yield from self._connected(without)
        totals = bits & self.summing & ~dots
        forward = 0
        for i in ids(totals):
            if graph.ops[i].shape.size == 1:
                forward |= ancestors(graph, 1 << i)
        if forward:
            yield from self._connected(bits & forward)
            yield from self._connected(bits & ~forward)

    def _connected(self, bits: int) -> Iterator[int]:
        for part in components(self.graph, bits):
            if any(self.graph.ops[i].opcode == "dot" for i in ids(part)):
                yield part

    def _with_late(self, bits: int) -> int:
        """A set with the small values that are computed of what sums up its rows."""
        graph, ends = self.graph, self._ends() & bits
        late, touched = ends, bits
        for op in graph.ops:
            read = sum(1 << o.id for o in dict.fromkeys(op.operands))
            if not read & touched or bits >> op.id & 1:
                continue
            touched |= 1 << op.id
            if self.small >> op.id & 1 and not read & touched & ~late:
                late |= 1 << op.id
        return bits | late
