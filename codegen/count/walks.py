"""How a scheduled nest goes through its rows, as the cost model counts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusionstitch.codegen.loops.nests import CACHE_STEPS, Place
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan
from fusionstitch.costmodel.facts import Walk
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: Loads of a loop along a row that the compiler puts under way together.
UNROLLED = 4


def walks(group: GroupPlan, plan: KernelPlan) -> Iterator[Walk]:
    """Those of a group's nests, each of which waits for the one before."""
    for number, nest in enumerate(group.nests):
        yield replace(_walk(group, nest, plan), follows=number > 0)


def _walk(group: GroupPlan, nest: NestPlan, plan: KernelPlan) -> Walk:
    """The turns, waits and repeated reads of one nest.

    Elements of their own wait for nothing but the memory, and a dot is counted in its own steps.
    """
    threads = nest.teams.threads
    at_once = max(1, plan.block // threads)
    busy = min(1.0, nest.rows / at_once)
    turns = -(-nest.rows // at_once)
    if nest.tile is not None:
        teams = -(-nest.rows // nest.tile.team_rows) * nest.tile.shares
        return Walk(group.tiles, rounds=0, busy=min(1.0, teams / at_once))
    if nest.inner == 1 or _is_dot(nest):
        return Walk(group.tiles, rounds=0, busy=busy)
    steps = nest.walk.vectors
    unrolled = steps * nest.walk.width <= CACHE_STEPS
    again = [(op, times) for op, times in nest.walk.again if _full(nest, group, op)]
    sweeps = 1 + max((times for _, times in again), default=0)
    rounds = (1 if unrolled else -(-steps // UNROLLED)) * sweeps
    return Walk(
        tiles=group.tiles * plan.cluster,
        turns=turns,
        rounds=rounds,
        flight=1 if unrolled else min(steps, UNROLLED),
        joins=_joins(nest) if threads > 1 else 0,
        carries=bool(nest.nest.placed(Place.CARRY)),
        warps=_warps(nest, plan.block),
        busy=busy,
        again=sum(op.shape.bytes * times for op, times in again),
        rows_bytes=sum(
            min(nest.rows, at_once) * nest.inner * ITEM_BYTES[op.dtype] // plan.cluster
            for op, _ in again
        ),
        spilled=2 * 4 * nest.walk.spilled * group.tiles * nest.rows * threads,
    )


def _warps(nest: NestPlan, block: int) -> int:
    """Warps that exchange what the threads of a row have."""
    if nest.teams.columns:
        return block // 32
    return nest.teams.threads // 32 if nest.teams.joins_warps else 1


def _is_dot(nest: NestPlan) -> bool:
    return any(stage.op.opcode == "dot" for stage in nest.nest.stages)


def row_words(nest: NestPlan) -> int:
    """Registers of a thread's elements of a row where several sweeps along it are unrolled, else 0:
    what one of them keeps, the next puts something else in the place of."""
    walk = nest.walk
    return walk.vectors * walk.width if walk.unrolled and nest.nest.levels > 1 else 0


def _joins(nest: NestPlan) -> int:
    """Levels that end with an exchange between the threads of a row."""
    reduced = nest.nest.placed(Place.REDUCE)
    return len({nest.nest.level[stage] for stage in reduced})


def _full(nest: NestPlan, group: GroupPlan, op: Op) -> bool:
    """Whether an input has an element of its own for each that the nest visits."""
    return op.shape.size >= (group.tiles - 1) * nest.rows * nest.inner + nest.inner
