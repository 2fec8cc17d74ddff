"""The result of planning: the chosen patterns, and every rejected candidate with the reason."""

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

#: The most patterns shown in a notebook, and ops of each.
SHOWN, SHOWN_OPS = 12, 6


@dataclass(frozen=True)
class Chosen:
    """A pattern of the plan; times are microseconds of one run.

    Attributes:
        pattern: its ops, and the values that they read and pass on
        score_us: the gain by the scorer
        modelled_us: estimated (or measured) time of the stitched kernel
        xla_us: estimated (or measured) time of XLA's kernels for the same ops
        facts: the kernel's plan: `scope`, `threads`, `shared_bytes`, `registers`
        spared_us: the time that this pattern spares XLA beside the others of the plan. Each part of
            XLA's time counts for one pattern only, so these add up, unlike `xla_us`
        measured: the measurement that it was judged by, if any
        xla_source: where `xla_us` comes from: "modelled", "scaled" to the measured time of the
            program under XLA, or "measured"
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
        """The plan's gain from this pattern. The gains of all patterns add up to the plan's
        gain."""
        return self.spared_us - self.modelled_us

    def __repr__(self) -> str:
        return brief(
            f"Chosen: {count(self.pattern.ops, 'op')} of {self.pattern.graph.name}, "
            f"{self.facts.scope} scope, modelled {self.modelled_us:.2f} us against "
            f"{self.xla_us:.2f} us of XLA, scored {self.score_us:.2f} us"
        )


@dataclass(frozen=True)
class Rejected:
    """A candidate, or a single op that cannot be a member, that is not in the plan.

    Attributes:
        graph: the graph of the ops
        bits: its ops, as a bitset of their ids
        rule: the rule that proposed it
        reason: why it is not in the plan, as a sentence
        facts: names and values that support the reason
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
    """How a plan was found.

    Attributes:
        candidates: number of proposed patterns
        inspected: number of scored patterns
        distinct: number of different structures among them
        solves: number of integer programs solved
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
        rejected: the other candidates, with the reasons
        cuts: number of constraints added against cycles
        xla_us: estimated microseconds of the whole graph under XLA
        modelled_us: estimated microseconds of the graph with the plan carried out: `xla_us`, with
            the patterns' `modelled_us` in place of their `spared_us`
        stats: how the plan was found
        given: the original graph, if `graph` contains copies of some of its ops
            (`fusionstitch/patterns/recompute.py`)
        xla_source: where `xla_us` comes from: "modelled", or "scaled" to a measured time
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
        """The original graph."""
        return self.given or self.graph

    def instead_of(self, graph: Graph, xla_us: float) -> Plan:
        """The plan of a graph with copies as a plan of the original `graph`, which takes XLA
        `xla_us`. That is more than the plan leaves to XLA: the copies spare XLA nothing."""
        left = self.modelled_us - sum(one.modelled_us for one in self.chosen)
        share = (xla_us - left) / (self.xla_us - left)
        chosen = tuple(replace(one, spared_us=one.spared_us * share) for one in self.chosen)
        return replace(self, chosen=chosen, xla_us=xla_us, given=graph)
