"""What a pattern is expected to win, by what patterns like it won.

A bound supposes the best possible kernel. Where the kernel of a pattern falls short of it, because
its threads wait for each other or compute values again, those of patterns with the same ops do so
for the same reason. How far they fall short was counted (`python -m benchmarks.shortfalls`): four
in five of them by at least the share of what is given here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: Of what a pattern falls short of its bound, a larger one that contains it does by this share: it
#: has the same work to do.
CONTAINED = 0.95
#: A smaller one may be rid of the cause. Its share is the likeness of the two, the ops of both by
#: the ops of either, to this power.
CONTAINING_POWER = 6
#: Of two that overlap, the share is this times their likeness.
OVERLAPPING = 0.5


def share_of(known: int, other: int) -> float:
    """By what share of what the pattern `known` falls short of its bound another one does at
    least. Both are bitsets of ops."""
    common = known & other
    if not common:
        return 0.0
    if common == known:
        return CONTAINED
    likeness = common.bit_count() / (known | other).bit_count()
    return likeness**CONTAINING_POWER if common == other else OVERLAPPING * likeness


@dataclass
class Expectations:
    """The patterns that were scored, by bitsets of their ops, with the microseconds by which each
    fell short of its bound."""

    known: dict[int, float] = field(default_factory=dict)

    def learn(self, bits: int, short_us: float, others: Iterable[int]) -> list[float]:
        """Keeps what a pattern fell short by. Returns by how much each of the others, bitsets of
        ops, is expected to fall short at least, by this one alone."""
        self.known[bits] = short_us
        return [short_us * share_of(bits, other) for other in others]

    def short_us(self, bits: int) -> float:
        """By how many microseconds a pattern is expected to fall short of its bound at least."""
        return max((us * share_of(known, bits) for known, us in self.known.items()), default=0.0)
