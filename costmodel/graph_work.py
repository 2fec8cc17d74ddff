"""The work of many sets of ops of one graph: per-op amounts are worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.evaluations import NOT_UNROLLED, Evaluations
from fusionstitch.costmodel.scale import Scale
from fusionstitch.costmodel.work import (
    READS_PART,
    Work,
    arithmetic,
    computed_elements,
    needed_bytes,
    partial,
    touched_bytes,
)
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of


class GraphWork:
    """`fused_work` for bitsets of ops of `graph`, fast enough for thousands of candidates.

    Ops in `free` (constants, iotas and what follows from them alone) are computed wherever they
    are read: they cost neither traffic nor arithmetic. Values between kernels that fit into their
    share of L2 count as L2 traffic; parameters and results of the graph as DRAM traffic. What ops
    in `spread` give, who reads it computes again from something smaller. `guessed`: what XLA fuses
    is not known.
    """

    def __init__(
        self, graph: Graph, free: int, device: Device, spread: int = 0, guessed: bool = True
    ):
        self.graph = graph
        self.free = free
        self.spread = spread
        self.device = device
        #: microseconds that XLA takes for each loop, by the bitset of its ops
        self.loops: dict[int, float] = {}
        #: the same for loops that were unrolled before planning
        self.unrolled: dict[int, float] = {}
        #: by what the times of XLA's kernels are off, where the program was measured
        self.scale: Scale | None = None
        limit = int(device.l2_bytes * device.warm_share)
        results = {op.id for op in (graph.root, *graph.root.operands) if _is_result(graph, op)}
        self._bytes = [op.shape.bytes for op in graph]
        self._read_warm = [
            op.shape.bytes < limit and kind_of(op.opcode) is not Kind.STRUCTURE for op in graph
        ]
        self._written_warm = [self._read_warm[op.id] and op.id not in results for op in graph]
        self._takers = sum(1 << op.id for op in graph if op.opcode in READS_PART)
        self._amounts = [_amounts(arithmetic(op, device.instructions)) for op in graph]
        self._reads = [[(o.id, n) for o, n in _reads(op) if not free >> o.id & 1] for op in graph]
        self._operands = [tuple({o.id: None for o in op.operands}) for op in graph]
        self._readers = [sum(1 << user.id for user in users) for users in graph.users]
        #: bitsets of the ops that decide how a kernel runs, and the elements of each op
        self.dots = sum(1 << op.id for op in graph if kind_of(op.opcode) is Kind.DOT)
        self.reductions = sum(1 << op.id for op in graph if kind_of(op.opcode) is Kind.REDUCTION)
        self.scatters = sum(1 << op.id for op in graph if op.opcode == "scatter")
        self.sizes = [op.shape.size for op in graph]
        self.evaluations = Evaluations(graph, free, device, guessed)
        self.not_unrolled = sum(1 << op.id for op in graph if op.opcode in NOT_UNROLLED)
        #: per op, the bitset of its operands
        self.operands = [sum(1 << i for i in read) for read in self._operands]

    def fused(self, bits: int, written: int) -> Work:
        """The ops `bits` as one kernel that writes the values `written`."""
        counts = self._counts(bits, written) if bits & self._takers else {}
        touched: dict[int, int] = {}
        total = [0] * _UNITS
        members = list(ids(bits))
        inside = set(members)
        for i in members:
            amounts, reads = self._amounts[i], self._reads[i]
            if i in counts:
                amounts, reads = self._partial(i, counts[i])
            for unit, amount in amounts:
                total[unit] += amount
            for operand, size in reads:
                if operand not in inside:
                    touched[operand] = touched.get(operand, 0) + size
        flops, flops64, special, int_ops, dots, tensor = total
        read, read_warm = 0, 0
        for i, size in touched.items():
            size = min(size, self._bytes[i])
            read += size
            read_warm += size if self._read_warm[i] else 0
        wrote = sum(self._bytes[i] for i in ids(written))
        wrote_warm = sum(self._bytes[i] for i in ids(written) if self._written_warm[i])
        return Work(
            bytes_read=read - read_warm,
            bytes_written=wrote - wrote_warm,
            l2_bytes=read_warm + wrote_warm,
            flops=flops,
            flops64=flops64,
            special=special,
            int_ops=int_ops,
            dot_flops=dots,
            tensor_flops=tensor,
        )

    def _counts(self, bits: int, written: int) -> dict[int, int]:
        """op id -> elements computed, for the ops of which not all are."""
        ops = [self.graph.ops[i] for i in ids(bits)]
        counts = computed_elements(ops, (self.graph.ops[i] for i in ids(written & bits)))
        return {op.id: count for op, count in counts.items() if count != op.shape.size}

    def _partial(self, i: int, count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Amounts and reads of `count` elements of an op."""
        op = self.graph.ops[i]
        reads = [(o, needed_bytes(op, self.graph.ops[o], count)) for o, _ in self._reads[i]]
        work = arithmetic(op, self.device.instructions)
        return _amounts(partial(work, count, op.shape.size)), reads

    def chain(self, bits: int) -> int:
        """Reductions and dots on the longest dependent path inside `bits`."""
        stages = bits & (self.dots | self.reductions)
        if stages.bit_count() < 2:
            return stages.bit_count()
        depth: dict[int, int] = {}
        for i in ids(bits):
            longest = 0
            for operand in self._operands[i]:
                before = depth.get(operand, 0)
                if before > longest:
                    longest = before
            if longest or stages >> i & 1:
                depth[i] = longest + (stages >> i & 1)
        return max(depth.values())

    def warm(
        self, ops: Iterable[Op], inputs: Sequence[Op], outputs: Sequence[Op]
    ) -> tuple[int, int, int]:
        """Of a pattern's inputs and outputs: bytes read that stay in L2, bytes written that do,
        and bytes of inputs that `ops` leave out because they read slices."""
        whole = {op.id: op.shape.bytes for op in inputs}
        read = dict.fromkeys(whole, 0)
        for op in ops:
            for operand in dict.fromkeys(op.operands):
                if operand.id in read:
                    part = op.shape.bytes if op.opcode == "slice" else whole[operand.id]
                    read[operand.id] = min(whole[operand.id], read[operand.id] + part)
        return (
            sum(size for i, size in read.items() if self._read_warm[i]),
            sum(op.shape.bytes for op in outputs if self._written_warm[op.id]),
            sum(whole.values()) - sum(read.values()),
        )

    def missed(self, ops: Iterable[Op], inputs: Sequence[Op], outputs: Sequence[Op]) -> float:
        """The share of what a pattern reads of its inputs and writes that crosses DRAM."""
        read, written, unread = self.warm(ops, inputs, outputs)
        moved = sum(op.shape.bytes for op in (*inputs, *outputs)) - unread
        return 1 - (read + written) / moved if moved else 0.0

    def outputs(self, bits: int) -> int:
        """The members of `bits` whose values are read outside it or are the graph's result."""
        outside, found = ~bits, bits & 1 << self.graph.root.id
        for i in ids(bits):
            if self._readers[i] & outside:
                found |= 1 << i
        return found


def _is_result(graph: Graph, op: Op) -> bool:
    return op is graph.root or graph.root.opcode == "tuple"


def _reads(op: Op) -> list[tuple[Op, int]]:
    return [(operand, touched_bytes(op, operand)) for operand in dict.fromkeys(op.operands)]


#: What `_amounts` counts.
_UNITS = 6


def _amounts(w: Work) -> list[tuple[int, int]]:
    """The operations of each unit that has any."""
    arithmetic = w.flops, w.flops64, w.special, w.int_ops
    units = *arithmetic, w.dot_flops, w.tensor_flops
    return [(unit, amount) for unit, amount in enumerate(units) if amount]
