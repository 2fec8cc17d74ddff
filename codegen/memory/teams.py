"""Teams of several warps: how many of a size a block has barriers for.

Teams of several warps join what they have at named barriers. Each team of each size has a number of
its own (fs_team_barrier), because warps of one block may be at different rows, loops and tiles, as
parts of teams of different sizes. The numbers suffice for two, four or eight teams of a size, which
is what the schedule makes of any block (`team_in` of `schedule/tuning.py`); another one is refused.
"""

from __future__ import annotations

from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.tuning import MOST_TEAMS
from fusionstitch.hlo.errors import CodegenError


def check_teams(plan: KernelPlan) -> None:
    """Raises CodegenError unless every team of several warps has a barrier of its own."""
    for nest in (nest for group in plan.groups for nest in group.nests):
        teams, left = divmod(plan.block, nest.teams.threads)
        if not nest.joins_in_teams(plan.block):
            continue
        if left or teams > MOST_TEAMS or teams & (teams - 1):
            raise CodegenError(
                f"{nest.teams.threads} of {plan.block} threads cannot share a row: a block has "
                f"barriers for 2, 4 or {MOST_TEAMS} teams of a size."
            )
