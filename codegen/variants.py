"""The neighbours of a schedule: what differs from it in one decision, as templates.

Teams, tiles, points of the grid and the size of the block are changed in the schedule itself; parts
of a split sum and of an axis in its template, from which the kernel is planned once more. What a
kernel cannot have is left out. There are at most as many as `MOST`, in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from fusionstitch.codegen.decisions import settle
from fusionstitch.codegen.dots.tile import possible_tiles
from fusionstitch.codegen.generate import plan_kernel
from fusionstitch.codegen.launches import choice_of, near, resized
from fusionstitch.codegen.schedule.choice import Choice, GroupChoice, LoopChoice
from fusionstitch.codegen.schedule.looped import Launch, check_teams
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.schedule.schedule import KernelPlan, Teams
from fusionstitch.codegen.schedule.template import Attr, Block, Loop, Template
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions, Settings, Way
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph

#: Neighbours of one schedule that are tried.
MOST = 512


def variants(
    graph: Graph, device: Device, options: CodegenOptions | None = None
) -> Iterator[Scheduled]:
    """The neighbours of the schedule that a region has under `options`, each once."""
    options = options or CodegenOptions()
    base = plan_kernel(graph, device, options)
    seen = {base.template}
    for one in islice(_tried(graph, base, device, options), MOST):
        if one is not None and (text := one.template) not in seen:
            seen.add(text)
            yield one


def _tried(
    graph: Graph, base: Scheduled, device: Device, options: CodegenOptions
) -> Iterator[Scheduled | None]:
    """Every neighbour, or None where there is none of a kind."""
    settings = Settings(device, options)
    for choice in _choices(base.plan):
        try:
            found = settle(base.graph, choice, settings, Way.MERGE, NOBODY)
            yield replace(found, splits=base.splits, before=base.before)
        except CodegenError:
            yield None
    for template in _templates(parse_template(base.template)):
        try:
            yield plan_kernel(graph, device, replace(options, template=str(template)))
        except CodegenError:
            yield None


# ---- in the schedule -----------------------------------------------------------------------------


def _choices(plan: KernelPlan) -> Iterator[Choice]:
    base = choice_of(plan)
    for n, phase in enumerate(base.phases):
        for m, group in enumerate(phase):
            for other in _groups(group, plan):
                changed = (*phase[:m], other, *phase[m + 1 :])
                yield replace(base, phases=(*base.phases[:n], changed, *base.phases[n + 1 :]))
    yield from resized(base)
    for per_sm in (1, 2, 3, 4, 6, 8):
        yield replace(base, blocks_per_sm=per_sm)


def _groups(group: GroupChoice, plan: KernelPlan) -> Iterator[GroupChoice]:
    """A group with other points to a tile, or another team or tile of one loop."""
    nests = [loop.nest for loop in group.loops]
    fixed = group.group.streamed or plan.cluster > 1 or any(nest.carries for nest in nests)
    tiled = any(loop.tile for loop in group.loops)
    most = group.group.tiles
    for points in () if fixed or tiled else near(group.points):
        if points <= most:
            yield replace(group, points=points)
    for n, loop in enumerate(group.loops):
        for other in _loops(loop, group, plan):
            yield replace(group, loops=(*group.loops[:n], other, *group.loops[n + 1 :]))


def _loops(loop: LoopChoice, group: GroupChoice, plan: KernelPlan) -> Iterator[LoopChoice]:
    if loop.tile is not None and not loop.tile.columns:
        for tile in possible_tiles(group.group, loop.nest, group.points, plan.block):
            if tile != loop.tile:
                yield replace(loop, tile=tile, teams=Teams(tile.team))
    elif loop.tile is None and plan.cluster == 1:
        for teams in _teams(loop.teams, plan.block):
            try:
                check_teams("", loop.nest, group.group, teams, Launch(plan.block))
            except CodegenError:
                continue
            yield replace(loop, teams=teams)


def _teams(teams: Teams, block: int) -> Iterator[Teams]:
    if teams.columns:
        for columns in near(teams.columns):
            if 2 * columns <= block:
                yield Teams(block // columns, columns)
    else:
        yield from map(Teams, near(teams.threads))


# ---- in the template -----------------------------------------------------------------------------


def _templates(given: Template) -> Iterator[Template]:
    """Other parts of splits and of axes; what follows from these has its default."""
    free = replace(given, cta_num=None, cta_per_sm=None)
    for n, (name, parts) in enumerate(given.splits):
        for other in near(parts):
            splits = (*given.splits[:n], (name, other), *given.splits[n + 1 :])
            yield replace(free, splits=splits)
    for n, phase in enumerate(given.phases):
        for m, block in enumerate(phase):
            for changed in _blocks(block):
                blocks = (*phase[:m], changed, *phase[m + 1 :])
                yield replace(free, phases=(*given.phases[:n], blocks, *given.phases[n + 1 :]))


def _blocks(block: Block) -> Iterator[Block]:
    """A group with another part of one of the axes that its tiles share with the grid."""
    attrs = dict.fromkeys(a for s in block.schedules for a in s.attrs if len(a.parts) == 2)
    for attr in attrs:
        for other in _attrs(attr):
            yield replace(block, loops=tuple(_exchanged(loop, attr, other) for loop in block.loops))


def _attrs(attr: Attr) -> Iterator[Attr]:
    first, second = attr.parts
    if first.extent is None or second.extent is None:
        return
    for one, other in ((first, second), (second, first)):
        assert one.extent is not None
        assert other.extent is not None
        if one.extent % 2 == 0:
            less = replace(one, extent=one.extent // 2)
            more = replace(other, extent=other.extent * 2)
            yield Attr((less, more) if one is first else (more, less))


def _exchanged(loop: Loop, attr: Attr, other: Attr) -> Loop:
    """A loop with one attr for another, and the rest of its tile left to be worked out."""
    lines = tuple(
        replace(s, attrs=tuple(other if a == attr else a for a in s.attrs)) for s in loop.schedules
    )
    return replace(loop, schedules=lines, run=None, lot=None, shares=None)
