"""From a graph to its plan: candidates, scores, the integer program, the check.

Scores are asked for lazily. Every candidate has an upper bound that costs little; the program is
solved with the bounds, what it chose is inspected and scored, and it is solved again until
everything chosen has its true score. Since bounds are never too low, the result is the plan that
scoring every candidate would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.xla_fusions import XlaPlan, fused_into, xla_fusions
from fusionstitch.costmodel.xla_saved import saved_by_kernel, saved_together, saved_us
from fusionstitch.costmodel.xla_scale import scaled_plan
from fusionstitch.costmodel.xla_truth import MODELLED, SCALED, XlaTruth
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.verdict import Verdict
from fusionstitch.options import Options
from fusionstitch.patterns.candidates import POINTER_BYTES, Candidates, candidates, collect
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.packing import packing
from fusionstitch.patterns.pattern import Pattern, spread_bits
from fusionstitch.plan.checker import verify_plan, verify_times
from fusionstitch.plan.findings import Findings
from fusionstitch.plan.ilp import Program, Solution, SolverLimits
from fusionstitch.plan.loops import stitchable_loops
from fusionstitch.plan.merging import neighbours
from fusionstitch.plan.plan import Chosen, Plan, Rejected, Stats
from fusionstitch.plan.scores import (
    MARGIN_SHARE,
    Measure,
    MeasuredScorer,
    ModelScorer,
    PaperScorer,
    Score,
    Scorer,
    is_loop,
)

#: What code generation says about a pattern: the kernel it would make, or why it makes none.
Inspect = Callable[[Pattern], KernelFacts | Verdict]

#: Ops handed to code generation before planning gives up on the larger half of what it has not
#: looked at yet, a bound of its cost that is a count: some and more per op of the graph, and for
#: small graphs, which cost little, at least so many.
INSPECTED_ANYWAY, INSPECTED_PER_OP = 200, 0.25
LEAST_INSPECTED = 450

#: A plan that wins less than this share of what its patterns claim is solved again, so often.
TRUSTED_SHARE = 0.5
TOGETHER_ROUNDS = 4

#: What a pattern has to win, as a share of what chosen ones win in its place, to be their rival.
RIVAL_SHARE = 0.5

#: How often unions of chosen patterns are offered as further candidates.
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
    """The fusion plan of `graph` on `device`; `offered` are candidates that no generator makes.

    `inspect` is asked once per distinct structure, and `compare`, which looks for a faster kernel
    of the same and takes longer, once per structure that would be chosen. `measure` gives the
    measured times of a pattern, None where there are none (paper 4.3). `scorer` replaces what
    options.scorer names. `in_loop` says that the graph is the body of a while loop. XLA's times are
    scaled to the `truth` about the program, if it was measured. Its methods raise PlanError if
    cycle cuts do not end, VerifyError if the plan fails its check.
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
        whole = _union([pattern.bits for pattern, _ in loops.priced])
        self.xla = scaled_plan(xla_fusions(works, fusible.bits | hosts | whole), truth)
        # what is measured anyway need not win by more than the model is off
        margin = 0.0 if options.scorer == "guarded" else MARGIN_SHARE
        model = ModelScorer(works, self.xla, in_loop, margin)
        self.call_us = model.call_us
        limits = SolverLimits(max_nodes=options.max_solver_nodes)
        chooses = scorer or make_scorer(options, model, measure)
        self.search = search = _Search(graph, inspect, chooses, limits, compare)
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
        """What XLA's kernels hold."""
        return [kernel.bits for kernel in self.xla.kernels]

    def plan(self) -> Plan:
        """The plan by the scores alone."""
        search, options = self.search, self.options
        solution = search.run()
        pointers = self.device.parameter_bytes // POINTER_BYTES
        for _ in range(MERGE_ROUNDS if options.packing else 0):
            found = [search.patterns[i] for i in solution.chosen]
            chosen = [pattern.bits for pattern in found if not is_loop(pattern)]
            rest = [unit & self.fusible & ~_union(chosen) for unit in self.units]
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
        """The plan of the same candidates, as `findings` judge them."""
        self.search.judge_by(findings)
        return self.search.result(self.search.run(), self.xla)

    def _collect(self, sets: Iterator[tuple[int, str]]) -> Candidates:
        seen = frozenset(self.search.index)
        return collect(self.graph, self.fusible, sets, self.device, self.options, seen)


def make_scorer(options: Options, model: ModelScorer, measure: Measure | None) -> Scorer:
    """The scorer that `options.scorer` names, with `measure` laid over it if there is one."""
    base: ModelScorer | PaperScorer = PaperScorer(model) if options.scorer == "paper" else model
    if measure is None:
        return base
    return MeasuredScorer(measure, base, model.call_us)


def _union(sets: list[int]) -> int:
    found = 0
    for bits in sets:
        found |= bits
    return found


@dataclass
class _Search:
    """Candidates with what is known about each: a bound, then a score or a refusal."""

    graph: Graph
    inspect: Inspect
    scorer: Scorer
    limits: SolverLimits
    compare: Inspect | None = None
    patterns: list[Pattern] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    index: dict[int, int] = field(default_factory=dict)
    #: candidates that may still win: index -> bound, or true score once it is in `scores`
    values: dict[int, float] = field(default_factory=dict)
    scores: dict[int, Score] = field(default_factory=dict)
    #: structures of which `compare` was asked
    compared: set[str] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    facts: dict[str, KernelFacts | Verdict] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    #: what the scorer said of those in `scores`, before `findings` judged it
    said: dict[int, Score] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    inspected: int = 0
    inspected_ops: int = 0

    def __post_init__(self) -> None:
        self.program = Program(self.graph, [], self.limits)

    def add(
        self, patterns: tuple[Pattern, ...], refused: tuple[tuple[int, str, Verdict], ...]
    ) -> None:
        self.rejected += [
            Rejected(self.graph, b, rule, v.reason, v.facts) for b, rule, v in refused
        ]
        for pattern in patterns:
            number = len(self.patterns)
            self.index[pattern.bits] = number
            self.patterns.append(pattern)
            bound = self.scorer.bound(pattern)
            if bound > 0:
                self.values[number] = bound
            else:
                self._reject(number, "Even the best kernel would win nothing.", ("bound_us", bound))

    def _reject(self, number: int, reason: str, *facts: tuple[str, object]) -> None:
        self.values.pop(number, None)
        self.rejected.append(self._rejected(number, reason, *facts))

    def _rejected(self, number: int, reason: str, *facts: tuple[str, object]) -> Rejected:
        pattern = self.patterns[number]
        return Rejected(self.graph, pattern.bits, pattern.rule, reason, facts)

    def run(self) -> Solution:
        """Solves until every chosen pattern has its true score, that of its fastest kernel, and is
        confirmed."""
        self.program.bits = [pattern.bits for pattern in self.patterns]
        budget = max(LEAST_INSPECTED, INSPECTED_ANYWAY + INSPECTED_PER_OP * len(self.graph))
        while True:
            solution = self.program.solve(self.values)
            unscored = [i for i in solution.chosen if i not in self.scores]
            if not unscored:
                # all of them, before it is solved again
                compared = [self._compare(number) for number in solution.chosen]
                if any(compared):
                    continue
                covered = _union([self.patterns[i].bits for i in solution.chosen])
                wrong = [i for i in solution.chosen if not self._confirm(i, covered)]
                if not wrong:
                    return solution
            for number in unscored:
                self._evaluate(number)
            if self.inspected_ops > budget:
                self.inspected_ops = 0
                self._narrow()

    def _narrow(self) -> None:
        """Drops the candidates without a score that have more than half the ops of the largest."""
        waiting = sorted(self.values.keys() - self.scores.keys())
        sizes = {number: self.patterns[number].bits.bit_count() for number in waiting}
        largest = max(sizes.values(), default=0)
        for number in waiting:
            if 2 * sizes[number] > largest:
                self._reject(number, "Enough patterns of this size were tried before it.")

    def _evaluate(self, number: int) -> None:
        pattern = self.patterns[number]
        key = self.keys[number] = pattern.key
        self.inspected += 1
        if key not in self.facts:
            self.inspected_ops += len(pattern.ops)
            self.facts[key] = self.inspect(pattern)
        facts = self.facts[key]
        if isinstance(facts, Verdict):
            self._reject(number, facts.reason, *facts.facts)
            return
        self._take(number, self.scorer.score(pattern, facts))

    def _compare(self, number: int) -> bool:
        """Scores a candidate that would be chosen by its fastest kernel, and says whether that is
        another than was scored."""
        pattern, key = self.patterns[number], self.keys[number]
        if self.compare is None or key in self.compared:
            return False
        self.compared.add(key)
        found = self.compare(pattern)
        if isinstance(found, Verdict) or found == self.facts[key]:
            return False
        self.facts[key] = found
        for other, known in self.keys.items():
            if known == key and other in self.scores:
                self._take(other, self.scorer.score(self.patterns[other], found))
        return True

    def _take(self, number: int, score: Score) -> None:
        """Keeps a candidate with what the scorer says if it wins."""
        self.said[number] = score
        score = self.findings.judged(self.patterns[number], score)
        if score.wins:
            self.scores[number] = score
            self.values[number] = score.gain_us
        else:
            self.scores.pop(number, None)
            times = {"modelled_us": score.ours_us, "xla_us": score.xla_us}
            if (found := self.findings.measured.get(self.patterns[number].bits)) is not None:
                times |= {"measured_us": found.ours_us, "measured_xla_us": found.xla_us}
            self._reject(number, score.reason, *times.items())

    def rivals(self, chosen: Sequence[Chosen], xla: XlaPlan) -> Iterator[Chosen]:
        """Scored patterns that hold more than the chosen ones whose place they would take, and win
        at least `RIVAL_SHARE` of what these do: the largest first, none over another's ops."""
        taken = 0
        gains = {one.pattern.bits: one.score_us for one in chosen}
        sizes = {number: self.patterns[number].bits.bit_count() for number in self.scores}
        for number in sorted(self.scores, key=lambda i: (-sizes[i], -self.values[i], i)):
            bits = self.patterns[number].bits
            beaten = [other for other in gains if other & bits]
            if not beaten or sizes[number] <= max(other.bit_count() for other in beaten):
                continue
            least = RIVAL_SHARE * sum(map(gains.__getitem__, beaten))
            if not bits & taken and self.values[number] >= least:
                taken |= bits
                yield self._chosen(number, saved_us(xla, bits), xla)

    def score(self, pattern: Pattern) -> Score:
        """The score of a chosen pattern."""
        return self.scores[self.index[pattern.bits]]

    def told(self, bits: int) -> Score:
        """What the scorer said of it."""
        return self.said[self.index[bits]]

    def judge_by(self, findings: Findings) -> None:
        """Scores what has been scored anew, and from now on, as `findings` judge it."""
        self.findings = findings
        for number in list(self.scores):
            self._take(number, self.said[number])

    def _confirm(self, number: int, others: int) -> bool:
        """Whether a chosen pattern wins on closer look, which is taken once."""
        pattern, score = self.patterns[number], self.scores[number]
        if number in self.confirmed or self.scorer.confirms(pattern, score, others):
            self.confirmed.add(number)
            return True
        del self.scores[number]
        self._reject(number, "XLA's kernels around it would be as many, or take as long.")
        return False

    def settle(self, solution: Solution, xla: XlaPlan) -> Solution:
        """Solves again without the patterns that win nothing beside the others, if XLA's kernels
        around the whole plan say that little of it is won: scores add up only as long as no two
        patterns spare XLA the same work."""
        for _ in range(TOGETHER_ROUNDS):
            covered = _union([self.patterns[i].bits for i in solution.chosen])
            ours = sum(self.scores[i].ours_us for i in solution.chosen)
            won = xla.us - xla_fusions(xla.works, xla.bits & ~covered).us - ours
            claimed = sum(self.values[i] for i in solution.chosen)
            weak = self._weak(solution, xla) if won < TRUSTED_SHARE * claimed else []
            if not weak:
                break
            for number in weak:
                self.scores.pop(number)
                self._reject(number, "Beside the other patterns it wins nothing.")
            solution = self.run()
        return solution

    def _weak(self, solution: Solution, xla: XlaPlan) -> list[int]:
        """The chosen patterns that win nothing beside those that win more: no kernel of XLA's is
        spared more than its whole time."""
        weak = []
        left = {number: kernel.us for number, kernel in enumerate(xla.kernels)}
        for chosen in sorted(solution.chosen, key=lambda i: (-self.values[i], i)):
            claims = saved_by_kernel(xla, self.patterns[chosen].bits)
            granted = {number: min(us, left[number]) for number, us in claims.items()}
            lost = sum(claims.values()) - sum(granted.values())
            if lost >= self.values[chosen]:
                weak.append(chosen)
                continue
            for number, us in granted.items():
                left[number] -= us
        return weak

    def result(self, solution: Solution, xla: XlaPlan) -> Plan:
        spared = saved_together(xla, [self.patterns[i].bits for i in solution.chosen])
        left = xla.us - sum(spared)
        pairs = zip(solution.chosen, spared, strict=True)
        chosen = tuple(self._chosen(number, us, xla) for number, us in pairs)
        beaten = [
            self._rejected(
                number,
                "Other patterns over its ops win more.",
                ("score_us" if number in self.scores else "bound_us", self.values[number]),
            )
            for number in sorted(self.values.keys() - set(solution.chosen))
        ]
        verify_plan(self.graph, [c.pattern for c in chosen], [c.score_us for c in chosen])
        found = Plan(
            graph=self.graph,
            chosen=chosen,
            rejected=(*self.rejected, *beaten),
            cuts=solution.cuts,
            xla_us=left + sum(c.spared_us for c in chosen),
            modelled_us=left + sum(c.modelled_us for c in chosen),
            xla_source=MODELLED if xla.works.scale is None else SCALED,
            stats=Stats(
                candidates=len(self.patterns),
                inspected=self.inspected,
                distinct=len(self.facts),
                solves=solution.solves,
                optimal=solution.optimal,
            ),
        )
        verify_times(found)
        return found

    def _chosen(self, number: int, spared_us: float, xla: XlaPlan) -> Chosen:
        """A pattern that spares XLA `spared_us` of its modelled time, in the scorer's currency."""
        pattern, score = self.patterns[number], self.scores[number]
        facts = self.facts[self.keys[number]]
        assert isinstance(facts, KernelFacts)
        modelled = saved_us(xla, pattern.bits)
        if modelled > 0:
            spared_us *= score.xla_us / modelled  # 1 unless XLA's time was measured
        measured = self.findings.measured.get(pattern.bits)
        return Chosen(
            pattern,
            score.gain_us,
            score.ours_us,
            score.xla_us,
            facts,
            spared_us,
            measured,
            score.source,
        )
