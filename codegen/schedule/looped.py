"""The loops of a template: their rows, teams and register tiles.

Once it is known how many threads share a row, the levels of the attrs say which axes are rows and
which lie along a row. For one thread per row, rows are CTA and axes along them THREAD. For a part
of the block they are WARP and CTA, for the whole block THREAD and CTA. Where rows lie along the
lanes they are CTA and WARP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.dots.streams import MOST_REGISTERS, stream_tile, takes_stream
from fusionstitch.codegen.dots.tile import Tile, possible_tiles
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest, join, new_nest
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.rewrite.extents import OWN_LOOP
from fusionstitch.codegen.schedule.defaults import DEFAULT_BLOCK, in_columns
from fusionstitch.codegen.schedule.printed import levels as levels_of
from fusionstitch.codegen.schedule.schedule import Teams
from fusionstitch.codegen.schedule.spread import Levels
from fusionstitch.codegen.schedule.template import Level, Loop
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.errors import CodegenError


@dataclass(frozen=True)
class Launch:
    """Threads per block, and blocks that share a row."""

    size: int | None
    cluster: int = 1

    @property
    def block(self) -> int:
        return self.size or DEFAULT_BLOCK


def teams_of(
    loop: Loop,
    stages: Sequence[Stage],
    group: Group,
    levels: Mapping[Stage, Levels],
    launch: Launch,
) -> Teams:
    """The threads that share a row of a loop: what its head says, or else its attrs."""
    clauses = _clauses(loop)
    if len(clauses) > 1 or (clauses and launch.cluster > 1):
        others = [*clauses[1:], f"cluster={launch.cluster}"] if launch.cluster > 1 else clauses[1:]
        raise CodegenError(
            f"The loop of {_name(loop)} says {clauses[0]} and {others[0]}: one of them decides who "
            "works on a row."
        )
    if launch.cluster > 1:
        return Teams(launch.cluster * launch.block)
    if loop.stream or loop.tensor:
        return Teams(WARP)
    if loop.lanes is not None or loop.rows is not None:
        if loop.lanes is None or loop.rows is None:
            raise CodegenError(f"The loop of {_name(loop)} has a tile: give its rows and lanes.")
        return Teams(loop.lanes)
    if loop.columns is not None:
        if loop.columns > launch.block // 2 or not _power_of_two(loop.columns):
            raise CodegenError(
                f"columns={loop.columns} in the loop of {_name(loop)}: it takes a power of two up "
                f"to half of cta_size={launch.block}."
            )
        return Teams(launch.block // loop.columns, loop.columns)
    if loop.team is not None:
        return Teams(loop.team)
    return guessed(stages, group, levels, launch.block)


def has_team(loop: Loop) -> bool:
    """Whether the head of a loop says who works on a row."""
    return bool(_clauses(loop))


def fits(teams: Teams, other: Teams, nest: Nest, block: int) -> bool:
    """Whether the attrs of a nest read the same with one team as with another."""
    row, inner = levels_of(teams.threads, teams.columns, block)
    rows, inners = levels_of(other.threads, other.columns, block)
    return (row is rows or not nest.rows) and (inner is inners or not nest.inner)


def guessed(
    stages: Sequence[Stage], group: Group, levels: Mapping[Stage, Levels], block: int
) -> Teams:
    """The threads that share a row as the paper's levels have it: a sum along THREAD is one
    thread's, along CTA a warp's, and along WARP as well, or with nothing across it, the block's."""
    along: set[Level] = set()
    across: set[Level] = set()
    for stage in stages:
        summed = group.axes.inner_leaves(stage)
        for leaf, level in levels[stage].items():
            (along if leaf in summed else across).add(level)
        if summed:
            break
    across -= {Level.GRID}
    if not along:  # nothing is summed: what lies in the attrs alone
        return Teams(WARP) if {Level.WARP, Level.CTA} <= across else Teams(1)
    if along <= {Level.THREAD}:
        return Teams(1)
    if Level.WARP in along or not across - {Level.THREAD}:
        return Teams(block)
    return Teams(WARP)


def nest_of(
    loop: Loop,
    stages: Sequence[Stage],
    group: Group,
    levels: Mapping[Stage, Levels],
    teams: Teams,
    launch: Launch,
    stream: Stream,
) -> tuple[Group, Nest]:
    """The nest of a loop, with its rows and inner axes from the attrs of its first stage, and the
    group. The group gets the axes of the tile if the loop is that of a lone dot, or a stream."""
    first = stages[0]
    if first.op.opcode in OWN_LOOP:  # the data says which of its elements a row has
        own = new_nest(group, first, loop.tiled)
        rows, inner = list(own.rows), list(own.inner)
    else:
        rows, inner = _axes(loop, first, group, levels[first], teams, launch.block)
    if loop.stream:
        _check_stream(loop, rows, inner)
    if loop.stream or (loop.tiled and _is_lone(group, rows, inner)):
        dot_axes = rows[0], inner[0]
        group = group.spread_so(
            group.axes, group.grid, dot_axes, streamed=loop.stream or group.streamed
        )
    nest = new_nest(group, first, loop.tiled)
    if (set(nest.rows), set(nest.inner)) != (set(rows), set(inner)):
        nest = Nest(tuple(rows), tuple(inner))
    for stage, line in zip(stages, loop.schedules, strict=True):
        joined = join(group, nest, stage, loop.tiled)
        if joined is None:
            raise CodegenError(
                f"{line.identifier}: its dims do not fit the rows of the loop of {_name(loop)}, or "
                "it needs what that has only after its last row."
            )
        nest = nest.followed_by(stage, *joined)
    if nest.tiled != loop.tiled:
        raise CodegenError(
            f"The loop of {_name(loop)} has a register tile, but no dot to hold in it."
        )
    if loop.stream and not takes_stream(group, nest, stream):
        raise CodegenError(
            f"The loop of {_name(loop)} cannot be a stream: it holds no chain of dots that tensor "
            "cores can walk block by block."
        )
    if loop.stream and stream_tile(group, nest).registers > MOST_REGISTERS:
        raise CodegenError(f"The loop of {_name(loop)} holds too much to be a stream.")
    if not loop.tiled and launch.cluster == 1:
        check_teams(_name(loop), nest, group, teams, launch)
    return group, nest


def tile_of(loop: Loop, group: Group, nest: Nest, points: int, block: int) -> Tile:
    """The register tile of a loop. Raises CodegenError unless it is a possible one."""
    if loop.stream:
        return stream_tile(group, nest)
    fields = {
        name: value
        for name in ("rows", "lanes", "run", "lot", "shares")
        if (value := getattr(loop, name)) is not None
    }
    for tile in possible_tiles(group, nest, points, block):
        if tile.tensor is loop.tensor and all(getattr(tile, n) == v for n, v in fields.items()):
            return tile
    text = ", ".join([*["tensor"] * loop.tensor, *(f"{n}={v}" for n, v in fields.items())])
    raise CodegenError(
        f"The loop of {_name(loop)} cannot have a tile of {text}: too many columns for its lanes, "
        "rows that share no operand, or a rest at the end of what is taken at once."
    )


def _name(loop: Loop) -> str:
    return loop.schedules[0].identifier


def _clauses(loop: Loop) -> list[str]:
    """Who works on a row, as often as a loop says it."""
    tile = ", ".join(f"{n}={v}" for n in ("rows", "lanes") if (v := getattr(loop, n)) is not None)
    words = [word for word in ("stream", "tensor") if getattr(loop, word)]
    numbers = [f"{n}={v}" for n in ("team", "columns") if (v := getattr(loop, n)) is not None]
    return [*words, *([tile] if tile else []), *numbers]


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _axes(
    loop: Loop, first: Stage, group: Group, levels: Levels, teams: Teams, block: int
) -> tuple[list[int], list[int]]:
    """The rows and the inner axes of the loop that begins with a stage."""
    row, inner = levels_of(teams.threads, teams.columns, block)
    found: dict[Level, list[int]] = {row: [], inner: []}
    own, summed = group.in_block(first), group.axes.inner_leaves(first)
    if loop.tiled and first.op.opcode == "dot" and any(levels[leaf] is inner for leaf in own):
        summed = []  # its results lie along the rows, and each of them a thread sums alone
    for leaf in (*own, *summed):
        level = levels[leaf]
        whole = teams.threads >= block > WARP and not teams.columns
        if level is Level.WARP and whole and leaf in summed:
            level = Level.CTA  # the paper's way to write that all threads of a block sum
        if level not in found:
            raise CodegenError(
                f"{_name(loop)}: a dim of extent {group.axes.extent(leaf)} is {level}, but with "
                f"{teams.threads} threads to a row rows are {row} and what lies along them {inner}."
            )
        found[level].append(leaf)
    return found[row], found[inner]


def _is_lone(group: Group, rows: Sequence[int], inner: Sequence[int]) -> bool:
    """Whether a tile is that of a lone dot: all stages have its rows and columns, one axis each."""
    axes = {*group.grid, *rows, *inner}
    one = len(rows) == len(inner) == 1
    return one and all(set(group.axes.leaves(s)) == axes for s in group.stages)


def _check_stream(loop: Loop, rows: Sequence[int], inner: Sequence[int]) -> None:
    if len(rows) != 1 or len(inner) != 1:
        raise CodegenError(
            f"The loop of {_name(loop)} cannot be a stream: it takes one axis of rows and one of "
            "columns."
        )


def check_teams(name: str, nest: Nest, group: Group, teams: Teams, launch: Launch) -> None:
    """Raises CodegenError for a team that has no way to share a row of the loop."""
    threads, block = teams.threads, launch.block
    clause = f"team={threads} in the loop of {name}"
    if threads > 1 and nest.in_order:
        raise CodegenError(f"{clause}: its elements are joined in their order, by one thread.")
    if threads > 1 and group.axes.size(nest.inner) == 1:
        raise CodegenError(f"{clause}: its rows have one element each, there is nothing to share.")
    if teams.columns and not in_columns(nest):
        raise CodegenError(
            f"columns={teams.columns} in the loop of {name}: its sums do not run over other "
            "than the minor-most dim."
        )
    if teams.columns and block % teams.columns:
        raise CodegenError(f"{clause}: cta_size={block} is no multiple of columns={teams.columns}.")
    alone = not teams.columns and threads < block
    if threads > block or (alone and (block % threads or not _power_of_two(threads))):
        raise CodegenError(
            f"{clause}: it takes all of cta_size={block}, or a power of two that divides it."
        )
