"""Teams of several warps: how many of a size a block has barriers for.

Teams of several warps join what they have at named barriers. Each team of each size has a number of
its own (fs_team_barrier), because warps of one block may be at different rows, loops and tiles, as
parts of teams of different sizes. The numbers suffice for two, four or eight teams of a size, which
is what the schedule makes of any block (`team_in` of `schedule/tuning.py`); another one is refused.
"""

from __future__ import annotations

from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.schedule.schedule import KernelPlan, NestPlan
from fusionstitch.codegen.schedule.tuning import MOST_TEAMS
from fusionstitch.hlo.errors import CodegenError

#: Barriers that a block may have.
BLOCK_BARRIERS = 16


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


def barriers_of(plan: KernelPlan) -> int:
    """Barriers that a block takes: all there are where teams have their own, since a compiler does
    not know which of them these are."""
    nests = (nest for group in plan.groups for nest in group.nests)
    return BLOCK_BARRIERS if any(joins_in_teams(nest, plan.block) for nest in nests) else 1


def joins_in_teams(nest: NestPlan, block: int) -> bool:
    """Whether parts of a block join what their warps have, each by itself."""
    joins = nest.teams.joins_warps and bool(nest.nest.with_role(Role.REDUCE))
    return joins and nest.teams.threads < block
