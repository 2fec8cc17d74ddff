"""The schedule of a kernel, and others near it: the fastest by the account is taken.

The defaults go by rules of thumb. How many blocks of what size work on a phase, how many threads
share a row, and into how many parts a sum is split decides how far loads hide what others wait for,
and what a barrier costs: here the statements of each are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from fusionstitch.codegen.decisions import settle
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.nearby import choice_of, regrouped, resized
from fusionstitch.codegen.schedule.choice import Choice, elements
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.split import find_splits
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
#: What a step has to take at most of what there was.
WORTH = 0.98
#: Parts of split sums, beside the default's.
PARTS = (2.0, 4.0, 0.5)
#: What another schedule has to take at most, as a share of the default's time: the model is not
#: nearer. Of the replay's 500 kernels on an H100, the 46 that get another one at 0.95 take 0.87 of
#: the time of their defaults, 9 of them more.
SHARE = 0.92


def fastest(first: Draft, settings: Settings) -> Draft:
    """A draft, or one of the same under another schedule that is faster by the account."""
    options, device = settings.options, settings.device
    asked = options.template is not None or options.tuning != DEFAULT
    plan = first.scheduled.plan
    long = sum(map(len, plan.phases)) > MOST_GROUPS
    if asked or long or not proven(first.account):
        return first
    us = account_us(first.account, device)
    least = least_us(replace(first.account.work, l2_bytes=0), device)
    if us < LEAST_US or least >= SHARE * us:
        return first
    best, best_us = first, us
    for _ in range(STEPS):
        found = [(account_us(one.account, device), one) for one in _drafts(best, settings)]
        near_us, near = min(found, key=lambda each: each[0], default=(best_us, best))
        if near_us >= WORTH * best_us:
            break
        best, best_us = near, near_us
    return replace(best, default_us=us) if best_us < SHARE * us else first


def _drafts(of: Draft, settings: Settings) -> Iterator[Draft]:
    for other in others(of, settings):
        with suppress(CodegenError):
            yield Draft.of(other, settings.options)


def others(of: Draft, settings: Settings) -> Iterator[Scheduled]:
    """The schedules near one, as far as they fit the device: `MOST` at most are tried."""
    own = of.scheduled
    yield from _split(own, settings)
    for choice in islice(_choices(own.plan, of.account, settings.device), MOST - len(PARTS)):
        with suppress(CodegenError):
            other = settle(own.graph, choice, settings, Way.MERGE, NOBODY)
            yield replace(other, splits=own.splits, before=own.before)


def _split(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The same with its sums split into other numbers of parts."""
    if own.before is None or not own.splits:
        return
    for parts in PARTS:
        splits = find_splits(own.before, settings.device, parts)
        if splits != own.splits:
            with suppress(CodegenError):
                yield split_so(own.before, splits, settings, Way.MERGE, NOBODY)


def _choices(plan: KernelPlan, account: Account, device: Device) -> Iterator[Choice]:
    """Other blocks, and other tiles and teams where most of the time goes: in the group that visits
    most elements of the phase that takes longest."""
    base = choice_of(plan)
    yield from resized(base, reach=1)
    if plan.blocks_per_sm and plan.blocks_per_sm > 1:
        yield replace(base, blocks_per_sm=plan.blocks_per_sm // 2)
    times = list(phases_us(account, device, missed_again(account, device)))
    longest = max(range(len(base.phases)), key=times.__getitem__)
    groups = base.phases[longest]
    heaviest = max(range(len(groups)), key=lambda n: elements(groups[n].group))
    yield from regrouped(base, longest, heaviest, reach=1)
