"""What runs one after the other: a graph as kernels and ops, under XLA and stitched."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.work import Work
from fusionstitch.costmodel.xla_fusions import XlaPlan, xla_fusions
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.reports.counting import fusable, is_kernel

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitch, Stitched
    from fusionstitch.plan.plan import Plan

#: Kinds of units that are kernels.
STITCHED, XLA, OTHER = "stitched", "xla", "other"
#: Kinds that are none: parameters; what makes up results and views; loops and branches.
INPUT, PLAIN, CONTROL = "input", "plain", "control"


@dataclass(frozen=True, eq=False)
class Unit:
    """Some ops of a graph, as a bitset, each of which is in one unit.

    `us` is modelled (XLA's: scaled to what the program took, where that was measured), for one run;
    None for what the model has no time for. `hero` says what
    decides the schedule of a kernel of XLA's. `work` is the work of a kernel.
    """

    kind: str
    bits: int
    hero: str = ""
    us: float | None = None
    work: Work | None = None
    stitch: Stitch | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether it is launched."""
        return self.kind in (STITCHED, XLA, OTHER)


def under_xla(graph: Graph, found: Stitched) -> list[Unit]:
    """What XLA is estimated to make of a graph, in an order in which it can run."""
    works, bits = fusable(graph, found.device, found.truth)
    return _ordered(graph, [*_of_xla(works, xla_fusions(works, bits)), *_rest(graph, bits)])


def stitched(plan: Plan, found: Stitched) -> list[Unit]:
    """The kernels of a plan that were carried out, and XLA's for what remains."""
    graph = plan.graph
    works, bits = fusable(graph, found.device, found.truth)
    carried = {id(one.chosen): one for one in found.stitches}
    units, covered = [], 0
    for chosen in plan.chosen:
        if one := carried.get(id(chosen)):
            covered |= chosen.pattern.bits
            work, us = chosen.facts.cost.work, chosen.modelled_us
            units.append(Unit(STITCHED, chosen.pattern.bits, us=us, work=work, stitch=one))
    rest = xla_fusions(works, bits & ~covered)
    return _ordered(graph, [*units, *_of_xla(works, rest), *_rest(graph, bits | covered)])


def _of_xla(works: GraphWork, plan: XlaPlan) -> Iterable[Unit]:
    """XLA's kernels; an op that several of them compute is in the first one."""
    seen = 0
    for kernel in plan.kernels:
        own = kernel.bits & ~seen
        seen |= own
        work = works.fused(kernel.bits, kernel.written)
        if own:
            yield Unit(XLA, own, kernel.hero.value, kernel.us, work)


def _rest(graph: Graph, bits: int) -> Iterable[Unit]:
    """What nobody fuses: each op alone, but parameters, which are one unit."""
    free = free_bits(graph)
    inputs = 0
    for op in graph:
        bit = 1 << op.id
        if bit & bits:
            continue
        if op.opcode == "parameter":
            inputs |= bit
        elif op.called and op.opcode in ("while", "conditional", "call", "async-start"):
            yield Unit(CONTROL, bit, op.opcode)
        elif is_kernel(op) and not bit & free:
            yield Unit(OTHER, bit, op.opcode)
        elif not bit & free and kind_of(op.opcode) is not Kind.SOURCE:
            yield Unit(PLAIN, bit, op.opcode)
    if inputs:
        yield Unit(INPUT, inputs)


def _ordered(graph: Graph, units: Sequence[Unit]) -> list[Unit]:
    """Units after what they read; where ops that were dealt to the first of several kernels make
    a circle, as they stand in the graph."""
    first = [min(ids(unit.bits), default=0) for unit in units]
    before = dependences(graph, units)
    after: list[list[int]] = [[] for _ in units]
    waits = [len(own) for own in before]
    for number, own in enumerate(before):
        for other in own:
            after[other].append(number)
    ready = [(first[n], n) for n, count in enumerate(waits) if not count]
    blocked = sorted((first[n], n) for n, count in enumerate(waits) if count)
    heapq.heapify(ready)
    order: list[int] = []
    done = [False] * len(units)
    blocked.reverse()
    while ready or blocked:
        number = (heapq.heappop(ready) if ready else blocked.pop())[1]
        if done[number]:
            continue
        done[number] = True
        order.append(number)
        for other in after[number]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (first[other], other))
    return [units[n] for n in order]


def dependences(graph: Graph, units: Sequence[Unit]) -> list[set[int]]:
    """For each unit the numbers of those it reads from."""
    home = {i: n for n, unit in enumerate(units) for i in ids(unit.bits)}
    return [
        {home[o.id] for op in members(graph, unit) for o in op.operands if o.id in home} - {n}
        for n, unit in enumerate(units)
    ]


def members(graph: Graph, unit: Unit) -> Iterable[Op]:
    """The ops of a unit."""
    return (graph.ops[i] for i in ids(unit.bits))
