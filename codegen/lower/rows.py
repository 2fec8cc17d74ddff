"""How the threads of a block walk the rows of a nest."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.schedule.schedule import Teams


@dataclass(frozen=True)
class RowLoop:
    """`header` opens the loop, `row` is the statement that finds this thread's row ('' if the
    header does), `live` the condition under which the row is its own ('' if always), `lane` the
    C text of the thread's place in its team ('' if it is alone).

    Where a thread visits every `stride`-th row from `first` (C text) on, rows can be told ahead;
    elsewhere `stride` is 0."""

    header: str
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
        header = f"for ({int_} {name} = 0; {name} < {limit}; ++{name})"
        return RowLoop(header, "", "", lane, "0", 1)
    once = rows <= per_pass
    if once and exact:
        return RowLoop("", f"const {int_} {name} = {team};", "", lane)
    if once and free:
        return RowLoop(f"if (const {int_} {name} = {team}; {name} < {limit})", "", "", lane)
    if free:
        step = f"{name} += {per_pass}"
        header = f"for ({int_} {name} = {team}; {name} < {limit}; {step})"
        return RowLoop(header, "", "", lane, team, per_pass)
    if once:
        row = f"const {int_} {name} = fs_min<{int_}>({team}, {limit} - 1);"
        return RowLoop("", row, f"{team} < {limit}", lane)
    base = f"{name}_base"
    header = f"for ({int_} {base} = 0; {base} < {limit}; {base} += {per_pass})"
    if exact:
        row = f"const {int_} {name} = {base} + {team};"
        return RowLoop(header, row, "", lane, team, per_pass)
    row = f"const {int_} {name} = fs_min<{int_}>({base} + {team}, {limit} - 1);"
    return RowLoop(header, row, f"{base} + {team} < {limit}", lane)


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
        return RowLoop("", "", f"{team} == 0" if teams.columns > 1 else "", lane)
    if teams.threads >= block:
        return RowLoop("", "", "", lane)
    if teams.threads == 1:
        return RowLoop("if (threadIdx.x == 0)", "", "", lane)
    if together:
        return RowLoop("", "", f"{team} == 0", lane)
    live = "" if teams.goes_alone else f"{team} == 0"
    return RowLoop(f"if (threadIdx.x < {max(32, teams.threads)})", "", live, lane)
