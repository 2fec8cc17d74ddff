"""How the threads of a block walk the rows of a nest."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Expr,
    Name,
    Number,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.statements import For, Frame, If, Let
from fusionstitch.codegen.ir.types import IndexType
from fusionstitch.codegen.lower.access import Access
from fusionstitch.codegen.schedule.schedule import Teams


@dataclass(frozen=True)
class RowLoop:
    """`frame` is the loop, `row` the statement that finds this thread's row (None if the frame
    does). `live` is the condition under which the row is its own (None: always), `lane` the
    thread's number in its team (None if it is alone).

    `first` is the first row that a thread visits, where rows are known ahead."""

    frame: Frame | None = None
    row: Expr | None = None
    live: Expr | None = None
    lane: Expr | None = None
    first: Expr | None = None


def row_loop(
    name: str,
    rows: int,
    limit: Expr,
    teams: Teams,
    block: int,
    int_: IndexType,
    thread: Expr = THREAD,
    together: bool = False,
) -> RowLoop:
    """The loop over `rows` rows of which `limit` are there in this tile, by `block` threads of
    which this is number `thread`.

    Whole warps go separate ways: a team of them has barriers of its own, and is done where it has
    no row. Loops whose body joins lanes of different rows must not diverge: there a team without a
    row of its own repeats the last one, and `live` keeps it from storing. `together`: the body has
    barriers of the whole block.
    """
    threads = teams.threads
    per_pass = max(1, block // threads)
    exact = limit == number(rows) and rows % per_pass == 0
    lane = _lane(teams, block, thread)
    free = teams.goes_alone and not together
    team: Expr = infix("%", thread, teams.columns) if teams.columns else infix("/", thread, threads)
    if threads == 1:
        team = thread
    if rows == 1:
        return _single_row(teams, team, lane, block, together)
    if threads >= block:
        return RowLoop(For(int_, name, Number("0"), limit), lane=lane, first=Number("0"))
    once = rows <= per_pass
    if once and exact:
        return RowLoop(row=team, lane=lane)
    if once and free:
        return RowLoop(If(infix("<", Name(name), limit), Let(int_, name, team)), lane=lane)
    if free:
        loop = For(int_, name, team, limit, step=per_pass)
        return RowLoop(loop, lane=lane, first=team)
    last = infix("-", limit, 1)
    if once:
        return RowLoop(row=least(int_, team, last), live=infix("<", team, limit), lane=lane)
    base = f"{name}_base"
    loop = For(int_, base, Number("0"), limit, step=per_pass)
    row = infix("+", Name(base), team)
    if exact:
        return RowLoop(loop, row, None, lane, team)
    return RowLoop(loop, least(int_, row, last), infix("<", row, limit), lane)


def _lane(teams: Teams, block: int, thread: Expr) -> Expr | None:
    if teams.threads == 1:
        return None
    if teams.columns:
        return infix("/", thread, teams.columns)
    if teams.threads > block:
        own = infix("*", infix("%", BLOCK, teams.threads // block), block)
        return infix("+", own, thread)
    return thread if teams.threads == block else infix("%", thread, teams.threads)


def _single_row(teams: Teams, team: Expr, lane: Expr | None, block: int, together: bool) -> RowLoop:
    first = infix("==", team, 0)
    if teams.columns:
        return RowLoop(live=first if teams.columns > 1 else None, lane=lane)
    if teams.threads >= block:
        return RowLoop(lane=lane)
    if teams.threads == 1:
        return RowLoop(If(infix("==", THREAD, 0)), lane=lane)
    if together:
        return RowLoop(live=first, lane=lane)
    live = None if teams.goes_alone else first
    return RowLoop(If(infix("<", THREAD, max(32, teams.threads))), live=live, lane=lane)


def point_limit(access: Access) -> Expr | None:
    """The grid points in this tile, if rows of others are visited as well."""
    if not access.group.ragged or not access.digits.points_last:
        return None
    limit = access.writer.name("point_count")
    access.writer.let(access.int, limit, _points(access))
    return Name(limit)


def _points(access: Access) -> Expr:
    """The grid points in this tile."""
    group, left = access.group, access.points
    if group.tiles > 1:
        left = infix("-", left, infix("*", Name(access.tile), group.points))
    return least(None, group.points, left)


def row_limit(access: Access, width: int) -> Expr:
    """The rows in this tile, in units of `width`."""
    group, rows = access.group, access.plan.rows
    if not group.ragged or access.digits.points_last:
        return number(rows // width)
    limit = access.writer.name("row_count")
    count = _points(access)
    scale = rows // group.points
    count = infix("*", count, scale) if scale > 1 else count
    count = infix("/", count, width) if width > 1 else count
    access.writer.let(access.int, limit, count)
    return Name(limit)
