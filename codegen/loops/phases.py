"""Phases: groups in an order of grid barriers.

A group comes after what it reads. Groups that no other one reads, such as the gradients and the
updates of a training step, come last, all together. In the phases of a chain, which wait for each
other, they would take their time one by one. What overwrites an input then comes after all else
that reads it. Written earlier, the result could not be in the input's buffer, and XLA would copy it
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusionstitch.codegen.loops.groups import Group, read_by
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.hlo.graph import Op

#: Outputs, and the inputs in whose buffers they should end up.
Overwrites = Mapping[Op, Op]


def phases(
    groups: Sequence[Group], group_of: Mapping[Stage, Group], overwrites: Overwrites
) -> list[list[Group]]:
    """Groups, in topological order, by the number of grid barriers that precede them."""
    reads = {group: read_by(group, group_of) for group in groups}
    level: dict[Group, int] = {}
    for group in groups:
        level[group] = 1 + max((level[b] for b in reads[group]), default=-1)
    read = {b for before in reads.values() for b in before}
    _postpone(level, [group for group in groups if group not in read], overwrites)
    result: list[list[Group]] = [[] for _ in range(max(level.values(), default=0) + 1)]
    for group in groups:
        result[level[group]].append(group)
    return result


def _postpone(level: dict[Group, int], ends: Sequence[Group], overwrites: Overwrites) -> None:
    """Moves the groups that no other one reads to the last phase: those that overwrite an input
    first, and of the others those that do not read such an input."""
    last = max(level.values(), default=0)
    over = {g: {overwrites[s.op] for s in g.stages if s.op in overwrites} for g in ends}
    written: set[Op] = set()
    for group in sorted(ends, key=lambda g: (level[g] < last, not over[g])):
        late = any(op in written for stage in group.stages for op, _ in stage.loads)
        if level[group] == last or not late:
            level[group] = last
            written |= over[group]
