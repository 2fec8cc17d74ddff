"""From a graph to its plan: candidates, scores, the integer program, the check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.unrolled import unrolled
from fusionstitch.costmodel.xla_fusions import fused_into, xla_fusions
from fusionstitch.costmodel.xla_scale import scaled_plan
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph
from fusionstitch.options import Options
from fusionstitch.patterns.candidates import POINTER_BYTES, Candidates, candidates, collect
from fusionstitch.patterns.contract import union
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.packing import packing
from fusionstitch.patterns.pattern import spread_bits
from fusionstitch.plan.findings import Findings
from fusionstitch.plan.ilp import SolverLimits
from fusionstitch.plan.loops import stitchable_loops
from fusionstitch.plan.merging import neighbours
from fusionstitch.plan.plan import Plan, Rejected
from fusionstitch.plan.scores import (
    MARGIN_SHARE,
    Measure,
    MeasuredScorer,
    ModelScorer,
    PaperScorer,
    Scorer,
    is_loop,
)
from fusionstitch.plan.search import Inspect, Search

#: How often unions of chosen patterns are offered as additional candidates.
MERGE_ROUNDS = 2


def plan(
    graph: Graph,
    device: Device,
    options: Options,
    inspect: Inspect,
    *,
    measure: Measure | None = None,
    scorer: Scorer | None = None,
    in_loop: bool = False,
    offered: Sequence[int] = (),
    truth: XlaTruth | None = None,
) -> Plan:
    """The fusion plan of `graph` on `device`, see `Planner`."""
    return Planner(
        graph,
        device,
        options,
        inspect,
        measure=measure,
        scorer=scorer,
        in_loop=in_loop,
        offered=offered,
        truth=truth,
    ).plan()


class Planner:
    """Finds the fusion plan of `graph` on `device`; `offered` are additional candidates.

    `inspect` is called once per distinct structure. `compare` looks for a faster kernel and takes
    longer; it is called once per structure that would be chosen. `measure` returns measured times
    of a pattern, or None (paper 4.3). `scorer` replaces the one that options.scorer names.
    `in_loop` says that the graph is the body of a while loop. If the program's time under XLA was
    measured, XLA's times are scaled to that `truth`. Methods raise PlanError if cycle cuts do not
    end, and VerifyError if the plan fails its check.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        options: Options,
        inspect: Inspect,
        *,
        measure: Measure | None = None,
        scorer: Scorer | None = None,
        in_loop: bool = False,
        offered: Sequence[int] = (),
        compare: Inspect | None = None,
        truth: XlaTruth | None = None,
    ):
        self.graph, self.device, self.options = graph, device, options
        self.in_loop = in_loop
        fusible = fusible_ops(graph, device)
        works = GraphWork(graph, free_bits(graph), device, spread_bits(graph))
        hosts = fused_into(op for op, _ in fusible.refused)
        self.fusible = fusible.bits
        loops = stitchable_loops(graph, works, options, inspect, truth)
        works.loops.update((pattern.bits, us) for pattern, us in loops.priced)
        whole = union(pattern.bits for pattern, _ in loops.priced)
        works.unrolled = unrolled(graph, fusible.bits | hosts)
        self.xla = scaled_plan(xla_fusions(works, fusible.bits | hosts | whole), truth)
        # measured patterns need not win by more than the error of the model
        margin = 0.0 if options.scorer == "guarded" else MARGIN_SHARE
        model = ModelScorer(works, self.xla, in_loop, margin)
        self.call_us = model.call_us
        limits = SolverLimits(max_nodes=options.max_solver_nodes)
        chooses = scorer or make_scorer(options, model, measure)
        # the paper's scores are not times
        xla_us = 0.0 if options.scorer == "paper" else self.xla.us
        self.search = search = Search(graph, inspect, chooses, limits, compare, xla_us)
        search.rejected = [
            Rejected(graph, 1 << op.id, "op", v.reason, v.facts) for op, v in fusible.refused
        ]
        search.facts.update(loops.facts)
        search.add(tuple(pattern for pattern, _ in loops.priced), loops.refused)
        found = candidates(graph, fusible.bits, self.units, device, options)
        search.add(found.patterns, found.refused)
        own = self._collect((bits & fusible.bits, "offered") for bits in offered)
        search.add(own.patterns, own.refused)

    @property
    def units(self) -> list[int]:
        """The ops of each of XLA's kernels."""
        return [kernel.bits for kernel in self.xla.kernels]

    def plan(self) -> Plan:
        """The plan by the scores alone."""
        search, options = self.search, self.options
        solution = search.run()
        pointers = self.device.parameter_bytes // POINTER_BYTES
        for _ in range(MERGE_ROUNDS if options.packing else 0):
            found = [one.pattern for one in search.chosen(solution)]
            chosen = [pattern.bits for pattern in found if not is_loop(pattern)]
            rest = [unit & self.fusible & ~union(chosen) for unit in self.units]
            pieces = chosen + [unit for unit in rest if unit]
            unions = chain(
                packing(self.graph, pieces, pointers, options.max_pattern_ops),
                neighbours(self.graph, chosen),
            )
            merged = self._collect(unions)
            if not merged.patterns:
                break
            search.add(merged.patterns, ())
            solution = search.run()
        return search.result(search.settle(solution, self.xla), self.xla)

    def revise(self, findings: Findings) -> Plan:
        """The plan from the same candidates, judged by `findings`."""
        self.search.judge_by(findings)
        return self.search.result(self.search.run(), self.xla)

    def _collect(self, sets: Iterator[tuple[int, str]]) -> Candidates:
        seen = frozenset(self.search.by_bits)
        return collect(self.graph, self.fusible, sets, self.device, self.options, seen)


def make_scorer(options: Options, model: ModelScorer, measure: Measure | None) -> Scorer:
    """The scorer that `options.scorer` names; times from `measure`, if given, take precedence."""
    base: ModelScorer | PaperScorer = PaperScorer(model) if options.scorer == "paper" else model
    if measure is None:
        return base
    return MeasuredScorer(measure, base, model.call_us)
