"""Which groups share a device function: those of which there are several of a kind.

Each is lowered as a function of its own, of which a pass makes one (`ir/passes/sharing.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from fusionstitch.codegen.schedule.likeness import is_flat, kind_of_group
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan

#: Groups that are alike share a function if there are at least so many. Two small ones save no
#: compile time, but then the compiler keeps nothing for them in registers across a grid barrier:
#: layer norm forward and backward took 43.5 instead of 44.6 us on an H200.
FEWEST = 2


def with_functions(plan: KernelPlan, written: Mapping[int, int]) -> KernelPlan:
    """`plan` with a number for each function that groups of it share. `written` is how many buffers
    of global memory a value is stored to, by op id."""
    candidates = list(_several(plan.groups))
    kinds = {group: kind_of_group(group, written) for group in candidates}
    often = Counter(kinds.values())
    numbers: dict[Hashable, int] = {}
    for group in sorted(candidates, key=is_flat, reverse=True):
        if often[kinds[group]] >= FEWEST:
            numbers.setdefault(kinds[group], len(numbers))

    def numbered(group: GroupPlan) -> GroupPlan:
        number = numbers.get(kinds[group]) if group in kinds else None
        return group if number is None else replace(group, function=number)

    return replace(plan, phases=tuple(tuple(map(numbered, phase)) for phase in plan.phases))


def without_functions(plan: KernelPlan) -> KernelPlan:
    """`plan` with every group where it stands, as in a loop: functions do not know the number of
    an iteration."""
    phases = (tuple(replace(g, function=None) for g in phase) for phase in plan.phases)
    return replace(plan, phases=tuple(phases))


def _several(groups: Iterable[GroupPlan]) -> Iterator[GroupPlan]:
    """The groups that have the stages of others."""
    often = Counter(map(_stages, groups))
    return (group for group in groups if often[_stages(group)] >= FEWEST)


def length(groups: Iterable[GroupPlan]) -> int:
    """Ops in the text of a kernel, those of groups with equal stages counted once, for they may
    share a function: what compiling it takes grows with."""
    kinds = {_stages(group): group for group in groups}
    nests = (nest.nest for group in kinds.values() for nest in group.nests)
    return sum(
        len(n.stages) + len(frozenset().union(*(s.inlined for s in n.stages))) for n in nests
    )


def _stages(group: GroupPlan) -> Hashable:
    """What the stages of a group are; of those of several elements a tile their shapes, too."""
    flat = is_flat(group)
    return tuple(s.op.opcode if flat else (s.op.opcode, s.op.shape) for s in group.group.stages)
