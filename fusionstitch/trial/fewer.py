"""The next attempt after a stitched program has lost: its winning patterns, or half of them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.model_errors import errors
from fusionstitch.errors import reason
from fusionstitch.plan.plan import Chosen
from fusionstitch.plan.scores import kind_of_pattern
from fusionstitch.runtime.apart import apart
from fusionstitch.runtime.outcome import Failed
from fusionstitch.trial.outcome import LEFT

logger = logging.getLogger(__name__)


def fewer(lost: Stitched, judge: Callable[[], Stitched] | None) -> Stitched | None:
    """The next attempt after a program has lost; None if no pattern is left. `judge` remakes it
    from the patterns that win when measured, if they were not measured yet. If all of them win, or
    `judge` fails, it is halved."""
    if judge is not None:
        judged = apart(judge)
        if isinstance(judged, Failed):
            logger.info("the patterns of %s were not measured: %s", lost.name, reason(judged.error))
        elif _patterns(judged) != _patterns(lost):
            return judged if judged.stitches else None
        else:
            lost = judged
    return halved(lost)


def _patterns(result: Stitched) -> set[object]:
    return {one.chosen.pattern for one in result.stitches}


def halved(result: Stitched) -> Stitched | None:
    """The same program without the half of its patterns whose gain is proven least. None if that
    leaves nothing, or if the module cannot be rewritten."""
    if result.rewrite is None:
        return None
    all_of_it = result.stitches
    ranked = sorted(range(len(all_of_it)), key=lambda n: (-proven_us(all_of_it[n].chosen), n))
    stays = sorted(ranked[: len(all_of_it) // 2])
    return result.only([all_of_it[n] for n in stays], LEFT) if stays else None


def proven_us(chosen: Chosen) -> float:
    """The gain that a pattern is sure to have: the measured one, or the modelled one less the
    model's error."""
    if (measured := chosen.measured) is not None:
        return (measured.xla_us - measured.ours_us) / measured.patterns
    error = errors()[kind_of_pattern(chosen.pattern.ops)].usual
    return chosen.xla_us - chosen.modelled_us - error * chosen.xla_us
