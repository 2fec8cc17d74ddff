"""Plans of a module's graphs, with what code generation says of the kernels of patterns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import Looped, compared, draft
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.compiler.naming import graph_key, kernel_name
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import SCOPES, KernelFacts
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

#: What makes the kernel of a pattern, and what code generation says of kernels by `Pattern.key`.
Make = Callable[[Pattern, CodegenOptions], Draft | Looped]
Facts = dict[str, KernelFacts | Verdict]


class GraphPlanner:
    """Plans one graph: `plan` is the best one, at first by the scores alone.

    It is that of the graph, with what code generation says about each pattern asked for; or that of
    the graph with copies of what lies between dots, where the copies are worth it. `tuned` are
    known schedules, `measure` gives known times, `truth` says how long XLA takes for the program
    that the graph is of. The kernels of what is chosen are left in `drafts`
    as far as they are.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        options: Options,
        in_loop: bool = False,
        tuned: Tuned = NOTHING,
        measure: Measure | None = None,
        drafts: dict[Pattern, Draft | Looped] | None = None,
        truth: XlaTruth | None = None,
    ):
        self._drafts = {} if drafts is None else drafts
        #: by `Pattern.key`, with the pattern that it is of: its names are in the text
        self._known: dict[str, tuple[Pattern, Draft | Looped]] = {}
        #: what was said of structures: of the first kernel of each, and of the fastest. The graph
        #: with copies has most of them again, and the answer depends on nothing else
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
        """What made `plan`."""
        return self._planners[self._best]

    def revise(self, findings: Findings) -> None:
        """Has the present plan made again, as `findings` judge its patterns."""
        self._plans[self._best] = self.planner.revise(findings)
        self._forget()

    @property
    def _best(self) -> int:
        """Where the best plan is; that with copies has to be worth more than the copies."""
        first, *again = self._plans
        if again and again[0].modelled_us < min(first.modelled_us, first.xla_us, again[0].xla_us):
            return 1
        return 0

    def _recomputed(self, graph: Graph) -> Recomputed | None:
        try:
            return recomputed(graph, self.device)
        except Exception:  # the plan there is stays
            logger.warning("recomputing between dots failed", exc_info=True)
            return None

    def _inspect(self, pattern: Pattern) -> KernelFacts | Verdict:
        """What the kernel of a pattern would do; it is kept."""
        return self._ask(pattern, self._draft, self._said[0])

    def _compare(self, pattern: Pattern) -> KernelFacts | Verdict:
        """The same of the fastest kernel, which is kept instead."""

        def fastest(pattern: Pattern, settings: CodegenOptions) -> Draft | Looped:
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

    def _draft(self, pattern: Pattern, settings: CodegenOptions) -> Draft | Looped:
        """The kernel of a pattern, as far as its cost estimate needs it. Raises CodegenError."""
        name = kernel_name(pattern.ops, pattern.key)
        part = region(name, pattern.ops, pattern.inputs, pattern.outputs)
        try:
            return draft(part, self.device, settings)
        except CodegenError:
            if settings.template is None:
                raise
            # what a template asks for is refused where its kernel is made, with the reason
            return draft(part, self.device, replace(settings, template=None))

    def _forget(self) -> None:
        """Keeps the kernels of what is chosen, and no others: large programs have thousands."""
        chosen = {one.pattern for plan in self._plans for one in plan.chosen}
        for pattern in list(self._drafts):
            if any(planner.graph is pattern.graph for planner in self._planners):
                del self._drafts[pattern]
        self._known = {key: one for key, one in self._known.items() if one[0] in chosen}
        self._drafts |= dict(self._known.values())


def plan_graphs(
    module: Module, planner: Callable[[Graph, bool], GraphPlanner]
) -> dict[Graph, GraphPlanner]:
    """The graphs that run as kernels of their own and what plans each: one for all that are equal
    but for names. `planner` is asked with whether they run in a loop."""
    known: dict[tuple[str, bool], GraphPlanner] = {}
    planned: dict[Graph, GraphPlanner] = {}
    repeated = _repeated(module)
    waiting = [module.entry]
    while waiting:
        graph = waiting.pop()
        if graph in planned:
            continue
        in_loop = graph in repeated
        key = graph_key(graph), in_loop
        if key not in known:
            known[key] = planner(graph, in_loop)
        planned[graph] = known[key]
        waiting += _called(graph, known[key].plan)
    return planned


def _called(graph: Graph, plan: Plan) -> list[Graph]:
    """The graphs that run as kernels of their own in the course of `graph`: those in loops that
    become one kernel do not. The plan may be that of an equal graph."""
    whole = 0
    for one in plan.chosen:
        whole |= one.pattern.bits
    calls = (op for op in graph if op.opcode in ("while", "conditional", "call"))
    return [called for op in calls if not whole >> op.id & 1 for called in op.called]


def _repeated(module: Module) -> set[Graph]:
    """The graphs that run once per iteration of a loop, what they call included."""
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
    """The plan of an equal graph, for this one: positions agree, so bitsets carry over."""
    if plan.program is graph:
        return plan
    given = None
    if plan.given is not None:
        copies = recomputed(graph, device)
        assert copies is not None  # as it was for an equal graph
        given, graph = graph, copies.graph
    chosen = tuple(replace(c, pattern=replace(c.pattern, graph=graph)) for c in plan.chosen)
    rejected = tuple(replace(r, graph=graph) for r in plan.rejected)
    return replace(plan, graph=graph, given=given, chosen=chosen, rejected=rejected)
