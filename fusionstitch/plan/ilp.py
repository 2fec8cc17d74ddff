"""The fusion plan as an integer program (paper 4.1): disjoint patterns of the largest total score.

The program is split into connected parts. Prices narrow each part to the candidates that may win.
It is then solved along the frontier, or by HiGHS in this process if the frontier is too wide. A
plan whose contracted graph has a cycle is cut off, and the affected parts are solved again (Figure
3).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusionstitch.hlo.errors import PlanError
from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.patterns.convex import ancestors
from fusionstitch.plan.cycles import contracted_cycle
from fusionstitch.plan.frontier import pack
from fusionstitch.plan.prices import priced

#: Scores that differ by less than this many microseconds count as equal.
RESOLUTION_US = 1e-3
#: PuLP's status of a program solved within the gap (its name differs in PuLP 3 and 4).
OPTIMAL = 1
#: A step of HiGHS that takes longer than it saves. So does presolving, unless there are more rows
#: than columns: 50 programs of 70 to 1200 columns from three training steps took a quarter of the
#: time without both. Pairs of candidates that form a cycle are thousands of rows, of which
#: presolving leaves few: 41 programs of 38 to 400 columns with them took a ninth of the time.
_SKIPPED: Mapping[str, Any] = {"mip_heuristic_run_feasibility_jump": False}


@dataclass(frozen=True)
class SolverLimits:
    """When the solver may stop: relative gap and branch-and-bound nodes, never time."""

    gap: float = 1e-9
    max_nodes: int = 20_000
    max_rounds: int = 1_000


@dataclass(frozen=True)
class Solution:
    """Indices of the chosen patterns, ascending; the constraints added against cycles; the number
    of programs solved; whether every one was solved to optimality."""

    chosen: tuple[int, ...]
    cuts: int
    solves: int
    optimal: bool


@dataclass
class Program:
    """The candidates of one graph. `solve` may be called again after scores change: cuts are
    retained, and parts with unchanged scores are not solved again.

    A cut is a set of candidate indices that must not all be chosen together.
    """

    graph: Graph
    bits: Sequence[int]
    limits: SolverLimits = SolverLimits()
    cuts: dict[frozenset[int], None] = field(default_factory=dict)
    solves: int = 0
    _known: dict[object, tuple[tuple[int, ...], bool]] = field(default_factory=dict)
    _holders: list[tuple[int, ...]] = field(default_factory=list)
    _rows_of: list[list[int]] = field(default_factory=list)
    _above: dict[int, int] = field(default_factory=dict)

    def solve(self, scores: Mapping[int, float]) -> Solution:
        """The best plan over the candidates in `scores` (index -> microseconds, all positive).

        Among equal scores, earlier candidates win. Raises PlanError if cycle cuts do not end within
        `limits.max_rounds`.
        """
        for _ in range(self.limits.max_rounds):
            chosen: list[int] = []
            optimal = True
            for part in self._parts(sorted(scores)):
                found, proven = self._solve_part(part, scores)
                chosen += found
                optimal &= proven
            chosen.sort()
            cycle = contracted_cycle(self.graph, [self.bits[i] for i in chosen])
            if cycle is None:
                return Solution(tuple(chosen), len(self.cuts), self.solves, optimal)
            self._cut([chosen[i] for i in cycle], sorted(scores))
        raise PlanError(
            f"Cycle cuts of {self.graph.name} did not end after {self.limits.max_rounds} rounds. "
            "Lower the number of candidate patterns (max_patterns) or report the program."
        )

    def _cut(self, cycle: list[int], active: list[int]) -> None:
        """Forbids the cycle and, for each pattern on it, every candidate that forms a cycle of two
        with it: the next rounds would find those one by one."""
        self.cuts[frozenset(cycle)] = None
        above = self._above
        for i in active:
            if i not in above:
                above[i] = ancestors(self.graph, self.bits[i])
        for i in cycle:
            for j in active:
                if (
                    not self.bits[i] & self.bits[j]
                    and above[i] & self.bits[j]
                    and above[j] & self.bits[i]
                ):
                    self.cuts[frozenset((i, j))] = None

    def _parts(self, active: list[int]) -> list[list[int]]:
        """Candidates connected through a shared op or a cut."""
        bits: dict[int, int] = {}  # by part, its ops
        joined: dict[int, list[int]] = {}  # and its candidates
        owner: dict[int, int] = {}  # by op, the first part that contains it
        into: dict[int, int] = {}  # a part, the one it became part of
        covered = 0
        for i in active:
            shared, first = self.bits[i] & covered, i
            while shared:
                part = owner[(shared & -shared).bit_length() - 1]
                while part in into:
                    part = into[part]
                shared &= ~bits[part]
                if first != i:
                    bits[first] |= bits.pop(part)
                    joined[first] += joined.pop(part)
                    into[part] = first
                first = into.get(part, part)
            bits[first] = bits.get(first, 0) | self.bits[i]
            joined.setdefault(first, []).append(i)
            owner.update(dict.fromkeys(ids(self.bits[i] & ~covered), first))
            covered |= self.bits[i]
        home = {i: n for n, members in joined.items() for i in members}
        for cut in self.cuts:
            if cut <= home.keys():
                first, *others = sorted({home[i] for i in cut})
                for other in others:
                    moved = joined.pop(other)
                    joined[first] += moved
                    home.update(dict.fromkeys(moved, first))
        return sorted(sorted(members) for members in joined.values())

    def _solve_part(
        self, part: list[int], scores: Mapping[int, float]
    ) -> tuple[tuple[int, ...], bool]:
        if len(part) == 1:
            alone = frozenset(part)
            return () if alone in self.cuts else (part[0],), True
        members = set(part)
        cuts = [cut for cut in self.cuts if cut <= members]
        key = (tuple((i, scores[i]) for i in part), frozenset(cuts))
        if key not in self._known:
            self.solves += 1
            self._known[key] = _solve(part, scores, self._rows(members), cuts, self.limits)
        return self._known[key]

    def _rows(self, members: set[int]) -> list[tuple[int, ...]]:
        """One constraint per op over the members that contain it, without duplicates."""
        if len(self._rows_of) != len(self.bits):
            holders: dict[int, list[int]] = {}
            for i, bits in enumerate(self.bits):
                for op in ids(bits):
                    holders.setdefault(op, []).append(i)
            self._holders = list(dict.fromkeys(map(tuple, holders.values())))
            self._rows_of = [[] for _ in self.bits]
            for number, row in enumerate(self._holders):
                for i in row:
                    self._rows_of[i].append(number)
        near = sorted({number for i in members for number in self._rows_of[i]})
        rows = (tuple(filter(members.__contains__, self._holders[number])) for number in near)
        return list(dict.fromkeys(row for row in rows if len(row) > 1))


def _solve(
    part: Sequence[int],
    scores: Mapping[int, float],
    rows: Sequence[tuple[int, ...]],
    cuts: Sequence[frozenset[int]],
    limits: SolverLimits,
) -> tuple[tuple[int, ...], bool]:
    """(chosen, proven optimal) of one connected part."""
    weight = {i: _weight(scores[i], rank, len(part)) for rank, i in enumerate(part)}
    pairs = [tuple(sorted(cut)) for cut in cuts if len(cut) == 2]
    if len(pairs) < len(cuts):  # some constraints are not of the form "at most one of these"
        return _by_highs(part, weight, rows, cuts, limits)
    columns_of: dict[int, list[int]] = {i: [] for i in part}
    for number, row in enumerate((*rows, *pairs)):
        for i in row:
            columns_of[i].append(number)
    alone = [i for i in part if not columns_of[i]]
    joined = [i for i in part if columns_of[i]]
    if not joined:
        return tuple(alone), True
    columns, worth = [columns_of[i] for i in joined], [weight[i] for i in joined]
    prices = priced(columns, worth, len(rows) + len(pairs))
    packed = pack(columns, worth, prices)
    if packed is not None:
        return tuple(sorted(alone + [joined[column] for column in packed])), True
    remaining = {*alone, *(joined[column] for column in prices.remaining)}
    inside = [tuple(filter(remaining.__contains__, row)) for row in (*rows, *pairs)]
    return _by_highs(sorted(remaining), weight, [row for row in inside if len(row) > 1], (), limits)


def _by_highs(
    part: Sequence[int],
    weight: Mapping[int, float],
    rows: Sequence[tuple[int, ...]],
    cuts: Sequence[frozenset[int]],
    limits: SolverLimits,
) -> tuple[tuple[int, ...], bool]:
    """Solves with HiGHS and checks the result: anything but a feasible choice of zeros and ones is
    replaced by the greedy choice."""
    import pulp  # on first use: few programs need it, and loading takes a while

    problem: Any = pulp.LpProblem("plan", pulp.LpMaximize)  # its type differs in PuLP 3 and 4
    take = {i: problem.add_variable(f"x{i}", 0, 1, pulp.LpInteger) for i in part}
    problem += pulp.lpSum(weight[i] * take[i] for i in part)
    for row in rows:
        problem += pulp.lpSum(take[i] for i in row) <= 1
    for cut in cuts:
        problem += pulp.lpSum(take[i] for i in sorted(cut)) <= len(cut) - 1
    result = problem.solve(
        _silent_highs()(
            output_flag=False,
            mip_rel_gap=limits.gap,
            mip_abs_gap=0.0,
            random_seed=0,
            mip_max_nodes=limits.max_nodes,
            presolve="on" if len(rows) + len(cuts) > len(part) else "off",
            **_SKIPPED,
        )
    )
    # PuLP 3 returns the status, PuLP 4 an object that contains it
    proven = int(getattr(result, "status", result)) == OPTIMAL
    values = {i: take[i].value() for i in part}
    chosen = tuple(i for i in part if (values[i] or 0.0) > 0.5)
    whole = all(v is not None and min(abs(v), abs(v - 1)) < 1e-6 for v in values.values())
    if proven and whole and _feasible(set(chosen), rows, cuts):
        return chosen, True
    greedy = _greedy(part, weight, rows, cuts)
    usable = whole and _feasible(set(chosen), rows, cuts)
    if usable and sum(weight[i] for i in chosen) >= sum(weight[i] for i in greedy):
        return chosen, False
    return greedy, False


@functools.cache
def _silent_highs() -> Any:
    """PuLP's HiGHS with one thread. Its options already apply while it is created: HiGHS 1.16
    prints its version when it gets callbacks, which its constructor sets."""
    import highspy
    import pulp

    class Model(highspy.Highs):
        def enableCallbacks(self) -> None:
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    class Solver(pulp.HiGHS):
        def createAndConfigureSolver(self, lp: Any) -> None:
            lp.solverModel = Model()
            for name, value in {"threads": 1, **self.optionsDict}.items():
                lp.solverModel.setOptionValue(name, value)

    return Solver


def _weight(score: float, rank: int, count: int) -> float:
    """The score in units of the resolution, plus a fraction that favors earlier candidates; all
    fractions together are less than one unit."""
    return max(1, round(score / RESOLUTION_US)) + 0.5 * (count - rank) / count**2


def _feasible(
    chosen: set[int], rows: Sequence[tuple[int, ...]], cuts: Sequence[frozenset[int]]
) -> bool:
    return all(len(chosen.intersection(row)) <= 1 for row in rows) and not any(
        cut <= chosen for cut in cuts
    )


def _greedy(
    part: Sequence[int],
    weight: Mapping[int, float],
    rows: Sequence[tuple[int, ...]],
    cuts: Sequence[frozenset[int]],
) -> tuple[int, ...]:
    chosen: set[int] = set()
    for i in sorted(part, key=lambda i: (-weight[i], i)):
        near_rows = [row for row in rows if i in row]
        near_cuts = [cut for cut in cuts if i in cut]
        if _feasible(chosen | {i}, near_rows, near_cuts):
            chosen.add(i)
    return tuple(sorted(chosen))
