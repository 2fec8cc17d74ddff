"""The choice that a template of the paper makes: a list of schedules, without groups and loops.

Merging decides what shares a block, and every dot has a loop of its own. Groups with a schedule
are spread as its attrs say, one point of the grid to a tile; the others keep their defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest, Role, form_nests
from fusionstitch.codegen.loops.phases import Overwrites, phases
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.choice import Choice, GroupChoice, LoopChoice
from fusionstitch.codegen.schedule.defaults import group_choice, kind
from fusionstitch.codegen.schedule.followed import launch_of, made, stored
from fusionstitch.codegen.schedule.labels import labels
from fusionstitch.codegen.schedule.looped import Launch, check_teams, guessed
from fusionstitch.codegen.schedule.spread import Levels, spread
from fusionstitch.codegen.schedule.template import Schedule, Template
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph

#: The lines of a group, by stage.
Lines = dict[Stage, Schedule]


def follow_flat(
    template: Template, graph: Graph, groups: Sequence[Group], device: Device, over: Overwrites
) -> Choice:
    """The choice for `groups`. Raises CodegenError for what they cannot have."""
    launch = launch_of(template, device)
    if launch.cluster > 1:
        raise CodegenError(
            f"cluster={launch.cluster}: it takes a template with groups, such as reports print."
        )
    lines = _lines(template, graph, groups)
    spread_out = [spread(g, lines[g]) if lines[g] else (g, {}) for g in groups]
    lines = {new: lines[g] for g, (new, _) in zip(groups, spread_out, strict=True)}
    levels, groups = dict(spread_out), [new for new, _ in spread_out]
    nests = {g: form_nests(g, tiled=False) for g in groups}
    group_of = {s: g for g in groups for s in g.stages}
    found = []
    for phase in phases(groups, group_of, over):
        kinds = Counter(kind(g, nests[g]) for g in phase)
        found.append(
            [
                _group(
                    group_choice(g, nests[g], launch.block, device, alike=kinds[kind(g, nests[g])]),
                    lines[g],
                    levels[g],
                    launch,
                )
                for g in phase
            ]
        )
    return made(template, launch, found)


def _lines(template: Template, graph: Graph, groups: Sequence[Group]) -> dict[Group, Lines]:
    names = labels(graph)
    home = {names[s.op.id]: (s, g) for g in groups for s in g.stages}
    found: dict[Group, Lines] = {g: {} for g in groups}
    for line in template.schedules:
        if line.identifier not in home:
            raise CodegenError(
                f"The template schedules {line.identifier}, but the kernel's loops are: "
                f"{', '.join(home)}."
            )
        stage, group = home[line.identifier]
        if stage in found[group]:
            raise CodegenError(f"The template schedules {line.identifier} twice.")
        found[group][stage] = line
    return found


def _group(
    default: GroupChoice, lines: Lines, levels: dict[Stage, Levels], launch: Launch
) -> GroupChoice:
    """A group with the teams that its lines ask for."""
    if not lines:
        return default
    group = default.group
    loops = tuple(_loop(loop, group, lines, levels, launch) for loop in default.loops)
    return replace(default, points=1, loops=loops, stored=stored(group, loops, lines))


def _loop(
    default: LoopChoice, group: Group, lines: Lines, levels: dict[Stage, Levels], launch: Launch
) -> LoopChoice:
    nest = default.nest
    summing = [s for s in nest.stages if s in lines and _sums(s, nest)]
    if not summing:
        return default
    teams = guessed(summing, group, levels, launch.block)
    check_teams(lines[summing[0]].identifier, nest, group, teams, launch)
    return replace(default, teams=teams)


def _sums(stage: Stage, nest: Nest) -> bool:
    return stage.is_reduction and nest.role[stage] is not Role.CARRY
