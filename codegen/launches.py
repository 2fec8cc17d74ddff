"""A schedule in other blocks: of another size, or more or fewer of them on a multiprocessor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusionstitch.codegen.schedule.choice import Choice, GroupChoice, LoopChoice
from fusionstitch.codegen.schedule.clusters import MOST_THREADS
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, Teams

#: The smallest block that is tried.
LEAST_BLOCK = 64


def choice_of(plan: KernelPlan) -> Choice:
    """The choice that a schedule follows from, but for its launch."""
    return Choice(
        plan.block,
        tuple(tuple(map(_group, phase)) for phase in plan.phases),
        plan.cluster,
        tuning=replace(plan.tuning, blocks_per_sm=None, persistent=False),
    )


def _group(plan: GroupPlan) -> GroupChoice:
    loops = tuple(LoopChoice(nest.nest, nest.teams, nest.tile) for nest in plan.nests)
    return GroupChoice(plan.group, plan.points, loops, plan.shared)


def near(value: int) -> list[int]:
    """Half of a number and twice as much, and half and twice of these."""
    return [n for n in (value // 2, 2 * value, value // 4, 4 * value) if n]


def resized(base: Choice) -> Iterator[Choice]:
    """A choice with blocks of other sizes, where teams do not depend on them."""
    for size in near(base.block):
        if (found := _resized(base, size)) is not None:
            yield found


def _resized(base: Choice, size: int) -> Choice | None:
    if not LEAST_BLOCK <= size <= MOST_THREADS or base.cluster > 1:
        return None
    phases = []
    for phase in base.phases:
        groups = []
        for group in phase:
            loops = [_in_block(loop, base.block, size) for loop in group.loops]
            if any(loop.tile or not _fits(loop.teams, size) for loop in loops):
                return None
            groups.append(replace(group, loops=tuple(loops)))
        phases.append(tuple(groups))
    return replace(base, block=size, phases=tuple(phases))


def _fits(teams: Teams, block: int) -> bool:
    return max(teams.threads, 2 * teams.columns) <= block


def _in_block(loop: LoopChoice, block: int, size: int) -> LoopChoice:
    """A loop in a block of another size: who had all its threads has them again."""
    teams = loop.teams
    if teams.columns:
        return replace(loop, teams=Teams(max(1, size // teams.columns), teams.columns))
    return replace(loop, teams=Teams(size)) if teams.threads == block else loop
