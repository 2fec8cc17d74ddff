"""Plans of a module's graphs, with what code generation reports about the kernels of patterns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fusionstitch.codegen.generate import Planned, compared, draft
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.compiler.naming import graph_key, kernel_name
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import SCOPES, KernelFacts
from fusionstitch.costmodel.unrolled import note, noted, unrolled
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.errors import reason
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Module
from fusionstitch.hlo.verdict import Verdict, forbid
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.patterns.recompute import Recomputed, recomputed
from fusionstitch.plan.checker import verify_times
from fusionstitch.plan.findings import Findings
from fusionstitch.plan.plan import Plan
from fusionstitch.plan.planner import Planner
from fusionstitch.plan.scores import Measure
from fusionstitch.runtime.apart import check
from fusionstitch.tuning.tuned import NOTHING, Tuned

logger = logging.getLogger(__name__)

#: Makes the kernel of a pattern; and what code generation reports, by `Pattern.key`.
Make = Callable[[Pattern, CodegenOptions], Planned]
Facts = dict[str, KernelFacts | Verdict]


class GraphPlanner:
    """Plans one graph: `plan` is the best plan, at first by the scores alone.

    There are two candidates. One is the plan of the graph, for which code generation is asked about
    each pattern. The other is that of the graph with recomputed copies of ops between dots, if the
    copies pay. `tuned` are known schedules, `measure` returns known times, and `truth` says how
    long XLA takes for the graph's program. The kernels of chosen patterns are left in `drafts`, as
    far as they were made.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        options: Options,
        in_loop: bool = False,
        tuned: Tuned = NOTHING,
        measure: Measure | None = None,
        drafts: dict[Pattern, Planned] | None = None,
        truth: XlaTruth | None = None,
    ):
        self._drafts = {} if drafts is None else drafts
        #: by `Pattern.key`, with the pattern whose names are in the text
        self._known: dict[str, tuple[Pattern, Planned]] = {}
        #: reports by structure: of the first kernel of each, and of the fastest. The graph with
        #: copies has most structures in common, and the answer depends on nothing else
        self._said: tuple[Facts, Facts] = {}, {}
        self.device, self.options, self.tuned, self.in_loop = device, options, tuned, in_loop
        plan = partial(
            Planner,
            device=device,
            options=options,
            inspect=self._inspect,
            in_loop=in_loop,
            compare=self._compare,
            truth=truth,
        )
        self._planners = [plan(graph, measure=measure)]
        self._plans = [self._planners[0].plan()]
        if (other := self._recomputed(graph)) is not None:
            note(other.graph, noted(graph))
            again = plan(other.graph, measure=measure, offered=other.families)
            self._planners.append(again)
            self._plans.append(again.plan())
        self._forget()

    @property
    def plan(self) -> Plan:
        first, best = self._plans[0], self._plans[self._best]
        if best is first:
            return first
        found = best.instead_of(first.graph, first.xla_us)
        verify_times(found)
        return found

    @property
    def planner(self) -> Planner:
        """The planner that made `plan`."""
        return self._planners[self._best]

    def revise(self, findings: Findings) -> None:
        """Makes the present plan again, with its patterns judged by `findings`."""
        self._plans[self._best] = self.planner.revise(findings)
        self._forget()

    @property
    def _best(self) -> int:
        """Index of the best plan; the one with copies must gain more than the copies cost."""
        first, *again = self._plans
        if again and again[0].modelled_us < min(first.modelled_us, first.xla_us, again[0].xla_us):
            return 1
        return 0

    def _recomputed(self, graph: Graph) -> Recomputed | None:
        try:
            return recomputed(graph, self.device)
        except Exception:  # the existing plan stays
            logger.warning("recomputing between dots failed", exc_info=True)
            return None

    def _inspect(self, pattern: Pattern) -> KernelFacts | Verdict:
        """What the kernel of a pattern would do. The kernel is stored."""
        return self._ask(pattern, self._draft, self._said[0])

    def _compare(self, pattern: Pattern) -> KernelFacts | Verdict:
        """The same for the fastest kernel, which is stored instead."""

        def fastest(pattern: Pattern, settings: CodegenOptions) -> Planned:
            of, known = self._known.get(pattern.key, (pattern, None))
            own = known if of == pattern else None
            return compared(own or self._draft(pattern, settings), self.device)

        return self._ask(pattern, fastest, self._said[1])

    def _ask(self, pattern: Pattern, make: Make, said: Facts) -> KernelFacts | Verdict:
        if pattern.key not in said:
            said[pattern.key] = self._answer(pattern, make)
        return said[pattern.key]

    def _answer(self, pattern: Pattern, make: Make) -> KernelFacts | Verdict:
        check()
        settings = self.tuned.settings(pattern, self.options)
        try:
            found = make(pattern, settings)
        except CodegenError as error:
            return forbid(str(error))
        except Exception as error:  # a defect in one pattern must not cost the others
            logger.debug("inspecting a pattern failed", exc_info=True)
            return forbid(reason(error))
        self._known[pattern.key] = pattern, found
        scope = found.facts.scope
        if SCOPES.index(scope) > SCOPES.index(self.options.scope):
            return forbid("Its values cross a wider scope than Options.scope.", scope=scope)
        return found.facts

    def _draft(self, pattern: Pattern, settings: CodegenOptions) -> Planned:
        """The kernel of a pattern, made as far as its cost estimate needs. Raises CodegenError."""
        name = kernel_name(pattern.ops, pattern.key)
        part = region(name, pattern.ops, pattern.inputs, pattern.outputs)
        try:
            return draft(part, self.device, settings)
        except CodegenError:
            if settings.template is None:
                raise
            # an impossible template is reported with its reason when the kernel is made
            return draft(part, self.device, replace(settings, template=None))

    def _forget(self) -> None:
        """Drops all kernels but the chosen ones: large programs have thousands."""
        chosen = {one.pattern for plan in self._plans for one in plan.chosen}
        for pattern in list(self._drafts):
            if any(planner.graph is pattern.graph for planner in self._planners):
                del self._drafts[pattern]
        self._known = {key: one for key, one in self._known.items() if one[0] in chosen}
        self._drafts |= dict(self._known.values())


def plan_graphs(
    module: Module, planner: Callable[[Graph, bool], GraphPlanner]
) -> dict[Graph, GraphPlanner]:
    """The graphs that run as kernels of their own, and the planner of each; graphs equal but for
    names share one. `planner` is passed whether the graph runs in a loop."""
    known: dict[object, GraphPlanner] = {}
    planned: dict[Graph, GraphPlanner] = {}
    repeated = _repeated(module)
    waiting = [module.entry]
    while waiting:
        graph = waiting.pop()
        if graph in planned:
            continue
        in_loop = graph in repeated
        key = graph_key(graph), in_loop, tuple(unrolled(graph, -1).items())
        if key not in known:
            known[key] = planner(graph, in_loop)
        planned[graph] = known[key]
        waiting += _called(graph, known[key].plan)
    return planned


def _called(graph: Graph, plan: Plan) -> list[Graph]:
    """The graphs that `graph` runs as kernels of their own, without those in loops that become one
    kernel. The plan may be that of an equal graph."""
    whole = 0
    for one in plan.chosen:
        whole |= one.pattern.bits
    calls = (op for op in graph if op.opcode in ("while", "conditional", "call"))
    return [called for op in calls if not whole >> op.id & 1 for called in op.called]


def _repeated(module: Module) -> set[Graph]:
    """The graphs that run once per iteration of a loop, including those they call."""
    found: set[Graph] = set()
    stack = [
        g for graph in module.graphs for op in graph if op.opcode == "while" for g in op.called
    ]
    while stack:
        graph = stack.pop()
        if graph not in found:
            found.add(graph)
            stack += [g for op in graph for g in op.called]
    return found


def moved(plan: Plan, graph: Graph, device: Device) -> Plan:
    """The plan of an equal graph, transferred to this one: ids agree, so bitsets carry over."""
    if plan.program is graph:
        return plan
    given = None
    if plan.given is not None:
        copies = recomputed(graph, device)
        assert copies is not None  # as for the equal graph
        given, graph = graph, copies.graph
    chosen = tuple(replace(c, pattern=replace(c.pattern, graph=graph)) for c in plan.chosen)
    rejected = tuple(replace(r, graph=graph) for r in plan.rejected)
    return replace(plan, graph=graph, given=given, chosen=chosen, rejected=rejected)
