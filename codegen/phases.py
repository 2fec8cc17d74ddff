"""Phases: groups in an order of grid barriers.

A group comes after what it reads. One that is to overwrite an input, as an optimizer step does its
parameters, comes after all other readers of that input, too, where a barrier is there anyway:
written before, the result could not be in the input's buffer, and XLA would copy it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.groups import Group
from codegen.stages import Stage
from hlo.graph import Op

Phases = list[list[Group]]
#: Phases to choose from for a group that waits: what it reads has to stay in memory as long.
MOST_CHOICES = 4


def phases(groups: Sequence[Group], group_of: Mapping[Stage, Group]) -> Phases:
    """Groups, in topological order, by the number of grid barriers that must precede them."""
    level: dict[Group, int] = {}
    for group in groups:
        level[group] = 1 + max((level[b] for b in _before(group, group_of)), default=-1)
    result: Phases = [[] for _ in range(max(level.values(), default=0) + 1)]
    for group in groups:
        result[level[group]].append(group)
    return result


def waiting(
    phases: Phases,
    group_of: Mapping[Stage, Group],
    overwrites: Mapping[Op, Op],
    tiles: Mapping[Group, int],
) -> Phases:
    """The same phases, but groups that no other one reads are in one after those which read what
    they overwrite: of the next few the one with the fewest `tiles`.

    `overwrites` maps outputs to the inputs in whose buffers they should end up.
    """
    level = {group: n for n, phase in enumerate(phases) for group in phase}
    read = {b for group in level for b in _before(group, group_of)}
    readers: dict[Op, list[Group]] = {}
    for group in level:
        for op in {op for stage in group.stages for op, _ in stage.loads}:
            readers.setdefault(op, []).append(group)
    work = [sum(tiles[group] for group in phase) for phase in phases]
    for group in [group for group in level if group not in read]:
        over = [overwrites[s.op] for s in group.stages if s.op in overwrites]
        others = [[level[g] for g in readers.get(op, ()) if g is not group] for op in over]
        free = [1 + max(n, default=-1) for n in others]
        first = max((n for n in free if n < len(phases)), default=0)
        if level[group] < first:
            choices = range(first, min(first + MOST_CHOICES, len(phases)))
            work[level[group]] -= tiles[group]
            level[group] = min(choices, key=work.__getitem__)
            work[level[group]] += tiles[group]
    result: Phases = [[] for _ in phases]
    for group, number in level.items():
        result[number].append(group)
    return result


def _before(group: Group, group_of: Mapping[Stage, Group]) -> set[Group]:
    """The groups that this one reads."""
    return {group_of[p] for s in group.stages for p, _ in s.reads} - {group}
