"""What planning returns: the chosen patterns, and every candidate that was turned down with why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.xla_truth import MODELLED
from fusionstitch.hlo import cards
from fusionstitch.hlo.brief import Listed, brief, count, listed
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.verdict import Verdict
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.findings import Comparison

#: Patterns that a notebook shows, and ops of each.
SHOWN, SHOWN_OPS = 12, 6


@dataclass(frozen=True)
class Chosen:
    """A pattern of the plan; times are microseconds of one run.

    Attributes:
        pattern: its ops, and the values that they read and hand on
        score_us: what the scorer says is won
        modelled_us: what the stitched kernel is estimated (or measured) to take
        xla_us: what XLA's kernels for the same ops are estimated (or measured) to take
        facts: the kernel before it was written: `scope`, `threads`, `shared_bytes`, `registers`
        spared_us: what XLA is spared by this pattern beside the others of the plan, of which none
            claims what another one does: these add up, unlike `xla_us`
        measured: what was measured to judge it, if anything was
        xla_source: where `xla_us` is from: "modelled", "scaled" to what the program was measured to
            take under XLA, or "measured"
    """

    pattern: Pattern
    score_us: float
    modelled_us: float
    xla_us: float
    facts: KernelFacts
    spared_us: float
    measured: Comparison | None = None
    xla_source: str = MODELLED

    @property
    def wins_us(self) -> float:
        """What the plan wins by this pattern. All of them together are what the plan wins."""
        return self.spared_us - self.modelled_us

    def __repr__(self) -> str:
        return brief(
            f"Chosen: {count(self.pattern.ops, 'op')} of {self.pattern.graph.name}, "
            f"{self.facts.scope} scope, modelled {self.modelled_us:.2f} us against "
            f"{self.xla_us:.2f} us of XLA, scored {self.score_us:.2f} us"
        )


@dataclass(frozen=True)
class Rejected:
    """A candidate (or a single op that can be no member) that is not in the plan.

    Attributes:
        graph: the one that it is of
        bits: its ops, as a bitset of their ids
        rule: what proposed it
        reason: why it is not in the plan, as a sentence
        facts: names and values that back the reason
    """

    graph: Graph
    bits: int
    rule: str
    reason: str
    facts: tuple[tuple[str, object], ...] = ()

    def __repr__(self) -> str:
        return brief(f"Rejected: {count(self.ops, 'op')} of {self.graph.name}. {self.reason}")

    @property
    def ops(self) -> tuple[Op, ...]:
        return Listed(self.graph.ops[i] for i in ids(self.bits))

    @property
    def verdict(self) -> Verdict:
        return Verdict(False, self.reason, self.facts)


@dataclass(frozen=True)
class Stats:
    """How a plan came about.

    Attributes:
        candidates: patterns that were proposed
        inspected: those that were scored
        distinct: different structures among them
        solves: integer programs that were solved
        optimal: whether each was solved to proven optimality
    """

    candidates: int = 0
    inspected: int = 0
    distinct: int = 0
    solves: int = 0
    optimal: bool = True


@dataclass(frozen=True)
class Plan:
    """The fusion plan of one graph: disjoint convex patterns whose contraction is a DAG.

    Attributes:
        graph: the ops
        chosen: the patterns that become kernels
        rejected: the candidates that do not, with the reason
        cuts: constraints that cycles cost
        xla_us: estimate for the whole graph left to XLA, in microseconds
        modelled_us: estimate for the graph with the plan carried out: as in `xla_us` what XLA
            computes either way, and the patterns' `modelled_us` for their `spared_us`
        stats: how the plan came about
        given: the graph that was to be planned, where `graph` holds copies of some of its ops
            (`fusionstitch/patterns/recompute.py`)
        xla_source: where `xla_us` is from: "modelled", or "scaled" to what was measured
    """

    graph: Graph
    chosen: tuple[Chosen, ...]
    rejected: tuple[Rejected, ...] = ()
    cuts: int = 0
    xla_us: float = 0.0
    modelled_us: float = 0.0
    stats: Stats = field(default_factory=Stats)
    given: Graph | None = None
    xla_source: str = MODELLED

    def __post_init__(self) -> None:
        listed(self, "chosen", "rejected")

    def __repr__(self) -> str:
        return brief(
            f"Plan of {self.graph.name}: {count(self.graph.ops, 'op')}, "
            f"{count(self.chosen, 'pattern')}, {len(self.rejected):,} rejected, modelled "
            f"{self.modelled_us:.1f} us against {self.xla_us:.1f} us of XLA"
        )

    def _repr_html_(self) -> str:
        rows = [
            cards.Bar(
                ", ".join(op.name or op.opcode for op in one.pattern.ops[:SHOWN_OPS]),
                one.spared_us,
                one.modelled_us,
                texts=(
                    f"{len(one.pattern.ops):,}",
                    one.facts.scope,
                    f"{one.modelled_us:.2f} us",
                    f"{one.spared_us:.2f} us",
                    f"{one.wins_us:.2f} us",
                ),
            )
            for one in sorted(self.chosen, key=lambda one: -one.wins_us)[:SHOWN]
        ]
        reasons = Counter(one.reason for one in self.rejected)
        return cards.card(
            f"Plan of {self.graph.name}",
            cards.facts(
                [
                    ("ops", f"{len(self.graph):,}"),
                    ("patterns", f"{len(self.chosen):,}"),
                    ("modelled", f"{self.modelled_us:.1f} us"),
                    ("under XLA", f"{self.xla_us:.1f} us"),
                ]
            ),
            cards.bars(
                ("first ops", "XLA above ours", "ops", "scope", "modelled", "XLA", "wins"), rows
            ),
            cards.note(f"and {len(self.chosen) - SHOWN} more") if len(self.chosen) > SHOWN else "",
            cards.folded(
                f"{len(self.rejected):,} rejected",
                "\n".join(f"{n:6,}  {reason}" for reason, n in reasons.most_common()),
            ),
        )

    @property
    def program(self) -> Graph:
        """The graph that was to be planned."""
        return self.given or self.graph

    def instead_of(self, graph: Graph, xla_us: float) -> Plan:
        """The plan of a graph with copies as a plan of the `graph` that was given, for which XLA
        takes `xla_us`, more than the plan leaves to it: the copies spare XLA nothing."""
        left = self.modelled_us - sum(one.modelled_us for one in self.chosen)
        share = (xla_us - left) / (self.xla_us - left)
        chosen = tuple(replace(one, spared_us=one.spared_us * share) for one in self.chosen)
        return replace(self, chosen=chosen, xla_us=xla_us, given=graph)
