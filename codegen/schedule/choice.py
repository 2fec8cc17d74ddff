"""What is decided of a kernel, and the schedule that follows from it.

A choice comes from the defaults (`defaults.py`) or from a template (`followed.py`), and from then
on the two go one way: `planned` works out everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.dots.tile import Tile
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest, Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import (
    RESIDENT_THREADS,
    GroupPlan,
    KernelPlan,
    NestPlan,
    Teams,
)
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.costmodel.devices import Device

#: A row at least this long is given to the whole block.
LONG_ROW = 512
#: The same where each keeps part of a long row, of the next one, and sums of its columns: half as
#: many have the registers for it. An H200 took 42 us for layer norm forward and backward of 16384
#: rows of 1024 bf16, where twice as many threads with half as much each took 47 us.
CARRYING_THREADS = 512


@dataclass(frozen=True, eq=False)
class LoopChoice:
    """A nest, and the threads that share one of its rows; a register `tile` brings its own."""

    nest: Nest
    teams: Teams
    tile: Tile | None = None


@dataclass(frozen=True, eq=False)
class GroupChoice:
    """A group with its axes over blocks, `points` grid points to a tile, its loops in order, and
    the stages whose values go to shared memory though no other loop of the block reads them."""

    group: Group
    points: int
    loops: tuple[LoopChoice, ...]
    stored: frozenset[Stage] = frozenset()


@dataclass(frozen=True, eq=False)
class Choice:
    """Threads per block, blocks that share a row, and the groups by phase.

    `blocks` (clusters of them, if there are) and `blocks_per_sm` of the launch are worked out once
    it is known how much shared memory a block takes, unless they are chosen as well.
    """

    block: int
    phases: tuple[tuple[GroupChoice, ...], ...]
    cluster: int = 1
    blocks: int | None = None
    blocks_per_sm: int | None = None
    tuning: Tuning = DEFAULT


def planned(choice: Choice, device: Device) -> KernelPlan:
    """The schedule that a choice makes."""
    walked = _alternating([map(_planned_group, phase) for phase in choice.phases], device)
    phases = tuple(map(_numbered, walked))
    most = max(phase[-1].first_tile + phase[-1].tiles for phase in phases)
    resident = RESIDENT_THREADS
    heaviest = max((g for phase in phases for g in phase), key=lambda g: elements(g.group))
    if any(holds_rows_and_sums(heaviest.group, nest.nest) for nest in heaviest.nests):
        resident = max(choice.block, CARRYING_THREADS)
    full = device.sm_count * RESIDENT_THREADS
    tuning, cluster = choice.tuning, choice.cluster
    return KernelPlan(
        choice.block,
        phases,
        most,
        full,
        resident,
        registers=device.registers_per_sm,
        tuning=tuning,
        cluster=cluster,
    )


def _planned_group(choice: GroupChoice) -> GroupPlan:
    group, points = choice.group, choice.points
    nests = tuple(
        NestPlan(
            loop.nest,
            points * group.axes.size(loop.nest.rows),
            group.axes.size(loop.nest.inner),
            loop.teams,
            loop.tile,
        )
        for loop in choice.loops
    )
    shared = read_elsewhere(loop.nest for loop in choice.loops) | choice.stored
    return GroupPlan(group, nests, points, -(-group.tiles // points), shared=shared)


def read_elsewhere(nests: Iterable[Nest]) -> frozenset[Stage]:
    """The stages of the nests of a group that another of them reads."""
    nest_of = {stage: nest for nest in nests for stage in nest.stages}
    return frozenset(
        producer
        for stage, nest in nest_of.items()
        for producer, _ in stage.reads
        if nest_of.get(producer, nest) is not nest
    )


def elements(group: Group) -> int:
    """Elements that the loops of a group visit."""
    return sum(s.visits for s in group.stages)


def holds_rows_and_sums(group: Group, nest: Nest) -> bool:
    """True if threads keep parts of long rows while they carry sums of their columns."""
    both = nest.with_role(Role.CARRY) and nest.with_role(Role.REDUCE)
    return bool(both) and group.axes.size(nest.inner) >= LONG_ROW


def _alternating(
    phases: Sequence[Iterable[GroupPlan]], device: Device
) -> Iterator[Iterable[GroupPlan]]:
    """The phases, with walks reversed where an earlier phase went through the same large input:
    what it read last is still in L2."""
    latest: dict[int, bool] = {}
    for phase in phases:
        read: dict[int, bool] = {}
        plans = []
        for plan in phase:
            large = {
                op.id
                for stage in plan.group.stages
                for op, _ in stage.loads
                if op.shape.bytes > device.l2_bytes * device.warm_share
            }
            again = [latest[i] for i in sorted(large) if i in latest]
            backward = bool(again) and not again[0]
            plans.append(replace(plan, again=bool(again), backward=backward))
            read.update((i, backward) for i in large)
        latest.update(read)
        yield plans


def _numbered(plans: Iterable[GroupPlan]) -> tuple[GroupPlan, ...]:
    """The groups of a phase with their tiles numbered through."""
    numbered: list[GroupPlan] = []
    first = 0
    for plan in plans:
        numbered.append(replace(plan, first_tile=first))
        first += plan.tiles
    return tuple(numbered)
