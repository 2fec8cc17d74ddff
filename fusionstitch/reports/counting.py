"""How many kernels a program is, and what they move: op by op, under XLA, and stitched.

Loop bodies count as often as they run, where the number of iterations can be read off the loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.unrolled import unrolled
from fusionstitch.costmodel.work import op_bytes
from fusionstitch.costmodel.xla_fusions import XlaPlan, fused_into, xla_fusions
from fusionstitch.costmodel.xla_scale import scaled_plan
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.semantics import READ_WHOLES, Kind, kind_of
from fusionstitch.hlo.trips import counted
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.plan.plan import Chosen, Plan
from fusionstitch.runtime.artifact import LOAD_TARGET

#: Ops that are no kernel although the table gives them work: a view of the same bytes.
_VIEWS = frozenset({"reshape", "bitcast"})
#: Ops that run other graphs, or nothing at all.
_CONTROL = frozenset(
    {
        *("while", "conditional", "call", "opt-barrier", "add-dependency", "domain"),
        *("async-start", "async-update", "async-done", "copy-done", "send-done", "recv-done"),
        *("all-reduce-done", "all-gather-done", "collective-permute-done"),
        *("partition-id", "replica-id", "layout-bitcast"),
    }
)
#: Custom calls that launch nothing: annotations, and what loads the kernels of stitched ones.
_SILENT = re.compile(
    f"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|annotate_.*|xla.sdy.*|{LOAD_TARGET}"
)


@dataclass(frozen=True)
class Count:
    """Kernels of one run of the program, and the bytes they move through DRAM."""

    kernels: int = 0
    bytes: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.kernels + other.kernels, self.bytes + other.bytes)

    def times(self, n: int) -> Count:
        return Count(self.kernels * n, self.bytes * n)


def entry(module: bytes) -> Graph:
    """The entry graph of a lowered program, its calls inlined."""
    return from_proto(inline_calls(module)).entry


def is_kernel(op: Op) -> bool:
    """Whether op-by-op execution launches a kernel for `op`."""
    kind = kind_of(op.opcode)
    if kind in (Kind.STRUCTURE, Kind.SOURCE) or op.opcode in _VIEWS or op.opcode in _CONTROL:
        return False
    return not (op.opcode == "custom-call" and _SILENT.fullmatch(op.attrs["target"]))


def unfused(program: Graph) -> Count:
    """One kernel per op that does something; constants and what follows from them are free."""
    total = Count()
    for graph, n in repeats(program).items():
        free = free_bits(graph)
        ops = [op for op in graph if is_kernel(op) and not free >> op.id & 1]
        total += Count(len(ops), sum(_moved(op) for op in ops)).times(n)
    return total


def ops(program: Graph) -> int:
    """Ops of the program that are neither parameters, constants nor tuples, each counted once."""
    structure = (Kind.STRUCTURE, Kind.SOURCE)
    return sum(kind_of(op.opcode) not in structure for graph in repeats(program) for op in graph)


def modelled_xla(plan: Plan, device: Device) -> Count:
    """What XLA is estimated to make of the program, and of the loops that the plan has whole."""
    total = _modelled(plan.program, device)
    for op in (op for one in plan.chosen for op in one.pattern.ops if op.opcode == "while"):
        for called in op.called:
            for graph, n in repeats(called).items():
                total += _modelled(graph, device).times(n * _trips(op))
    return total


def _modelled(graph: Graph, device: Device) -> Count:
    works, bits = fusable(graph, device)
    return _estimate(xla_fusions(works, bits)) + _outside(graph, bits)


def modelled_stitched(plan: Plan, device: Device, dropped: frozenset[int] = frozenset()) -> Count:
    """The plan's kernels and XLA's for what remains. `dropped` patterns (bitsets) stay XLA's."""
    works, bits = fusable(plan.graph, device)
    chosen = [c for c in plan.chosen if c.pattern.bits not in dropped]
    covered = 0
    for one in chosen:
        covered |= one.pattern.bits
    own = Count(len(chosen), sum(_dram_bytes(works, c) for c in chosen))
    return own + _estimate(xla_fusions(works, bits & ~covered)) + _outside(plan.graph, bits)


def _dram_bytes(works: GraphWork, chosen: Chosen) -> int:
    """What a pattern moves through DRAM: as of XLA's kernels, values between kernels that stay in
    L2 do not count."""
    pattern = chosen.pattern
    missed = works.missed(pattern.ops, pattern.inputs, pattern.outputs)
    return int(chosen.facts.cost.outside * missed)


def compiled(module: bytes) -> int:
    """Kernels of a module as XLA's GPU compiler leaves it: fusions, custom calls, copies, ..."""
    program = from_proto(module).entry
    return sum(n * sum(map(is_kernel, graph)) for graph, n in repeats(program).items())


def fusable(graph: Graph, device: Device, truth: XlaTruth | None = None) -> tuple[GraphWork, int]:
    """The works of a graph, by which times are scaled to `truth`, and the ops that XLA fuses, as a
    bitset."""
    fusible = fusible_ops(graph, device)
    hosts = fused_into(op for op, _ in fusible.refused)
    works, bits = GraphWork(graph, free_bits(graph), device), fusible.bits | hosts
    works.unrolled = unrolled(graph, bits)
    if truth is not None:
        scaled_plan(xla_fusions(works, bits), truth)
    return works, bits


def _estimate(plan: XlaPlan) -> Count:
    ops = plan.graph.ops
    kernels = [k for k in plan.kernels if any(ops[i].opcode not in _VIEWS for i in ids(k.bits))]
    # what a scatter writes over is filled or copied first
    filled = sum(ops[i].opcode == "scatter" for k in kernels for i in ids(k.bits))
    return Count(
        len(kernels) + filled, sum(plan.works.fused(k.bits, k.written).bytes for k in kernels)
    )


def _outside(graph: Graph, bits: int) -> Count:
    """Ops that neither side fuses: one kernel each."""
    inside = bits | free_bits(graph)
    rest = [op for op in graph if is_kernel(op) and not inside >> op.id & 1]
    return Count(len(rest), sum(_moved(op) for op in rest))


def _moved(op: Op) -> int:
    if kind_of(op.opcode) not in READ_WHOLES:
        return op_bytes(op)
    return op.shape.bytes + sum(operand.shape.bytes for operand in op.operands)


# ---- loops --------------------------------------------------------------------------------------


def repeats(program: Graph) -> dict[Graph, int]:
    """How often each graph that runs as kernels runs: the entry once, bodies per iteration."""
    found: dict[Graph, int] = {}

    def visit(graph: Graph, n: int) -> None:
        found[graph] = found.get(graph, 0) + n
        for op in graph:
            if op.opcode == "while":
                trips = _trips(op)
                for called in op.called:
                    visit(called, n * trips)
            elif op.opcode in ("conditional", "call", "async-start"):
                for called in op.called:
                    visit(called, n)

    visit(program, 1)
    return found


def runs_of(plans: Sequence[Plan]) -> dict[Graph, int]:
    """How often each planned graph of a program runs in a call; `plans` are those of its graphs,
    callees first."""
    return repeats(plans[-1].program) if plans else {}


def _trips(loop: Op) -> int:
    """Iterations of a loop; 1 where the data decides."""
    found = counted(loop)
    return (found.trips if found else 0) or 1
