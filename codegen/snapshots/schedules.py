"""A schedule and its memory as text: who does what, and who has which bytes."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.dots.tile import Tile
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.inplace import in_place
from fusionstitch.codegen.memory.scratch import scratch_buffers
from fusionstitch.codegen.memory.storage import SharedLayout
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan, Teams
from fusionstitch.codegen.schedule.walk import Walk
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.snapshots.page import counted, label, page, table
from fusionstitch.hlo.graph import Graph


def schedule_text(scheduled: Scheduled) -> str:
    """The launch, what each phase, group and nest gets of it, and the template that says so."""
    plan = scheduled.plan
    number = {group: n for n, group in enumerate(plan.groups)}
    lines = table(_launch(plan), 0)
    for count, phase in enumerate(plan.phases):
        tiles = sum(group.tiles for group in phase)
        again = ", several to a block" if plan.loops(phase) else ""
        lines += ["", f"phase {count}: {counted(tiles, 'tile')}{again}"]
        for group in phase:
            lines += ["", f"  group {number[group]}", *table(_group(group), 4)]
    return page([*lines, "", "template", *(f"  {x}" for x in scheduled.template.split("\n"))])


def _launch(plan: KernelPlan) -> Iterator[tuple[str, str]]:
    blocks = counted(plan.grid * plan.cluster, "block")
    yield "grid", blocks + (", with barriers between phases" if plan.cooperative else "")
    yield "block", counted(plan.block, "thread")
    if plan.cluster > 1:
        yield "cluster", counted(plan.cluster, "block")
    bounds = counted(plan.blocks_per_sm, "block") if plan.blocks_per_sm else "any number of blocks"
    yield "bounds", f"{bounds} on a multiprocessor"
    yield "phases", str(len(plan.phases))


def _group(group: GroupPlan) -> Iterator[tuple[str, str]]:
    last = group.first_tile + group.tiles - 1
    yield "tiles", f"{group.first_tile} to {last}" + (", the last not full" * group.ragged)
    yield "points", f"{group.points} of {group.grid_points} of the grid to a tile"
    if group.again:
        way = "from its end" if group.backward else "from its beginning"
        yield "walk", f"one stretch of what an earlier phase read, {way}"
    for count, nest in enumerate(group.nests):
        yield f"nest {count}", _nest(nest)


def _nest(nest: NestPlan) -> str:
    text = f"{counted(nest.rows, 'row')} of {nest.inner}; {_teams(nest.teams)}"
    walk = _walk(nest.walk)
    text = f"{text}; {walk}" if walk else text
    return text if nest.tile is None else f"{text}; {_tile(nest.tile)}"


def _walk(walk: Walk) -> str:
    """What a thread takes at once, and what it keeps."""
    texts = {
        f"{walk.width} elements at once": walk.width > 1,
        f"{walk.rows} rows at once": walk.rows > 1,
        f"{counted(len(walk.row_inputs), 'input')} held from row to row": walk.row_inputs,
        f"{counted(len(walk.live), 'value')} kept from sweep to sweep": walk.live,
    }
    return ", ".join(text for text, holds in texts.items() if holds)


def _teams(teams: Teams) -> str:
    if teams.columns:
        return f"{counted(teams.threads, 'thread')} to a row, {teams.columns} apart"
    return f"{counted(teams.threads, 'thread')} to a row"


def _tile(tile: Tile) -> str:
    kind = "a tile on tensor cores" if tile.tensor else "a tile"
    parts = [
        f"{kind} of {counted(tile.team_rows, 'row')} by {tile.team_columns}",
        f"{counted(tile.registers, 'register')} a thread",
        f"{tile.run} summed elements and {counted(tile.lot, 'column')} at once",
    ]
    if tile.shares > 1:
        parts.append(f"depth in {tile.shares} shares")
    if tile.columns:
        parts.append(f"{tile.columns} columns at a time, {counted(tile.shared, 'byte')} of them")
    return ", ".join(parts)


def memory_text(scheduled: Scheduled) -> str:
    """Shared memory by byte, scratch in global memory, and outputs that may lie over inputs."""
    graph, plan, layout = scheduled.graph, scheduled.plan, scheduled.layout
    lines = [
        f"shared memory: {counted(layout.total, 'byte')} a block, {layout.unshared} without reuse"
    ]
    for group in plan.groups:
        lines += table(_shared(group, layout))
    scratch = list(_scratch(graph, plan))
    lines += ["", f"scratch in global memory: {counted(len(scratch), 'buffer')}", *table(scratch)]
    over = [(f"output {o}", f"may overwrite input {i}") for o, i in in_place(graph, plan)]
    return page([*lines, *([""] if over else []), *table(over, 0)])


def _bytes(start: int, size: int, what: str) -> tuple[str, str, str]:
    return f"{start:6} to {start + size - 1:6}", f"{size:6}", what


def _shared(group: GroupPlan, layout: SharedLayout) -> list[tuple[str, str, str]]:
    """What of a group lies in shared memory, in the order of its bytes: values, and what threads
    exchange."""
    results = {s: one for plan in layout.plans for s, one in plan.results.items()}
    found = [
        (results[stage], _value(stage)) for stage in group.group.stages if stage in layout.offsets
    ]
    for exchange, allocation in layout.exchanges.items():
        if exchange.nest in group.nests:
            found.append((allocation, f"what threads exchange for {_value(exchange.stages[0])}"))
    found.sort(key=lambda one: (one[0].offset, one[1]))
    return [_bytes(s.offset, s.bytes, f"{what}, buffer {s.buffer}") for s, what in found]


def _value(stage: Stage) -> str:
    return f"stage {stage.number} {label(stage.op)}"


def _scratch(graph: Graph, plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    for number, buffer in enumerate(scratch_buffers(graph, plan)):
        holds = ", then ".join(map(label, buffer.ops))
        yield f"buffer {number}", counted(buffer.bytes, "byte"), holds
