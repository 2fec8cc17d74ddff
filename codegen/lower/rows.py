"""How the threads of a block walk the rows of a nest."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.ir.statements import For, Frame, If, Let
from fusionstitch.codegen.schedule.schedule import Teams


@dataclass(frozen=True)
class RowLoop:
    """`frame` is the loop, `row` the C text that finds this thread's row ('' if the frame does),
    `live` the condition under which the row is its own ('' if always), `lane` the
    C text of the thread's place in its team ('' if it is alone).

    Where a thread visits every `stride`-th row from `first` (C text) on, rows can be told ahead;
    elsewhere `stride` is 0."""

    frame: Frame | None
    row: str
    live: str
    lane: str
    first: str = ""
    stride: int = 0


def row_loop(
    name: str,
    rows: int,
    limit: str,
    teams: Teams,
    block: int,
    int_: str,
    thread: str = "threadIdx.x",
    together: bool = False,
) -> RowLoop:
    """The loop over `rows` rows of which `limit` (C text) are there in this tile, by `block`
    threads of which this is number `thread` (C text).

    Whole warps go separate ways: a team of them has barriers of its own, and is done where it has
    no row. Loops whose body joins lanes of different rows must not diverge: there a team without a
    row of its own repeats the last one, and `live` keeps it from storing. `together`: the body has
    barriers of the whole block.
    """
    threads = teams.threads
    per_pass = max(1, block // threads)
    exact = limit == str(rows) and rows % per_pass == 0
    lane = _lane(teams, block, thread)
    free = teams.goes_alone and not together
    team = f"{thread} % {teams.columns}" if teams.columns else f"{thread} / {threads}"
    if threads == 1:
        team = thread
    if rows == 1:
        return _single_row(teams, team, lane, block, together)
    if threads >= block:
        return RowLoop(For(int_, name, "0", limit), "", "", lane, "0", 1)
    once = rows <= per_pass
    if once and exact:
        return RowLoop(None, team, "", lane)
    if once and free:
        return RowLoop(If(f"{name} < {limit}", Let(int_, name, team)), "", "", lane)
    if free:
        return RowLoop(
            For(int_, name, team, limit, step=str(per_pass)), "", "", lane, team, per_pass
        )
    if once:
        row = f"fs_min<{int_}>({team}, {limit} - 1)"
        return RowLoop(None, row, f"{team} < {limit}", lane)
    base = f"{name}_base"
    frame = For(int_, base, "0", limit, step=str(per_pass))
    if exact:
        return RowLoop(frame, f"{base} + {team}", "", lane, team, per_pass)
    row = f"fs_min<{int_}>({base} + {team}, {limit} - 1)"
    return RowLoop(frame, row, f"{base} + {team} < {limit}", lane)


def _lane(teams: Teams, block: int, thread: str) -> str:
    if teams.threads == 1:
        return ""
    if teams.columns:
        return f"{thread} / {teams.columns}"
    if teams.threads > block:
        return f"blockIdx.x % {teams.threads // block} * {block} + {thread}"
    return thread if teams.threads == block else f"{thread} % {teams.threads}"


def _single_row(teams: Teams, team: str, lane: str, block: int, together: bool) -> RowLoop:
    if teams.columns:
        return RowLoop(None, "", f"{team} == 0" if teams.columns > 1 else "", lane)
    if teams.threads >= block:
        return RowLoop(None, "", "", lane)
    if teams.threads == 1:
        return RowLoop(If("threadIdx.x == 0"), "", "", lane)
    if together:
        return RowLoop(None, "", f"{team} == 0", lane)
    live = "" if teams.goes_alone else f"{team} == 0"
    return RowLoop(If(f"threadIdx.x < {max(32, teams.threads)}"), "", live, lane)
