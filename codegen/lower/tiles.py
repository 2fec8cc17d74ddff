"""One nest with a register tile as statements: how its dots are added up is a table's business."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusionstitch.codegen.dots.tile import Kind
from fusionstitch.codegen.index_maps.index import render, variable
from fusionstitch.codegen.ir.expressions import Expr, infix, number
from fusionstitch.codegen.ir.statements import Group
from fusionstitch.codegen.lower.access import Site
from fusionstitch.codegen.lower.dot_rows import LaneSums, RowElements
from fusionstitch.codegen.lower.dot_runs import RunElements
from fusionstitch.codegen.lower.dot_tensor import TensorElements, TensorSums
from fusionstitch.codegen.lower.rows import row_limit, row_loop
from fusionstitch.codegen.lower.streams import lower_stream
from fusionstitch.codegen.lower.tile_levels import Levels
from fusionstitch.codegen.lower.tile_rows import TileRows


def lower_tile(site: Site) -> None:
    """Writes a nest whose threads hold several rows at once."""
    rows = TileRows(site)
    writer, plan, tile = rows.writer, rows.plan, rows.tile
    for stage in rows.nest.stages:
        writer.note(rows.access.comment(stage.op), (rows.access.label(stage.op),))
    if tile.kind is not Kind.STREAM:  # which names its own
        rows.access.declare_exchanges()
    team_rows = tile.team_rows
    units = -(-plan.rows // team_rows)
    limit = row_limit(rows.access, 1)
    unit = variable(writer.name("rows"), units)
    unit_limit: Expr = number(units)
    if rows.group.ragged:
        above = infix("/", infix("+", limit, team_rows - 1), team_rows)
        unit_limit = above if team_rows > 1 else limit
    thread, threads = rows.bind_threads()
    together = tile.kind is Kind.STREAM  # all threads of the block meet at barriers inside
    loop = row_loop(
        render(unit), units, unit_limit, plan.teams, threads, rows.int, thread, together
    )
    with writer.nested(loop.frame or Group(), ordered=True):
        if loop.row:
            writer.let(rows.int, render(unit), loop.row)
        if unit.terms:
            writer.declare(render(unit))
        rows.live = loop.live
        rows.bind_lanes(loop.lane)
        rows.bind_tile(unit, limit)
        WALKS[tile.kind](rows)


def _walk(levels: Levels) -> None:
    """All values of the rows of a tile, level by level."""
    for level in range(levels.rows.nest.levels):
        levels.level(level)


#: How the rows of a tile are walked.
WALKS: Mapping[Kind, Callable[[TileRows], None]] = {
    Kind.ROWS: lambda rows: _walk(Levels.of(rows, RowElements(rows), LaneSums(rows))),
    Kind.RUNS: lambda rows: _walk(Levels.of(rows, RunElements(rows), LaneSums(rows))),
    Kind.TENSOR: lambda rows: _walk(Levels.of(rows, TensorElements(rows), TensorSums(rows))),
    Kind.STREAM: lower_stream,
}
