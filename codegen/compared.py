"""The schedule of a kernel, and the same in other blocks: the fastest by the account is taken.

How many blocks of what size work on phases between grid barriers decides how far loads of one hide
what others wait for, and what a barrier costs. The defaults go by rules of thumb; here the
statements of each are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from fusionstitch.codegen.decisions import settle
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.launches import choice_of, resized
from fusionstitch.codegen.schedule.choice import Choice
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.tuning import DEFAULT
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.costmodel.account_time import account_us, proven
from fusionstitch.hlo.errors import CodegenError

#: Kernels that take less are not compared, microseconds: what there is to win is no longer than
#: what the model is off by.
LEAST_US = 10.0
#: Kernels of more groups are not compared: their sums have been dealt the blocks that there are by
#: default (`schedule/shares.py`), and lowering them several times takes long.
MOST_GROUPS = 16
#: What another schedule has to take at most, as a share of the default's time. Of 37 patterns and
#: 709 of their schedules on an H100 (`benchmarks/neighbours.py`) the default takes 1.14 times as
#: long as the fastest; what this share takes of those measured, 1.05.
SHARE = 0.95


def fastest(first: Draft, settings: Settings) -> Draft:
    """A draft, or one of the same in other blocks that is faster by the account."""
    options, device = settings.options, settings.device
    asked = options.template is not None or options.tuning != DEFAULT
    plan = first.scheduled.plan
    long = sum(map(len, plan.phases)) > MOST_GROUPS
    if asked or long or not plan.cooperative or not proven(first.account):
        return first
    us = account_us(first.account, device)
    if us < LEAST_US:
        return first
    found = [first]
    for other in others(first, settings):
        with suppress(CodegenError):
            found.append(Draft.of(other, options))
    best = min(found, key=lambda one: account_us(one.account, device))
    if account_us(best.account, device) >= SHARE * us:
        return first
    return replace(best, default_us=us)


def others(first: Draft, settings: Settings) -> Iterator[Scheduled]:
    """The same in other blocks, as far as it fits the device."""
    own = first.scheduled
    for choice in _choices(own.plan):
        with suppress(CodegenError):
            other = settle(own.graph, choice, settings, Way.MERGE, NOBODY)
            yield replace(other, splits=own.splits, before=own.before)


def _choices(plan: KernelPlan) -> Iterator[Choice]:
    base = choice_of(plan)
    yield from resized(base)
    if plan.blocks_per_sm and plan.blocks_per_sm > 1:
        yield replace(base, blocks_per_sm=plan.blocks_per_sm // 2)
