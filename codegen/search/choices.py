"""The choices near one: what differs from it in one decision.

Another number of points to a tile of a group, another team or register tile of one of its loops,
blocks of another size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from fusionstitch.codegen.dots.tile import possible_tiles
from fusionstitch.codegen.schedule.choice import Choice, GroupChoice, LoopChoice
from fusionstitch.codegen.schedule.defaults import in_columns
from fusionstitch.codegen.schedule.looped import Launch, check_teams
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, Teams
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.errors import CodegenError

T = TypeVar("T")

#: Rows that lie along the lanes where they did not: as many as share a sector, or a warp.
COLUMNS = (8, WARP)
#: The smallest block that is tried.
LEAST_BLOCK = 64


def choice_of(plan: KernelPlan) -> Choice:
    """The choice that a schedule follows from, but for its launch."""
    return Choice(
        plan.block,
        tuple(tuple(map(_group, phase)) for phase in plan.phases),
        plan.cluster,
        tuning=replace(plan.tuning, blocks_per_sm=None),
    )


def _group(plan: GroupPlan) -> GroupChoice:
    loops = tuple(LoopChoice(nest.nest, nest.teams, nest.tile) for nest in plan.nests)
    return GroupChoice(plan.group, plan.points, loops, plan.shared)


def near(value: int, reach: int = 2) -> list[int]:
    """Half of a number and twice as much, and half and twice of these, so often."""
    steps = range(1, reach + 1)
    return [n for step in steps for n in (value >> step, value << step) if n]


def resized(base: Choice, most: int, reach: int = 2) -> Iterator[Choice]:
    """A choice with blocks of other sizes, of `most` threads at most, where teams do not depend on
    them."""
    for size in near(base.block, reach):
        if size <= most and (found := _resized(base, size)) is not None:
            yield found


def _resized(base: Choice, size: int) -> Choice | None:
    if size < LEAST_BLOCK or base.cluster > 1:
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


def regrouped(base: Choice, phase: int, groups: Sequence[int], reach: int = 2) -> Iterator[Choice]:
    """A choice with another one for some groups of a phase, the same change to each."""
    old = base.phases[phase]
    for others in zip(*(_groups(old[group], base, reach) for group in groups), strict=False):
        changed = old
        for group, other in zip(groups, others, strict=True):
            changed = _exchanged(changed, group, other)
        yield replace(base, phases=_exchanged(base.phases, phase, changed))


def alike(groups: Sequence[GroupChoice], group: int) -> list[int]:
    """The groups for which the same as for one of them was chosen, itself included."""
    return [n for n, other in enumerate(groups) if _form(other) == _form(groups[group])]


def _form(group: GroupChoice) -> Hashable:
    return group.points, tuple((loop.teams, loop.tile) for loop in group.loops)


def _groups(group: GroupChoice, base: Choice, reach: int) -> Iterator[GroupChoice]:
    """A group with other points to a tile, or another team or tile of one loop."""
    nests = [loop.nest for loop in group.loops]
    fixed = group.group.streamed or base.cluster > 1 or any(nest.carries for nest in nests)
    tiled = any(loop.tile for loop in group.loops)
    most = group.group.tiles
    for points in () if fixed or tiled else near(group.points, reach):
        if points <= most:
            yield replace(group, points=points)
    for n, loop in enumerate(group.loops):
        for other in _loops(loop, group, base, reach):
            yield replace(group, loops=_exchanged(group.loops, n, other))


def _loops(loop: LoopChoice, group: GroupChoice, base: Choice, reach: int) -> Iterator[LoopChoice]:
    if loop.tile is not None and not loop.tile.columns:
        for tile in possible_tiles(group.group, loop.nest, group.points, base.block):
            if tile != loop.tile:
                yield replace(loop, tile=tile, teams=Teams(tile.team))
    elif loop.tile is None and base.cluster == 1:
        for teams in _teams(loop, base.block, reach):
            try:
                check_teams("", loop.nest, group.group, teams, Launch(base.block))
            except CodegenError:
                continue
            yield replace(loop, teams=teams)


def _teams(loop: LoopChoice, block: int, reach: int) -> Iterator[Teams]:
    """Teams of other sizes, and where rows can lie along the lanes, of the other kind."""
    teams = loop.teams
    if teams.columns:
        for columns in near(teams.columns, reach):
            if 2 * columns <= block:
                yield Teams(block // columns, columns)
        yield Teams(WARP)
    else:
        yield from map(Teams, near(teams.threads, reach))
        if in_columns(loop.nest):
            yield from (Teams(block // columns, columns) for columns in COLUMNS if columns < block)


def _exchanged(those: tuple[T, ...], position: int, other: T) -> tuple[T, ...]:
    return (*those[:position], other, *those[position + 1 :])
