"""Decides which chosen patterns are measured, and revises plans by the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.guard.groups import Group, beside, grouped
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.findings import Comparison, Findings
from fusionstitch.plan.scores import Score

#: Whether the gain of a pattern with this score is in doubt.
Doubts = Callable[[Pattern, Score], bool]

#: How often plans are revised, and the most patterns measured per program.
ROUNDS = 3
PATTERNS = 16
#: The most larger patterns per graph measured as replacements for chosen ones.
LARGER = 2


@dataclass(eq=False)
class Guard:
    """Judges plans by evidence.

    What is in `doubts` is measured. What is then still unmeasured and in `strong_doubts` is
    dropped. `known` returns earlier measurements of a group. `measure` measures groups and returns
    its results by `Group.key`. `used` has the results that the plans rest on.
    """

    doubts: Doubts
    strong_doubts: Doubts
    known: Callable[[Group], Comparison | None]
    measure: Callable[[Sequence[Group]], Mapping[str, Comparison]]
    used: dict[str, Comparison] = field(default_factory=dict)
    #: groups that could not be measured are not tried again
    missed: set[str] = field(default_factory=set)

    def settle(self, planners: Sequence[GraphPlanner]) -> None:
        """Revises plans until all their patterns are beyond doubt or were measured and won, or for
        a limited number of rounds."""
        left = PATTERNS
        judged = [_Judged(planner, self.doubts) for planner in planners]
        for number in range(ROUNDS):
            doubted = [(one, group) for one in judged for group in one.doubted()]
            if not doubted:
                return
            if not number:
                doubted += [(one, group) for one in judged for group in one.larger()]
            left -= self._find([group for _, group in doubted], left)
            heard = [one for one, group in doubted if one.hear(group, self.used.get(group.key))]
            for one in dict.fromkeys(heard):
                one.planner.revise(one.findings)
            if not heard:
                break
        for one in judged:
            if one.doubted():
                one.findings.doubts = self.strong_doubts
                one.planner.revise(one.findings)

    def _find(self, groups: Sequence[Group], most: int) -> int:
        """Gets comparisons of groups, the most expensive first; returns the number of patterns
        measured."""
        asked: dict[str, Group] = {}
        for group in sorted(groups, key=lambda group: -group.xla_us):
            if group.key in self.used or group.key in asked or group.key in self.missed:
                continue
            if (found := self.known(group)) is not None:
                self.used[group.key] = found
            elif len(group.chosen) <= most - sum(len(one.chosen) for one in asked.values()):
                asked[group.key] = group
        if asked:
            self.used.update(self.measure(list(asked.values())))
            self.missed |= asked.keys() - self.used.keys()
        return sum(len(group.chosen) for group in asked.values())


class _Judged:
    """A graph's planner with the findings about its patterns."""

    def __init__(self, planner: GraphPlanner, doubts: Doubts):
        self.planner = planner
        self.doubts = doubts
        self._start()

    def _start(self) -> None:
        self.graph = self.planner.planner.graph
        self.findings = Findings()
        #: sets of patterns already compared
        self.compared: set[frozenset[int]] = set()

    def doubted(self) -> list[Group]:
        """The groups of the plan that the model does not prove and that were not compared."""
        if self.graph is not self.planner.planner.graph:  # the other plan is better now
            self._start()
        search = self.planner.planner.search
        return [
            group
            for group in grouped(self.planner.plan, self.planner.planner.xla)
            if group.bits not in self.compared
            and any(self.doubts(one.pattern, search.score(one.pattern)) for one in group.chosen)
        ]

    def larger(self) -> list[Group]:
        """The groups of larger patterns that would replace some of the plan."""
        plan, planner = self.planner.plan, self.planner.planner
        found = islice(planner.search.larger(plan.chosen, planner.xla), LARGER)
        return [beside(plan, one, planner.xla) for one in found]

    def hear(self, group: Group, found: Comparison | None) -> bool:
        """Takes in the findings about a group, if any."""
        if found is None:
            return False
        planner = self.planner.planner
        said = {bits: planner.search.said(bits) for bits in sorted(group.bits)}
        rest = max(0.0, group.xla_us - sum(score.xla_us for score in said.values()))
        self.findings.add(found, said, rest, planner.call_us)
        self.compared.add(group.bits)
        return True
