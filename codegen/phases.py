"""Phases: groups in an order of grid barriers.

A group comes after what it reads. One that is to overwrite an input, as an optimizer step does its
parameters, comes after all other readers of that input, too, where a barrier is there anyway:
written before, the result could not be in the input's buffer, and XLA would copy it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.groups import Group, read_by
from codegen.stages import Stage
from hlo.graph import Op

#: Outputs, and the inputs in whose buffers they should end up.
Overwrites = Mapping[Op, Op]


def phases(
    groups: Sequence[Group], group_of: Mapping[Stage, Group], overwrites: Overwrites
) -> list[list[Group]]:
    """Groups, in topological order, by the number of grid barriers that precede them."""
    level: dict[Group, int] = {}
    for group in groups:
        level[group] = 1 + max((level[b] for b in read_by(group, group_of)), default=-1)
    if overwrites:
        _wait(level, group_of, overwrites)
    result: list[list[Group]] = [[] for _ in range(max(level.values(), default=0) + 1)]
    for group in groups:
        result[level[group]].append(group)
    return result


def _wait(level: dict[Group, int], group_of: Mapping[Stage, Group], overwrites: Overwrites) -> None:
    """Moves groups that no other one reads behind the readers of what they overwrite, where there
    is a phase for that: into the last one, together. In the next one they would lengthen a phase
    each."""
    read = {b for group in level for b in read_by(group, group_of)}
    readers: dict[Op, list[Group]] = {}
    for group in level:
        for op in {op for stage in group.stages for op, _ in stage.loads}:
            readers.setdefault(op, []).append(group)
    last = max(level.values())
    for group in [group for group in level if group not in read]:
        over = [overwrites[s.op] for s in group.stages if s.op in overwrites]
        others = [[level[g] for g in readers.get(op, ()) if g is not group] for op in over]
        if any(n and level[group] <= max(n) < last for n in others):
            level[group] = last
