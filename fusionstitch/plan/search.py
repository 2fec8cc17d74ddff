"""The lazy search for the best plan over the candidates of one graph.

Every candidate has a cheap upper bound, which becomes less as patterns like it are scored
(`expectations.py`). The integer program is solved with these values, and what it chose is inspected
and scored. This repeats until everything chosen has its true score, or the best plan of scored
patterns is almost as good. A second search doubts the expectations, and ends when it has found
nothing better for a while.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.xla_fusions import XlaPlan, xla_fusions
from fusionstitch.costmodel.xla_saved import saved_by_kernel, saved_together, saved_us
from fusionstitch.costmodel.xla_truth import MODELLED, SCALED
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.verdict import Verdict, forbid
from fusionstitch.patterns.contract import union
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.candidate import Candidate
from fusionstitch.plan.checker import verify_plan, verify_times
from fusionstitch.plan.expectations import Expectations
from fusionstitch.plan.findings import Findings
from fusionstitch.plan.ilp import Program, Solution, SolverLimits
from fusionstitch.plan.plan import Chosen, Plan, Rejected, Stats
from fusionstitch.plan.scores import Score, Scorer

#: What code generation reports about a pattern: its kernel, or why there is none.
Inspect = Callable[[Pattern], KernelFacts | Verdict]

#: After code generation was given this many ops, planning drops the larger half of the candidates
#: not yet inspected: a constant plus a share of the ops of the graph, and at least a minimum for
#: small graphs, which cost little. It bounds the cost by a count, not by time.
INSPECTED_ANYWAY, INSPECTED_PER_OP = 200, 0.25
LEAST_INSPECTED = 450

#: A plan that gains less than this share of what its patterns claim is solved again, at most this
#: many times.
TRUSTED_SHARE = 0.5
TOGETHER_ROUNDS = 4

#: How much of what candidates are expected to fall short by is believed, and how many are inspected
#: in vain before the search ends, each time that one is made.
TRUSTED, DOUBTED = (1.0, math.inf), (0.25, 6)

#: Why a possible pattern is not chosen.
BEATEN = "Other patterns over its ops win more."
UNLIKELY = "By what similar patterns win, others over its ops are expected to win more."
HARDLY_MORE = "With it the program would be faster by less than a hundredth."

#: A plan may be slower than the best one by this share of the program's time: the trial that
#: follows cannot see less.
ENOUGH_SHARE = 0.01

#: The required gain of a larger pattern, as a share of what the chosen ones that it would replace
#: gain; and how many of these are examined as closely as chosen ones.
LARGER_SHARE = 0.5
MOST_LARGER = 2

#: How much more than the chosen patterns in its place the best possible kernel of a pattern has to
#: win, and of XLA's time, for its fastest kernel to be looked for although the default one loses;
#: and what that one may take at most, by XLA's time: few kernels become so much faster.
PROMISING, PROMISED_SHARE, MOST_OVER = 1.5, 0.25, 2.5


@dataclass
class Search:
    """The candidates of a graph, in the order in which they were offered.

    `inspect` is called once per distinct structure. `compare` looks for a faster kernel and takes
    longer; it is called once per structure that would be chosen.
    """

    graph: Graph
    inspect: Inspect
    scorer: Scorer
    limits: SolverLimits
    compare: Inspect | None = None
    #: XLA's time for the graph, in the unit of scores; 0 to search for the best plan
    xla_us: float = 0.0
    candidates: list[Candidate] = field(default_factory=list)
    #: rejected candidates, in order
    rejected: list[Rejected] = field(default_factory=list)
    by_bits: dict[int, Candidate] = field(default_factory=dict)
    #: results of code generation by structure
    facts: dict[str, KernelFacts | Verdict] = field(default_factory=dict)
    #: structures for which `compare` was called
    compared: set[str] = field(default_factory=set)
    findings: Findings = field(default_factory=Findings)
    expectations: Expectations = field(default_factory=Expectations)
    #: how much of them is believed
    trust: float = 1.0
    #: how many more candidates may be inspected in vain, and the best plan so far, in microseconds
    patience: float = math.inf
    best_us: float = 0.0
    inspected: int = 0
    inspected_ops: int = 0
    larger_left: int = MOST_LARGER
    #: candidates whose possible gain is too small for a closer look
    passed_over: dict[Candidate, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = Program(self.graph, [], self.limits)

    def add(self, patterns: Sequence[Pattern], refused: Sequence[tuple[int, str, Verdict]]) -> None:
        """Adds the generators' offers, and what they must not offer."""
        self.rejected += [
            Rejected(self.graph, b, rule, v.reason, v.facts) for b, rule, v in refused
        ]
        for pattern in patterns:
            short_us = self.trust * self.expectations.short_us(pattern.bits)
            one = Candidate(pattern, self.scorer.bound(pattern), short_us)
            self.candidates.append(one)
            self.by_bits[pattern.bits] = one
            if one.bound <= 0:
                reason = "Even the best kernel would win nothing."
                self._reject(one, forbid(reason, bound_us=one.bound))

    def chosen(self, solution: Solution) -> list[Candidate]:
        """The candidates of a solution."""
        return [self.candidates[number] for number in solution.chosen]

    def run(self) -> Solution:
        """The best plan, twice: of what expectations leave, and with these doubted."""
        self.program.bits = [one.bits for one in self.candidates]
        self._believe(*TRUSTED)
        self._searched()
        self._believe(*DOUBTED)
        return self._searched()

    def _believe(self, trust: float, patience: float) -> None:
        for one in self.candidates:
            one.short_us *= trust / self.trust
        self.trust, self.patience = trust, patience

    def _searched(self) -> Solution:
        """Solves until every chosen pattern has its true score, that of its fastest kernel, and is
        confirmed."""
        budget = max(LEAST_INSPECTED, INSPECTED_ANYWAY + INSPECTED_PER_OP * len(self.graph))
        while True:
            solution = self._solved()
            chosen = self.chosen(solution)
            unscored = self._worth_a_look(chosen)
            if not unscored:
                # all of them, before solving again
                compared = [self._compare(one) for one in chosen]
                if any(compared) or self._compare_larger(chosen) or self._compare_refused(chosen):
                    continue
                covered = union(one.bits for one in chosen)
                wrong = [one for one in chosen if not self._confirm(one, covered)]
                if not wrong:
                    return solution
            for one in unscored:
                self._evaluate(one)
            if self.inspected_ops > budget:
                self.inspected_ops = 0
                self._narrow()

    def settle(self, solution: Solution, xla: XlaPlan) -> Solution:
        """Solves again without the patterns that gain nothing beside the others, if XLA's kernels
        around the whole plan show a small gain. Scores add up only if no two patterns spare XLA the
        same work."""
        for _ in range(TOGETHER_ROUNDS):
            chosen = self.chosen(solution)
            covered = union(one.bits for one in chosen)
            ours = sum(one.known.ours_us for one in chosen)
            won = xla.us - xla_fusions(xla.works, xla.bits & ~covered).us - ours
            claimed = sum(one.value for one in chosen)
            weak = _weak(chosen, xla) if won < TRUSTED_SHARE * claimed else []
            if not weak:
                break
            for one in weak:
                self._reject(one, forbid("Beside the other patterns it wins nothing."))
            solution = self.run()
        return solution

    def judge_by(self, findings: Findings) -> None:
        """Scores what was scored before, and all later candidates, as `findings` judge it."""
        self.findings = findings
        for one in self.candidates:
            if one.score is not None and one.said is not None:
                self._take(one, one.said)

    def score(self, pattern: Pattern) -> Score:
        """The score of a chosen pattern."""
        return self.by_bits[pattern.bits].known

    def said(self, bits: int) -> Score:
        """The scorer's score of a pattern, before measurements changed it."""
        score = self.by_bits[bits].said
        assert score is not None
        return score

    def larger(self, chosen: Sequence[Chosen], xla: XlaPlan) -> Iterator[Chosen]:
        """Scored patterns that contain more than the chosen ones they would replace, and gain at
        least `LARGER_SHARE` of what these do: the largest first, without overlaps."""
        for one in self._larger({c.pattern.bits: c.score_us for c in chosen}):
            yield self._taken(one, saved_us(xla, one.bits), xla)

    def result(self, solution: Solution, xla: XlaPlan) -> Plan:
        """The plan of a solution, checked. Raises VerifyError if it fails."""
        found = self.chosen(solution)
        spared = saved_together(xla, [one.bits for one in found])
        left = xla.us - sum(spared)
        chosen = tuple(self._taken(one, us, xla) for one, us in zip(found, spared, strict=True))
        verify_plan(self.graph, [c.pattern for c in chosen], [c.score_us for c in chosen])
        plan = Plan(
            graph=self.graph,
            chosen=chosen,
            rejected=(*self.rejected, *self._beaten(found)),
            cuts=solution.cuts,
            xla_us=left + sum(c.spared_us for c in chosen),
            modelled_us=left + sum(c.modelled_us for c in chosen),
            xla_source=MODELLED if xla.works.scale is None else SCALED,
            stats=Stats(
                candidates=len(self.candidates),
                inspected=self.inspected,
                distinct=len(self.facts),
                solves=solution.solves,
                optimal=solution.optimal,
            ),
        )
        verify_times(plan)
        return plan

    def _solved(self) -> Solution:
        """The best plan by values, or that over scored patterns if the program is as fast with it
        up to `ENOUGH_SHARE`, or enough were inspected in vain."""
        values = {n: one.value for n, one in enumerate(self.candidates) if one.is_open}
        best = self.program.solve(values)
        known = {n: us for n, us in values.items() if self.candidates[n].score is not None}
        if not known.keys() >= set(best.chosen):
            sure = self.program.solve(known)
            most, least = (sum(map(values.__getitem__, one.chosen)) for one in (best, sure))
            if least > self.best_us + self._enough_us(least):
                self.best_us, self.patience = least, max(self.patience, DOUBTED[1])
            if most - least <= self._enough_us(most) or self.patience <= 0:
                unknown = (one for one in self.chosen(best) if one.score is None)
                self.passed_over.update(dict.fromkeys(unknown))
                return sure
        return best

    def _worth_a_look(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """The unscored patterns among those that would be chosen, without those that gain least.
        These may be beaten once the others are scored, or gain too little together."""
        unscored = [one for one in chosen if one.score is None]
        left = self._enough_us(sum(one.value for one in chosen))
        passed = set[Candidate]()
        for one in sorted(unscored, key=lambda one: one.value):
            left -= one.value
            if left < 0:
                break
            passed.add(one)
        # scores are rounded when they are added
        return [one for one in unscored if one not in passed] or unscored

    def _enough_us(self, won_us: float) -> float:
        """How much less than this gain a plan may have."""
        return ENOUGH_SHARE * (self.xla_us - won_us)

    # ---- one candidate --------------------------------------------------------------------------

    def _evaluate(self, one: Candidate) -> None:
        """Asks code generation, and scores the kernel."""
        self.inspected += 1
        self.patience -= 1
        if (key := one.pattern.key) not in self.facts:
            self.inspected_ops += len(one.pattern.ops)
            self.facts[key] = self.inspect(one.pattern)
        one.found = self.facts[key]
        if isinstance(one.found, Verdict):
            self._reject(one, one.found)
        else:
            self._take(one, self.scorer.score(one.pattern, one.found))
            self._learn(one)

    def _learn(self, one: Candidate) -> None:
        """Expects less of candidates like one that was scored, at most that it has no share in what
        they win: how much a kernel loses says nothing of one of another form."""
        assert one.said is not None
        others = [other for other in self.candidates if other.is_open and other.score is None]
        found = self.expectations.learn(
            one.bits, min(one.bound, one.bound - one.said.gain_us), (o.bits for o in others)
        )
        for other, short_us in zip(others, found, strict=True):
            other.short_us = max(other.short_us, self.trust * short_us)

    def _compare(self, one: Candidate) -> bool:
        """Scores a candidate that would be chosen by its fastest kernel; returns whether that
        differs from the kernel that was scored."""
        key = one.pattern.key
        if self.compare is None or key in self.compared:
            return False
        self.compared.add(key)
        found = self.compare(one.pattern)
        if isinstance(found, Verdict) or found == self.facts[key]:
            return False
        self.facts[key] = found
        for other in self.candidates:
            if other.score is not None and other.pattern.key == key:
                other.found = found
                self._take(other, self.scorer.score(other.pattern, found))
        return True

    def _larger(self, gains: Mapping[int, float]) -> Iterator[Candidate]:
        """The larger candidates that could replace patterns with these gains, by bits."""
        taken = 0
        scored = [one for one in self.candidates if one.score is not None]
        for one in sorted(scored, key=lambda one: (-one.bits.bit_count(), -one.value)):
            beaten = [other for other in gains if other & one.bits]
            largest = max((other.bit_count() for other in beaten), default=0)
            if not beaten or one.bits.bit_count() <= largest:
                continue
            least = LARGER_SHARE * sum(map(gains.__getitem__, beaten))
            if not one.bits & taken and one.value >= least:
                taken |= one.bits
                yield one

    def _compare_larger(self, chosen: Sequence[Candidate]) -> bool:
        """Scores larger candidates that lose to chosen ones by their fastest kernels as well: so
        far they have the scores of their default kernels. Returns whether a kernel differs."""
        if self.compare is None or not self.larger_left:
            return False
        larger = self._larger({one.bits: one.value for one in chosen})
        new = [one for one in larger if one.pattern.key not in self.compared][: self.larger_left]
        self.larger_left -= len(new)
        compared = [self._compare(one) for one in new]
        return any(compared)

    def _compare_refused(self, chosen: Sequence[Candidate]) -> bool:
        """Scores the most promising pattern whose default kernel loses to XLA by its fastest one as
        well, if the best possible one would win much more than what is chosen in its place: how
        threads are dealt decides how far from each other they store. Returns whether it wins."""
        if self.compare is None or not self.larger_left:
            return False
        gains = {one.bits: one.value for one in chosen}
        enough_us = self._enough_us(sum(gains.values()))

        def promises(one: Candidate) -> bool:
            if one.refused is None or one.said is None or one.pattern.key in self.compared:
                return False
            if one.said.ours_us > MOST_OVER * one.said.xla_us:
                return False
            instead = sum(us for bits, us in gains.items() if bits & one.bits)
            least = max(PROMISING * instead, PROMISED_SHARE * one.said.xla_us)
            return one.bound > max(least, instead + enough_us)

        best = max(filter(promises, self.candidates), key=lambda one: one.bound, default=None)
        if best is None:
            return False
        self.larger_left -= 1
        if not self._compare(best):
            return False
        found = self.facts[best.pattern.key]
        assert not isinstance(found, Verdict)
        said = self.scorer.score(best.pattern, found)
        if not self.findings.judged(best.pattern, said).wins:
            return False
        self.rejected = [one for one in self.rejected if one.bits != best.bits]
        best.refused, best.found = None, found
        self._take(best, said)
        return True

    def _take(self, one: Candidate, said: Score) -> None:
        """Keeps a candidate with its score if it gains."""
        one.said = said
        score = self.findings.judged(one.pattern, said)
        if score.wins:
            one.score = score
            return
        times = {"modelled_us": score.ours_us, "xla_us": score.xla_us}
        if (measured := self.findings.measured.get(one.bits)) is not None:
            times |= {"measured_us": measured.ours_us, "measured_xla_us": measured.xla_us}
        self._reject(one, forbid(score.reason, **times))

    def _confirm(self, one: Candidate, others: int) -> bool:
        """Whether a chosen pattern gains on a closer look, which is taken once."""
        if one.is_confirmed or self.scorer.confirms(one.pattern, one.known, others):
            one.is_confirmed = True
            return True
        self._reject(one, forbid("XLA's kernels around it would be as many, or take as long."))
        return False

    def _narrow(self) -> None:
        """Drops the unscored candidates with more than half the ops of the largest one, but for
        those that stay."""
        waiting = [
            one
            for one in self.candidates
            if one.is_open and one.score is None and not one.pattern.stays
        ]
        largest = max((one.bits.bit_count() for one in waiting), default=0)
        for one in waiting:
            if 2 * one.bits.bit_count() > largest:
                self._reject(one, forbid("Enough patterns of this size were tried before it."))

    def _reject(self, one: Candidate, why: Verdict) -> None:
        one.refuse(why)
        self.rejected.append(self._rejected(one, why))

    # ---- what becomes of them -------------------------------------------------------------------

    def _rejected(self, one: Candidate, why: Verdict) -> Rejected:
        return Rejected(self.graph, one.bits, one.pattern.rule, why.reason, why.facts)

    def _beaten(self, chosen: Sequence[Candidate]) -> Iterator[Rejected]:
        """The candidates that might have been chosen."""
        for one in self.candidates:
            if one.is_open and one not in chosen:
                yield self._rejected(one, self._why_beaten(one))

    def _why_beaten(self, one: Candidate) -> Verdict:
        """Why a candidate is not chosen that might have been."""
        if one.score is not None:
            return forbid(BEATEN, score_us=one.value)
        if one in self.passed_over:
            return forbid(HARDLY_MORE, bound_us=one.bound)
        if one.short_us > 0:
            return forbid(UNLIKELY, bound_us=one.bound, expected_us=one.value)
        return forbid(BEATEN, bound_us=one.bound)

    def _taken(self, one: Candidate, spared_us: float, xla: XlaPlan) -> Chosen:
        """A pattern that spares XLA `spared_us` of its modelled time, in the unit of the scorer."""
        score, modelled = one.known, saved_us(xla, one.bits)
        if modelled > 0:
            spared_us *= score.xla_us / modelled  # 1 unless XLA's time was measured
        return Chosen(
            one.pattern,
            score.gain_us,
            score.ours_us,
            score.xla_us,
            one.facts,
            spared_us,
            self.findings.measured.get(one.bits),
            score.source,
        )


def _weak(chosen: Sequence[Candidate], xla: XlaPlan) -> list[Candidate]:
    """The chosen patterns that gain nothing beside those that gain more: a kernel of XLA's cannot
    be spared more than its whole time."""
    weak = []
    left = {number: kernel.us for number, kernel in enumerate(xla.kernels)}
    for one in sorted(chosen, key=lambda one: -one.value):
        claims = saved_by_kernel(xla, one.bits)
        granted = {number: min(us, left[number]) for number, us in claims.items()}
        lost = sum(claims.values()) - sum(granted.values())
        if lost >= one.value:
            weak.append(one)
            continue
        for number, us in granted.items():
            left[number] -= us
    return weak
