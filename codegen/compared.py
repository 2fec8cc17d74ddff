"""The schedule of a kernel, and others near it: the fastest by the account is taken.

The defaults go by rules of thumb. How many blocks of what size work on a phase, how many threads
share a row, and into how many parts a sum is split decides how far loads hide what others wait for,
and what a barrier costs: here the statements of each are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from fusionstitch.codegen.decisions import settle
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.ir.walk import every
from fusionstitch.codegen.nearby import alike, choice_of, regrouped, resized
from fusionstitch.codegen.schedule.choice import Choice, elements
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.split import possible_parts
from fusionstitch.codegen.schedule.tuning import DEFAULT
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.codegen.ways import split_so
from fusionstitch.costmodel.account import Account
from fusionstitch.costmodel.account_time import (
    account_us,
    least_us,
    missed_again,
    phases_us,
    proven,
)
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError

#: Kernels that take less are not compared, microseconds: what there is to win is no longer than
#: what the model is off by.
LEAST_US = 10.0
#: Kernels of more groups are not compared: their sums have been dealt the blocks that there are by
#: default (`schedule/shares.py`), and lowering them several times takes long.
MOST_GROUPS = 16
#: Schedules that are looked at near one.
MOST = 16
#: How often the fastest one so far is gone on from.
STEPS = 3
#: Nodes of the statements of all schedules of a kernel that are looked at: lowering so many takes a
#: second or two, and of a kernel of 11,000 nodes 28 schedules took 20.
MOST_NODES = 40_000
#: What a step has to take at most of what there was.
WORTH = 0.98
#: Factors for the parts of split sums.
PARTS = (2.0, 0.5)
#: What another schedule has to take at most, as a share of the default's time: what came of it is
#: in docs/benchmarks.md, "Kernels before and after a change".
SHARE = 0.95

#: Schedules of a region by their text, which says all of them, and whether there is a kernel.
Seen = dict[str, bool]


def fastest(first: Draft, settings: Settings) -> Draft:
    """A draft, or one of the same under another schedule that is faster by the account."""
    options, device = settings.options, settings.device
    asked = options.template is not None or options.tuning != DEFAULT or not options.compared
    plan = first.scheduled.plan
    long = sum(map(len, plan.phases)) > MOST_GROUPS
    if asked or long or not proven(first.account):
        return first
    times = _times(first, device)
    bound = least_us(replace(first.account.work, l2_bytes=0), device)
    if times[0] < LEAST_US or bound >= SHARE * times[0]:
        return first
    best, share = first, 1.0
    left = MOST_NODES // sum(1 for _ in every((*first.lowered.body, *first.lowered.functions)))
    seen: Seen = {first.scheduled.template: True}
    for _ in range(STEPS):
        tried = list(islice(_drafts(best, settings, seen), left))
        left -= len(tried)
        found = [(_share(_times(one, device), times), one) for one in tried if one is not None]
        least, near = min(found, key=lambda each: each[0], default=(share, best))
        if least >= WORTH * share:
            break
        best, share = near, least
    return replace(best, default_us=times[0]) if share < SHARE else first


def _times(one: Draft, device: Device) -> list[float]:
    """What a draft takes if one thread goes the longest way, and if all of a block do."""
    return [account_us(one.account, device, crowded=crowded) for crowded in (False, True)]


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
            with suppress(CodegenError):
                draft = Draft.of(other, settings.options, settings.device)
                seen[key] = True
                yield draft
        elif seen[key]:
            yield None


def others(of: Draft, settings: Settings) -> Iterator[Scheduled]:
    """The schedules near one, as far as they fit the device: `MOST` at most are tried."""
    own = of.scheduled
    yield from _split(own, settings)
    for choice in islice(_choices(own.plan, of.account, settings.device), MOST - len(PARTS)):
        with suppress(CodegenError):
            other = settle(own.graph, choice, settings, Way.MERGE, NOBODY)
            yield replace(other, splits=own.splits, before=own.before)


def _split(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The same with its sums split into more or fewer parts."""
    if own.before is None:
        return
    ops = {op.id: op for op in own.before if op.id in own.splits}
    for factor in PARTS:
        scaled = {
            i: replace(split, parts=possible_parts(ops[i], max(2, round(split.parts * factor))))
            for i, split in own.splits.items()
        }
        if ops and scaled != own.splits:
            with suppress(CodegenError):
                yield split_so(own.before, scaled, settings, Way.MERGE, NOBODY)


def _choices(plan: KernelPlan, account: Account, device: Device) -> Iterator[Choice]:
    """Other blocks, and other tiles and teams where most of the time goes: in the group that visits
    most elements of the phase that takes longest, and in those that are as it is."""
    base = choice_of(plan)
    yield from resized(base, reach=1)
    if plan.blocks_per_sm and plan.blocks_per_sm > 1:
        yield replace(base, blocks_per_sm=plan.blocks_per_sm // 2)
    times = list(phases_us(account, device, missed_again(account, device)))
    longest = max(range(len(base.phases)), key=times.__getitem__)
    groups = base.phases[longest]
    heaviest = max(range(len(groups)), key=lambda n: elements(groups[n].group))
    yield from regrouped(base, longest, alike(groups, heaviest), reach=1)
