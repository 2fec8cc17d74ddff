"""The schedule of a kernel, and others near it: the fastest by the cost estimate is taken.

The defaults go by rules of thumb. The number and size of blocks, the threads that share a row and
the parts of a split sum decide how well latency is hidden, and what a barrier costs. Here the
statements of each schedule are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.ir.walk import every
from fusionstitch.codegen.schedule.choice import elements
from fusionstitch.codegen.schedule.tuning import DEFAULT
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.search.choices import alike, choice_of
from fusionstitch.codegen.search.descent import descend
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.search.neighbours import Focus, moved
from fusionstitch.codegen.settings import Settings
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.kernel_time import (
    cost_us,
    least_us,
    missed_again,
    phases_us,
    proven,
)

#: Kernels that take less are not compared, microseconds: what there is to win is no longer than
#: what the model is off by.
LEAST_US = 10.0
#: Kernels of more groups are not compared: their sums have been dealt the blocks that there are by
#: default (`schedule/shares.py`), and lowering them several times takes long.
MOST_GROUPS = 16
#: Moves that are tried first, and those of which so many are tried.
SPLITS = ("parts of sums", "values computed once")
CHOICES, MOST = ("threads of a block", "blocks of a multiprocessor", "teams and tiles"), 14
#: How often the fastest one so far is gone on from.
STEPS = 3
#: Nodes of the statements of all schedules of a kernel that are looked at: lowering so many takes a
#: second or two, and of a kernel of 11,000 nodes 28 schedules took 20.
MOST_NODES = 20_000
#: What a step has to take at most of what there was.
WORTH = 0.98
#: What another schedule has to take at most, as a share of the default's time: what came of it is
#: in docs/benchmarks.md, "Kernels before and after a change".
SHARE = 0.95

#: Schedules of a region by their text, which says all of them, and whether there is a kernel.
Seen = dict[str, bool]


def fastest(first: Draft, settings: Settings) -> Draft:
    """A draft, or one of the same under another schedule that is faster by the cost estimate."""
    options, device = settings.options, settings.device
    requested = options.template is not None or options.tuning != DEFAULT or not options.compared
    plan = first.scheduled.plan
    long = sum(map(len, plan.phases)) > MOST_GROUPS
    if requested or long or not proven(first.cost):
        return first
    times = _times(first, device)
    bound = least_us(replace(first.cost.work, l2_bytes=0), device)
    if times[0] < LEAST_US or bound >= SHARE * times[0]:
        return first
    left = MOST_NODES // sum(1 for _ in every((*first.lowered.body, *first.lowered.functions)))
    seen: Seen = {first.scheduled.template: True}

    def near(one: Draft) -> Iterator[tuple[float, Draft]]:
        nonlocal left
        for other in islice(_drafts(one, settings, seen), left):
            left -= 1
            if other is not None:
                yield _share(_times(other, device), times), other

    share, best = descend(first, 1.0, near, worth=WORTH, steps=STEPS)
    return replace(best, default_us=times[0]) if share < SHARE else first


def _times(one: Draft, device: Device) -> list[float]:
    """What a draft takes if one thread goes the longest way, and if all of a block do."""
    return [cost_us(one.cost, device, crowded=crowded) for crowded in (False, True)]


def _share(times: Sequence[float], first: Sequence[float]) -> float:
    """What a draft takes of the first one's time, whichever it is."""
    return max(us / first_us for us, first_us in zip(times, first, strict=True))


def _drafts(of: Draft, settings: Settings, seen: Seen) -> Iterator[Draft | None]:
    """Those near one that can be written; None for one that was `seen`: the neighbours of two
    schedules that are near each other are in part the same."""
    for other in others(of, settings):
        key = other.template
        if key not in seen:
            seen[key] = False
            with LeftOut(settings.options.check):
                draft = Draft.of(other, settings.options, settings.device)
                seen[key] = True
                yield draft
        elif seen[key]:
            yield None


def others(of: Draft, settings: Settings) -> Iterator[Scheduled]:
    """The schedules near one: with other parts of sums, other blocks, and other tiles and teams
    where most of the time goes."""
    own, focus = of.scheduled, _heaviest(of, settings.device)
    yield from filter(None, moved(own, settings, SPLITS, focus))
    yield from filter(None, islice(moved(own, settings, CHOICES, focus), MOST))


def _heaviest(of: Draft, device: Device) -> Focus:
    """The group that visits most elements of the phase that takes longest, and those that are as it
    is."""
    phases, cost = choice_of(of.scheduled.plan).phases, of.cost
    visited = [[elements(one.group) for one in groups] for groups in phases]
    times = list(phases_us(cost, device, missed_again(cost, device)))
    # phases that nothing orders have no barrier between them, and are priced as one
    known = times if len(times) == len(phases) else [sum(each) for each in visited]
    longest = max(range(len(phases)), key=known.__getitem__)
    heaviest = max(range(len(phases[longest])), key=visited[longest].__getitem__)
    return Focus(longest, alike(phases[longest], heaviest))
