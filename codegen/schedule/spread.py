"""The attrs of a template's schedules, applied to the axes of a group.

GRID spreads a dim over blocks, WARP over warps, CTA over the threads of a block, THREAD walks it in
one thread; GRID_128-WARP_2 tiles a dim in two levels.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusionstitch.codegen.loops.axes import GroupAxes
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.printed import input_axes
from fusionstitch.codegen.schedule.template import Attr, Level, Schedule
from fusionstitch.hlo.errors import CodegenError

#: The level of each atomic axis of a stage.
Levels = Mapping[int, Level]


def spread(group: Group, lines: Mapping[Stage, Schedule]) -> tuple[Group, dict[Stage, Levels]]:
    """A group with its axes split as the attrs of its stages ask, those that are GRID spread over
    blocks, and the level of each. Raises CodegenError for what cannot be."""
    axes = group.axes.copied()
    for stage, line in lines.items():
        for chain, attr in _dims(stage, line, axes):
            _cut(chain, attr, line, axes)
    axes.refresh()
    levels = {stage: _levels(stage, line, axes) for stage, line in lines.items()}
    first = next(iter(lines))
    grid = _grid(levels[first])
    possible = group.possible_grid(axes)
    for stage, line in lines.items():
        for leaf in _grid(levels[stage]) - set(possible):
            raise CodegenError(
                f"{line.identifier}: a dim of extent {axes.extent(leaf)} cannot be GRID, "
                "because a loop of its block sums over it, reads it at another index, or has bins "
                "of all of it, or sorts it."
            )
        if _grid(levels[stage]) != grid:
            raise CodegenError(
                f"{line.identifier} shares a block with {lines[first].identifier}: their GRID dims "
                "must agree."
            )
    return group.spread_so(axes, (leaf for leaf in possible if leaf in grid)), levels


def _grid(levels: Levels) -> set[int]:
    return {leaf for leaf, level in levels.items() if level is Level.GRID}


def _dims(stage: Stage, line: Schedule, axes: GroupAxes) -> list[tuple[int, Attr]]:
    """The axis and the attr of each dim of a stage's input. A scalar has one attr for none."""
    chains = input_axes(stage, axes)
    if len(line.attrs) != max(1, len(chains)):
        raise CodegenError(
            f"{line.identifier} has {len(chains)} dims, but its schedule has {len(line.attrs)} "
            "attrs: give one per dim."
        )
    return list(zip(chains, line.attrs, strict=False))


def _cut(chain: int, attr: Attr, line: Schedule, axes: GroupAxes) -> None:
    """Splits a dim so that each part of its attr is made of whole axes."""
    size = axes.size(axes.set.leaves(chain))
    below = 1
    for part in reversed(attr.parts):
        if part.extent is None:
            return
        if size % (below * part.extent) or axes.set.range(chain, below, part.extent) is None:
            raise CodegenError(
                f"{line.identifier}: a dim of extent {size} cannot be tiled as {attr}, its axes do "
                "not divide so."
            )
        below *= part.extent
    if below != size:
        raise CodegenError(f"{line.identifier}: {attr} covers {below} elements of a dim of {size}.")


def _levels(stage: Stage, line: Schedule, axes: GroupAxes) -> Levels:
    found: dict[int, Level] = {}
    for chain, attr in _dims(stage, line, axes):
        leaves = [leaf for leaf in axes.set.leaves(chain) if axes.extent(leaf) != 1]
        for part in attr.parts:
            covered = 1
            while leaves and (part.extent is None or covered < part.extent):
                leaf = leaves.pop(0)
                covered *= axes.extent(leaf)
                found[leaf] = part.level
    return found
