"""Barriers inside a block whose teams meet among themselves.

Teams of several warps join what they have at named barriers. Each team of each size has a number of
its own (fs_team_barrier), because warps of one block may be at different rows, loops and tiles, as
parts of teams of different sizes. The numbers suffice for two, four or eight teams of a size, which
is what the schedule makes of any block (`team_in` of `schedule/tuning.py`); another one is refused.

What warps join lies at the front of shared memory, by warp, until the slowest has read it. Loops
that use it in the same way may follow each other: a warp writes to its own places alone, and only
once its team has read them. Before any other use of the front the whole block must have met.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Set

from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan
from fusionstitch.codegen.schedule.tuning import MOST_TEAMS
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.hlo.errors import CodegenError


def check_teams(plan: KernelPlan) -> None:
    """Raises CodegenError unless every team of several warps has a barrier of its own."""
    for nest in (nest for group in plan.groups for nest in group.nests):
        teams, left = divmod(plan.block, nest.teams.threads)
        if not joins_in_teams(nest, plan.block):
            continue
        if left or teams > MOST_TEAMS or teams & (teams - 1):
            raise CodegenError(
                f"{nest.teams.threads} of {plan.block} threads cannot share a row: a block has "
                f"barriers for 2, 4 or {MOST_TEAMS} teams of a size."
            )


def joins_in_teams(nest: NestPlan, block: int) -> bool:
    """Whether parts of a block join what their warps have, each by itself."""
    joins = nest.teams.joins_warps and bool(nest.nest.placed(Place.REDUCE))
    return joins and nest.teams.threads < block


def joins_columns(nest: NestPlan, block: int) -> bool:
    """Whether the threads of a block join sums of columns."""
    if nest.teams.columns:
        return bool(nest.nest.placed(Place.REDUCE))
    return bool(nest.nest.placed(Place.CARRY)) and nest.teams.threads < block


def settled(plan: KernelPlan, shared: Set[Stage]) -> frozenset[NestPlan]:
    """The nests that end with a barrier of the block, beside those that groups have for the sake of
    their `shared` values: what comes next uses the front of shared memory in another way."""
    found: set[NestPlan] = set()
    for phase in plan.phases:
        uses = {_use(nest, plan.block) for group in phase for nest in group.nests} - {None}
        if len(uses) < 2:
            continue
        behind = uses if plan.loops(phase) else set()
        for group in phase:
            meets = not shared.isdisjoint(group.group.stages)
            found.update(_unsettled(group, behind, meets, plan.block))
    return frozenset(found)


def _unsettled(
    group: GroupPlan, behind: set[Hashable], meets: bool, block: int
) -> Iterator[NestPlan]:
    """The nests of a group that must wait for the block: uses of those that may come after the
    group are `behind`; one that `meets` does so after every nest that others follow."""
    for number, nest in enumerate(group.nests):
        later = group.nests[number + 1 :]
        if not _leaves(nest, block) or (meets and (later or behind)):
            continue
        uses = behind.union(_use(other, block) for other in later)
        if uses - {None, _use(nest, block)}:
            yield nest


def _leaves(nest: NestPlan, block: int) -> bool:
    """Whether warps may still read the front of shared memory when others are done with a nest."""
    if nest.tile is not None:
        return nest.tile.columns > 0
    if joins_columns(nest, block):
        return False
    return len(_levels(nest)) > 1 or joins_in_teams(nest, block)


def _use(nest: NestPlan, block: int) -> Hashable:
    """How a nest uses the front of shared memory (None: not at all). Where two are equal, warps
    agree on whose place is where, or begin with a barrier."""
    if nest.tile is not None:
        return "columns" if nest.tile.columns else "parts" if nest.tile.shares > 1 else None
    if joins_columns(nest, block):
        return "threads"
    return _levels(nest) or None


def _levels(nest: NestPlan) -> tuple[tuple[int, ...], ...]:
    """Bytes of the values that warps join at each level of a nest."""
    if not nest.teams.joins_warps:
        return ()
    reduced = nest.nest.placed(Place.REDUCE)
    return tuple(
        tuple(compute_bytes(s.op.dtype) for s in reduced if nest.nest.level[s] == level)
        for level in sorted({nest.nest.level[s] for s in reduced})
    )
