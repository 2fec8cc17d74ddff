"""How a scheduled nest goes through its rows, as the cost model counts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusionstitch.codegen.loops.nests import CACHE_STEPS, Place
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.places.vectors import ACCESS_BYTES
from fusionstitch.codegen.schedule.registers import row_registers, words_of
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
    width = _width(nest, plan)
    steps = -(-nest.inner // (threads * width))
    unrolled = steps * width <= CACHE_STEPS
    kept, carried = _kept(nest, steps * width, row_registers(plan))
    again = _swept_again(group, nest, kept)
    sweeps = 1 + max((len(levels) - 1 for levels in again.values()), default=0)
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
        again=sum(op.shape.bytes * (len(levels) - 1) for op, levels in again.items()),
        rows_bytes=sum(
            min(nest.rows, at_once) * nest.inner * ITEM_BYTES[op.dtype] // plan.cluster
            for op in again
        ),
        spilled=2 * 4 * carried * group.tiles * nest.rows * threads,
    )


def _warps(nest: NestPlan, block: int) -> int:
    """Warps that exchange what the threads of a row have."""
    if nest.teams.columns:
        return block // 32
    return nest.teams.threads // 32 if nest.teams.joins_warps else 1


def _is_dot(nest: NestPlan) -> bool:
    return any(stage.op.opcode == "dot" for stage in nest.nest.stages)


def row_words(nest: NestPlan, plan: KernelPlan) -> int:
    """Registers of a thread's elements of a row where the sweeps are unrolled, else 0."""
    width = _width(nest, plan)
    elements = width * -(-nest.inner // (nest.teams.threads * width))
    unrolled = nest.tile is None and nest.nest.levels > 1 and elements <= CACHE_STEPS
    return elements if unrolled else 0


def _joins(nest: NestPlan) -> int:
    """Levels that end with an exchange between the threads of a row."""
    reduced = nest.nest.placed(Place.REDUCE)
    return len({nest.nest.level[stage] for stage in reduced})


def _width(nest: NestPlan, plan: KernelPlan) -> int:
    """Elements per access, as far as extents alone decide it."""
    threads, stages = nest.teams.threads, nest.nest.stages
    if threads == 1 or nest.teams.columns:
        return 1
    sizes = [ITEM_BYTES[op.dtype] for stage in stages for op in stage.swept]
    sizes += [ITEM_BYTES[s.op.dtype] for s in stages if nest.nest.place[s] is Place.SWEEP]
    widest = plan.tuning.vector_bytes or ACCESS_BYTES
    width = max(1, widest // max(sizes, default=widest))
    while width > 1 and (nest.inner % width or nest.inner < threads * width // 2):
        width //= 2
    return width


def _full(nest: NestPlan, group: GroupPlan, op: Op) -> bool:
    """Whether an input has an element of its own for each that the nest visits."""
    return op.shape.size >= (group.tiles - 1) * nest.rows * nest.inner + nest.inner


def _kept(nest: NestPlan, elements: int, registers: int) -> tuple[int, int]:
    """Registers left for the elements of inputs from sweep to sweep, and how many sums carried
    from row to row do not fit."""
    carried = elements * len(nest.nest.placed(Place.CARRY))
    if elements > CACHE_STEPS:
        return 0, max(0, carried - registers)
    return max(0, registers - carried) // elements, max(0, carried - registers)


def _swept(nest: NestPlan, stage: Stage) -> set[Op]:
    """The inputs that a stage passes over, those of values it computes again among them."""
    again = [p for p, _ in stage.reads if nest.nest.place.get(p) is Place.SWEEP]
    return set(stage.swept).union(*(_swept(nest, producer) for producer in again))


def _swept_again(group: GroupPlan, nest: NestPlan, kept: int) -> dict[Op, set[int]]:
    """The inputs that several sweeps read and registers do not keep, by the sweeps' levels."""
    uses: dict[Op, set[int]] = {}
    for stage in nest.nest.stages:
        if nest.nest.place[stage] is Place.ROW:
            continue
        for op in _swept(nest, stage):
            if _full(nest, group, op):
                uses.setdefault(op, set()).add(nest.nest.level[stage])
    again = {op: levels for op, levels in uses.items() if len(levels) > 1}
    for op in sorted(again, key=lambda op: op.id):
        if kept >= words_of(op):
            kept -= words_of(op)
            del again[op]
    return again
