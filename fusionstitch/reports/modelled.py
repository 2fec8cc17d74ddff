"""A whole program by the model: kernels, traffic and time, under XLA and stitched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionstitch.reports import counting
from fusionstitch.reports.counting import Count

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.plan.plan import Chosen, Plan


def _dropped(stitched: Stitched, plan: Plan) -> list[Chosen]:
    """Patterns of the plan that were not carried out."""
    carried = {id(one.chosen) for one in stitched.stitches}
    return [chosen for chosen in plan.chosen if id(chosen) not in carried]


def modelled_counts(stitched: Stitched) -> tuple[Count, Count]:
    """(XLA's, ours) as counts of the whole program."""
    xla = ours = Count()
    repeats = counting.runs_of(stitched.plans)
    for plan in stitched.plans:
        dropped = frozenset(c.pattern.bits for c in _dropped(stitched, plan))
        n = repeats.get(plan.program, 0)
        xla += counting.modelled_xla(plan, stitched.device).times(n)
        ours += counting.modelled_stitched(plan, stitched.device, dropped).times(n)
    return xla, ours


def modelled_times(stitched: Stitched) -> tuple[float, float]:
    """(XLA's, ours) as microseconds of the whole program."""
    repeats, xla, ours = counting.runs_of(stitched.plans), 0.0, 0.0
    for plan in stitched.plans:
        n = repeats.get(plan.program, 0)
        xla += n * plan.xla_us
        lost = sum(c.wins_us for c in _dropped(stitched, plan))
        ours += n * (plan.modelled_us + lost)
    return xla, ours
