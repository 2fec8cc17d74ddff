"""Who has which bytes of shared memory when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.exchange_scratch import ExchangeBuffer
from fusionstitch.codegen.memory.shared import Allocation
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.snapshots.page import label


@dataclass(frozen=True)
class Life:
    """What lies at bytes `offset` and after from one step of its group to another, both
    included. What threads `exchange` is no value of the program."""

    what: str
    offset: int
    bytes: int
    first: int
    last: int
    exchange: bool = False


@dataclass(frozen=True)
class Lives:
    """Shared memory during one group of loops: all that a block has it has to itself."""

    group: int
    lives: Sequence[Life]


def lives(scheduled: Scheduled) -> Sequence[Lives]:
    """What of each group that has any lies in shared memory, in the order of its steps."""
    found = []
    for number, group in enumerate(scheduled.plan.groups):
        own: list[Life] = []
        stages = set(group.group.stages)
        for plan in scheduled.layout.plans:
            for stage, allocation in plan.results.items():
                if isinstance(stage, Stage) and stage in stages:
                    own.append(_life(label(stage.op), allocation))
            for exchange, allocation in plan.scratch.items():
                if isinstance(exchange, ExchangeBuffer) and exchange.nest in group.nests:
                    own.append(_life(label(exchange.stages[0].op), allocation, exchange=True))
        if own:
            found.append(Lives(number, sorted(own, key=lambda one: (one.first, one.offset))))
    return found


def _life(what: str, one: Allocation, exchange: bool = False) -> Life:
    return Life(what, one.offset, one.bytes, one.first, one.last, exchange)
