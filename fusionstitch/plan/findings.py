"""What measuring found out about the patterns of a graph, in the currency of their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fusionstitch.hlo.graph import ids
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.scores import MARGIN_US, MEASURED_SHARE, Score

SLOWER = "Measured beside XLA's kernels for the same ops, it is no faster."
UNLIKELY = "By what was measured of its ops, XLA's own kernels are as fast."
UNPROVEN = "What the model says it wins is within the model's error, and it was not measured."
#: Measured times count as so many times the modelled ones at most, and as a part of them at least:
#: more is nothing that other patterns over the same ops would share.
MOST = 4.0


@dataclass(frozen=True)
class Comparison:
    """Measured microseconds of some ops.

    Attributes:
        ours_us: with the patterns among them stitched
        xla_us: as XLA compiles all of them
        patterns: how many patterns that were
    """

    ours_us: float
    xla_us: float
    patterns: int = 1


@dataclass(frozen=True)
class Evidence:
    """What plans rest on besides the model: comparisons by what was compared. It is not `whole`
    where something could not be measured just then, because the GPU was busy, say. Of a program
    that is `tried` as a whole less need be proven before; where that trial came first (`put_off`),
    nothing is, and the plans are the model's."""

    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    whole: bool = True
    tried: bool = False
    put_off: bool = False


@dataclass(frozen=True)
class _Ratio:
    """Measured times over modelled ones, as logarithms: of XLA's kernels, and of stitched ones."""

    xla: float
    ours: float


@dataclass(eq=False)
class Findings:
    """How the patterns of one graph are judged by what was measured of some of them.

    Those that won in a comparison share what it won. Any other that has ops in common with measured
    ones is expected to differ from the model as those did. `doubts` says, once nothing more
    is measured, which patterns may not be chosen unmeasured.
    """

    gains: dict[int, float] = field(default_factory=dict)
    measured: dict[int, Comparison] = field(default_factory=dict)
    doubts: Callable[[Pattern, Score], bool] | None = None
    _ratios: dict[int, _Ratio] = field(default_factory=dict)

    def add(
        self, found: Comparison, scores: Mapping[int, Score], rest_us: float, call_us: float
    ) -> None:
        """Takes in what was measured of the patterns with these scores, by their bits.

        `rest_us` is what XLA's kernels around them are modelled to take beside the patterns,
        `call_us` what a stitched one costs more where it stands than where it was measured.
        """
        extra_us = call_us * len(scores)
        claimed = sum(score.xla_us for score in scores.values())
        modelled = sum(score.ours_us for score in scores.values())
        xla = _within(found.xla_us / (rest_us + claimed))
        ours = _within((found.ours_us + extra_us - xla * rest_us) / modelled)
        for bits in scores:
            self.measured[bits] = found
            self._ratios.update(dict.fromkeys(ids(bits), _Ratio(math.log(xla), math.log(ours))))
        won = found.xla_us - found.ours_us - extra_us
        if won > max(MARGIN_US, MEASURED_SHARE * found.xla_us):
            total = sum(score.gain_us for score in scores.values())
            self.gains.update((b, won * score.gain_us / total) for b, score in scores.items())
            return
        expected = {bits: self._expected(bits, score) for bits, score in scores.items()}
        least = min(expected, key=lambda bits: (expected[bits], bits))
        for bits, gain in expected.items():
            self.gains.pop(bits, None)
            if gain <= MARGIN_US or bits == least:  # one of them has to go
                self.gains[bits] = 0.0

    def judged(self, pattern: Pattern, score: Score) -> Score:
        """What the scorer says of a pattern, as far as measuring does not change it."""
        if not score.wins:
            return score
        if (gain := self.gains.get(pattern.bits)) is not None:
            return replace(score, gain_us=gain, reason="" if gain else SLOWER)
        # a measured one goes before one that is expected to win more by what times scatter by
        gain = self._expected(pattern.bits, score, MEASURED_SHARE)
        score = replace(score, gain_us=gain, reason="" if gain > MARGIN_US else UNLIKELY)
        if score.wins and self.doubts is not None and self.doubts(pattern, score):
            return replace(score, reason=UNPROVEN)
        return score

    def _expected(self, bits: int, score: Score, less: float = 0.0) -> float:
        """The gain of a pattern if each op differs from the model as measured ops did, `less` a
        share of XLA's time."""
        known = [self._ratios[i] for i in ids(bits) if i in self._ratios]
        if not known:
            return score.gain_us
        xla, ours = (sum(getattr(r, side) for r in known) for side in ("xla", "ours"))
        ops = bits.bit_count()
        xla_us, ours_us = math.exp(xla / ops) * score.xla_us, math.exp(ours / ops) * score.ours_us
        return (1 - less) * xla_us - ours_us


def _within(ratio: float) -> float:
    return min(MOST, max(1 / MOST, ratio))
