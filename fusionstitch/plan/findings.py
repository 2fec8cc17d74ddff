"""What measurements revealed about the patterns of a graph, in the unit of their scores."""

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
#: Ratios of measured to modelled times are clamped to this factor, and to its inverse: larger
#: differences would not apply to other patterns over the same ops.
MOST = 4.0


@dataclass(frozen=True)
class Comparison:
    """Measured microseconds of some ops.

    Attributes:
        ours_us: with the patterns among them stitched
        xla_us: as XLA compiles all of them
        patterns: the number of these patterns
    """

    ours_us: float
    xla_us: float
    patterns: int = 1


@dataclass(frozen=True)
class Evidence:
    """What plans rest on besides the model: comparisons by group key.

    It is not `whole` if something could not be measured at the time, for example on a busy GPU. A
    program that is `tried` as a whole needs less proof beforehand. If that trial came first
    (`put_off`), nothing was measured, and the plans are the model's.
    """

    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    whole: bool = True
    tried: bool = False
    put_off: bool = False


@dataclass(frozen=True)
class _Ratio:
    """Measured over modelled times, as logarithms: of XLA's kernels, and of stitched ones."""

    xla: float
    ours: float


@dataclass(eq=False)
class Findings:
    """Judges the patterns of one graph by measurements of some of them.

    Patterns that won in a comparison share its gain. Any other pattern with ops in common with
    measured ones is expected to differ from the model as those did. Once nothing more is measured,
    `doubts` says which patterns may not be chosen unmeasured.
    """

    gains: dict[int, float] = field(default_factory=dict)
    measured: dict[int, Comparison] = field(default_factory=dict)
    doubts: Callable[[Pattern, Score], bool] | None = None
    _ratios: dict[int, _Ratio] = field(default_factory=dict)

    def add(
        self, found: Comparison, scores: Mapping[int, Score], rest_us: float, call_us: float
    ) -> None:
        """Adds a measurement of the patterns with these scores, by their bits.

        `rest_us` is the modelled time of XLA's kernels around them, without the patterns. `call_us`
        is the extra cost of a stitched kernel in its program, compared to where it was measured.
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
            if gain <= MARGIN_US or bits == least:  # one of them must be dropped
                self.gains[bits] = 0.0

    def judged(self, pattern: Pattern, score: Score) -> Score:
        """The score of a pattern, adjusted by the measurements."""
        if not score.wins:
            return score
        if (gain := self.gains.get(pattern.bits)) is not None:
            return replace(score, gain_us=gain, reason="" if gain else SLOWER)
        # a measured pattern precedes one whose expected gain is larger only by noise
        gain = self._expected(pattern.bits, score, MEASURED_SHARE)
        score = replace(score, gain_us=gain, reason="" if gain > MARGIN_US else UNLIKELY)
        if score.wins and self.doubts is not None and self.doubts(pattern, score):
            return replace(score, reason=UNPROVEN)
        return score

    def _expected(self, bits: int, score: Score, less: float = 0.0) -> float:
        """The gain of a pattern if each op differs from the model as measured ops did, with XLA's
        time reduced by the share `less`."""
        known = [self._ratios[i] for i in ids(bits) if i in self._ratios]
        if not known:
            return score.gain_us
        xla, ours = (sum(getattr(r, side) for r in known) for side in ("xla", "ours"))
        ops = bits.bit_count()
        xla_us, ours_us = math.exp(xla / ops) * score.xla_us, math.exp(ours / ops) * score.ours_us
        return (1 - less) * xla_us - ours_us


def _within(ratio: float) -> float:
    return min(MOST, max(1 / MOST, ratio))
