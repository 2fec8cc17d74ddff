"""What is tried after a stitched program has lost: half of its patterns."""

from __future__ import annotations

from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.model_errors import errors
from fusionstitch.plan.plan import Chosen
from fusionstitch.plan.scores import kind_of_pattern
from fusionstitch.trial.outcome import LEFT


def halved(result: Stitched) -> Stitched | None:
    """The same program without the half of its patterns whose gain is proven least; None where that
    leaves nothing, or where nobody knows how to write it again."""
    if result.rewrite is None:
        return None
    all_of_it = result.stitches
    ranked = sorted(range(len(all_of_it)), key=lambda n: (-proven_us(all_of_it[n].chosen), n))
    stays = sorted(ranked[: len(all_of_it) // 2])
    return result.only([all_of_it[n] for n in stays], LEFT) if stays else None


def proven_us(chosen: Chosen) -> float:
    """What a pattern is sure to win: as measured, or as modelled less what the model errs by."""
    if (measured := chosen.measured) is not None:
        return (measured.xla_us - measured.ours_us) / measured.patterns
    error = errors()[kind_of_pattern(chosen.pattern.ops)].usual
    return chosen.xla_us - chosen.modelled_us - error * chosen.xla_us
