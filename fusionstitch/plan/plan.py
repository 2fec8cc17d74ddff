"""What planning returns: the chosen patterns, and every candidate that was turned down with why."""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.facts import KernelFacts
from fusionstitch.patterns.pattern import Pattern
from hlo.graph import Graph, Op, ids
from hlo.verdict import Verdict


@dataclass(frozen=True)
class Chosen:
    """A pattern of the plan. `xla_us` is what XLA's kernels for the same ops are estimated (or
    measured) to take, `modelled_us` the same of the stitched kernel, `score_us` what the scorer
    says is won."""

    pattern: Pattern
    score_us: float
    modelled_us: float
    xla_us: float
    facts: KernelFacts


@dataclass(frozen=True)
class Rejected:
    """A candidate (or a single op that can be no member) that is not in the plan."""

    graph: Graph
    bits: int
    rule: str
    reason: str
    facts: tuple[tuple[str, object], ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(self.graph.ops[i] for i in ids(self.bits))

    @property
    def verdict(self) -> Verdict:
        return Verdict(False, self.reason, self.facts)


@dataclass(frozen=True)
class Stats:
    """How the plan came about: candidates, those inspected, distinct structures among them,
    programs solved, and whether each was solved to proven optimality."""

    candidates: int = 0
    inspected: int = 0
    distinct: int = 0
    solves: int = 0
    optimal: bool = True


@dataclass(frozen=True)
class Plan:
    """The fusion plan of one graph: disjoint convex patterns whose contraction is a DAG.

    `cuts` counts the constraints that cycles cost. `xla_us` is the estimate for the whole graph
    left to XLA, `modelled_us` for the graph with the plan carried out. `given` is the graph that
    was to be planned where `graph` holds copies of some of its ops (patterns/recompute.py).
    """

    graph: Graph
    chosen: tuple[Chosen, ...]
    rejected: tuple[Rejected, ...] = ()
    cuts: int = 0
    xla_us: float = 0.0
    modelled_us: float = 0.0
    stats: Stats = field(default_factory=Stats)
    given: Graph | None = None

    @property
    def program(self) -> Graph:
        """The graph that was to be planned."""
        return self.given or self.graph
