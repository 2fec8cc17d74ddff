"""A candidate pattern: what is known of it so far."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.verdict import Verdict
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.scores import Score


@dataclass(eq=False)
class Candidate:
    """A pattern that may be chosen, as a generator offered it.

    Attributes:
        pattern: the ops
        bound: upper bound of its gain in microseconds, known without a kernel
        short_us: by how much its gain is expected to be less, by patterns like it
        found: its kernel's facts, or why there is no kernel; None until code generation was asked
        said: the scorer's score of that kernel
        score: the same after measurements, as long as the pattern may be chosen
        refused: why it may not be chosen
        is_confirmed: whether a closer look, which is taken once, has confirmed its gain
    """

    pattern: Pattern
    bound: float
    short_us: float = 0.0
    found: KernelFacts | Verdict | None = None
    said: Score | None = None
    score: Score | None = None
    refused: Verdict | None = None
    is_confirmed: bool = False

    @property
    def bits(self) -> int:
        """Bitset of the ops."""
        return self.pattern.bits

    @property
    def is_open(self) -> bool:
        """Whether it may be chosen."""
        return self.refused is None

    @property
    def value(self) -> float:
        """What the planner maximizes, in microseconds: the gain, if known, or what is expected."""
        return self.bound - self.short_us if self.score is None else self.score.gain_us

    @property
    def known(self) -> Score:
        """Its score, which must exist."""
        assert self.score is not None
        return self.score

    @property
    def facts(self) -> KernelFacts:
        """The facts of its kernel, which must exist."""
        assert isinstance(self.found, KernelFacts)
        return self.found

    def refuse(self, verdict: Verdict) -> None:
        """Excludes it, for this reason."""
        self.refused, self.score = verdict, None
