"""A pattern on its way into the plan: what is known of it so far."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.verdict import Verdict
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.scores import Score


@dataclass(eq=False)
class Candidate:
    """A pattern that may be chosen, from the generator that offered it to the plan.

    Attributes:
        pattern: the ops
        bound: microseconds that it can win at most, known without a kernel
        found: the kernel it would get, or why there is none; None until code generation was asked
        said: what the scorer says of that kernel
        score: the same as measurements judge it, as long as the pattern may be chosen
        refused: why it may not
        is_confirmed: whether a closer look, which is taken once, has shown that it wins
    """

    pattern: Pattern
    bound: float
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
        """What the planner maximises: the gain where it is known, else the bound; microseconds."""
        return self.bound if self.score is None else self.score.gain_us

    @property
    def known(self) -> Score:
        """Its score. It must have one."""
        assert self.score is not None
        return self.score

    @property
    def facts(self) -> KernelFacts:
        """What its kernel does. There must be one."""
        assert isinstance(self.found, KernelFacts)
        return self.found

    def refuse(self, verdict: Verdict) -> None:
        """It is not chosen, for this reason."""
        self.refused, self.score = verdict, None
