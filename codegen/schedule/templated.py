"""Schedules that follow a given template of the paper's grammar instead of the defaults.

GRID spreads a dim over blocks, WARP over warps, CTA over the threads of a block, THREAD walks it in
one thread; GRID_128-WARP_2 tiles a dim in two levels. A schedule marked S is kept in shared memory
wherever another loop of the block reads it; a result that is only written out needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.loops.axes import GroupAxes
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import DEFAULT_BLOCK, Teams
from fusionstitch.codegen.schedule.template import Attr, Level, Schedule, Template
from fusionstitch.hlo.errors import CodegenError


@dataclass
class Fixed:
    """What a template decides: the groups it spreads, the teams of its stages, the block size."""

    groups: set[Group] = field(default_factory=set)
    teams: dict[Stage, Teams] = field(default_factory=dict)
    block: int | None = None


def follow(template: Template, groups: Sequence[Group]) -> Fixed:
    """Spreads `groups` as `template` says. Raises CodegenError for what cannot be followed."""
    fixed = Fixed(block=template.cta_size)
    stages = {s.op.name or s.op.opcode: (s, g) for g in groups for s in g.stages}
    for wanted in template.schedules:
        if wanted.identifier not in stages:
            known = ", ".join(stages)
            raise CodegenError(
                f"The template schedules {wanted.identifier}, but the kernel's loops are: {known}."
            )
        stage, group = stages[wanted.identifier]
        _spread(wanted, stage, group, fixed)
        teams = _teams(wanted, stage, group.axes, template.cta_size or DEFAULT_BLOCK)
        if teams is not None:
            fixed.teams[stage] = teams
    return fixed


def input_axes(stage: Stage, axes: GroupAxes) -> list[int]:
    """The axes of a stage by dim of its op's input: kept and summed dims in their order."""
    if stage.op.opcode != "reduce":
        return [*axes.dims[stage.number], *axes.inner[stage.number]]
    kept, summed = iter(axes.dims[stage.number]), iter(axes.inner[stage.number])
    reduced = stage.op.attrs["dimensions"]
    rank = stage.op.operands[0].shape.rank
    return [next(summed) if d in reduced else next(kept) for d in range(rank)]


def _spread(wanted: Schedule, stage: Stage, group: Group, fixed: Fixed) -> None:
    chains = input_axes(stage, group.axes)
    if len(chains) != len(wanted.attrs):
        raise CodegenError(
            f"{wanted.identifier} has {len(chains)} dims, but its schedule has "
            f"{len(wanted.attrs)} attrs: give one per dim."
        )
    grid: list[int] = []
    for chain, attr in zip(chains, wanted.attrs, strict=True):
        leaves = _tiles(chain, attr, group.axes)
        for leaf, level in leaves:
            if level is Level.GRID and group.axes.extent(leaf) != 1:
                grid.append(leaf)
    group.axes.refresh()
    possible = group.axes.grid()
    for leaf in grid:
        if leaf not in possible:
            raise CodegenError(
                f"{wanted.identifier}: a dim of extent {group.axes.extent(leaf)} cannot be GRID, "
                "because a loop of its block sums over it or reads it at another index."
            )
    if group in fixed.groups and set(grid) != set(group.grid):
        raise CodegenError(
            f"{wanted.identifier} shares a block with other loops: their GRID dims must agree."
        )
    fixed.groups.add(group)
    group.spread([leaf for leaf in possible if leaf in grid])


def _tiles(chain: int, attr: Attr, axes: GroupAxes) -> list[tuple[int, Level]]:
    """The leaves of a dim with their levels, split as the attr's sizes ask."""
    if len(attr.parts) == 1:
        return [(leaf, attr.parts[0].level) for leaf in axes.set.leaves(chain)]
    found: list[tuple[int, Level]] = []
    below = 1
    for part in reversed(attr.parts):
        extent = part.extent or 1
        leaves = axes.set.range(chain, below, extent)
        if leaves is None:
            raise CodegenError(f"A dim cannot be tiled as {attr}: its extent does not divide so.")
        found += [(leaf, part.level) for leaf in leaves]
        below *= extent
    if below != axes.size(axes.set.leaves(chain)):
        size = axes.size(axes.set.leaves(chain))
        raise CodegenError(f"{attr} covers {below} elements of a dim of {size}.")
    return found


def _teams(wanted: Schedule, stage: Stage, axes: GroupAxes, block: int) -> Teams | None:
    """The threads that share a row, from the levels of the summed and of the kept dims."""
    if not stage.is_reduction:
        return None
    summed = set(axes.inner[stage.number])
    along: set[Level] = set()
    across: set[Level] = set()
    for chain, attr in zip(input_axes(stage, axes), wanted.attrs, strict=True):
        (along if chain in summed else across).update(set(attr.levels) - {Level.GRID})
        if chain in summed and Level.GRID in attr.levels:
            raise CodegenError(f"{wanted.identifier}: a summed dim cannot be GRID in one kernel.")
    if along <= {Level.THREAD}:
        return Teams(1)
    if Level.WARP in along or not across - {Level.THREAD}:
        return Teams(block)
    return Teams(32)
