"""Storage: which stage values pass through shared or global memory, and where they lie.

Algorithm 4 plans over positions in execution order. The loops of one nest interleave row by row,
so inside a nest a buffer may change hands only in place; everything else a nest reads stays
alive to the nest's end, which has a position of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from fusionstitch.codegen.loops.dominance import DominanceTree
from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.shared import SharedPlan, SharedRequest, plan_shared
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan, slot_bytes
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph


@dataclass(frozen=True)
class SharedLayout:
    """Byte offsets of stage values; every group starts behind the scratch of reductions at 0.

    `plans` holds Algorithm 4's result of each group; `unshared` the total had nothing been reused.
    """

    offsets: Mapping[Stage, int]
    total: int
    unshared: int
    plans: tuple[SharedPlan, ...]


def plan_layout(graph: Graph, plan: KernelPlan, limit: int, sharing: bool) -> SharedLayout:
    """Shared memory of a kernel. Raises CodegenError if `limit` bytes per block do not suffice."""
    scratch = _reduction_scratch(plan)
    tree = DominanceTree(graph.ops[:-1], graph.root.operands)
    offsets: dict[Stage, int] = {}
    plans: list[SharedPlan] = []
    for group in plan.groups:
        requests, ends = _requests(group, plan.block)
        if not any(r.bytes for r in requests):
            continue

        def dominates(taker: Hashable, owner: Hashable, ends: dict = ends) -> bool:
            takers = ends.get(taker) or [taker]
            return any(tree.dominates(t.op, owner.op) for t in takers)  # type: ignore[attr-defined]

        result = plan_shared(requests, dominates, limit - scratch, sharing)
        if not isinstance(result, SharedPlan):
            raise CodegenError(f"{result} Split the pattern, or lower the tile size.")
        plans.append(result)
        for stage, slot in result.slots.items():
            assert isinstance(stage, Stage)
            offsets[stage] = scratch + slot.offset
    return SharedLayout(
        offsets,
        scratch + max((p.total for p in plans), default=0),
        scratch + max((p.unshared for p in plans), default=0),
        tuple(plans),
    )


def _reduction_scratch(plan: KernelPlan) -> int:
    """Bytes that joining threads of several warps takes: a slot per reduction of a row, or all that
    threads have of a reduction over rows."""
    need = 0
    for group in plan.groups:
        for nest in group.nests:
            if nest.teams.joins_warps:
                reduced = nest.nest.placed(Place.REDUCE)
                need = max(need, sum(slot_bytes(s.op.dtype, plan.cluster) for s in reduced))
            if nest.tile is not None:
                need = max(need, nest.tile.shared)
            if nest.tile is not None and nest.tile.shares > 1:
                bytes_each = max(compute_bytes(s.op.dtype) for s in nest.nest.products)
                values = nest.tile.rows * nest.tile.steps + nest.tile.unit
                need = max(need, plan.block * values * bytes_each)
            for stage in nest.nest.stages:
                if nest.teams.columns and nest.nest.place[stage] is Place.REDUCE:
                    need = max(need, plan.block * compute_bytes(stage.op.dtype))
                if nest.nest.place[stage] is Place.CARRY and nest.teams.threads < plan.block:
                    values = nest.most_per_thread()
                    need = max(need, plan.block * values * compute_bytes(stage.op.dtype))
    return -(-need // 16) * 16


def _requests(
    group: GroupPlan, block: int
) -> tuple[list[SharedRequest], dict[Hashable, list[Stage]]]:
    """Requests in execution order, and the stages of each nest by its end marker."""
    nest_of = {s: n for n, nest in enumerate(group.nests) for s in nest.nest.stages}
    wanted = group.shared
    requests: list[SharedRequest] = []
    ends: dict[Hashable, list[Stage]] = {}
    for number, nest in enumerate(group.nests):
        read = _values_read(nest, wanted, nest_of, number)
        takers: dict[Stage, Stage] = {}
        if not nest.repeats(block, group.ragged):
            takers = _in_place_takers(group, nest, number, read, wanted, nest_of)
        for stage in sorted(nest.nest.stages, key=lambda s: (nest.nest.level[s], s.op.id)):
            taken = frozenset(v for v, taker in takers.items() if taker is stage)
            size = 0
            if stage in wanted:
                elements = group.points * group.group.block_size(stage)
                size = elements * compute_bytes(stage.op.dtype)
            requests.append(SharedRequest(stage, size, taken, taken, nest=number))
        end = ("end of nest", number)
        ends[end] = nest.nest.stages
        requests.append(SharedRequest(end, 0, frozenset(read - set(takers)), nest=number))
    return requests, ends


def _values_read(
    nest: NestPlan, wanted: frozenset[Stage], nest_of: Mapping[Stage, int], number: int
) -> set[Stage]:
    return {
        producer
        for stage in nest.nest.stages
        for producer, _ in stage.reads
        if producer in wanted and nest_of[producer] != number
    }


def _in_place_takers(
    group: GroupPlan,
    nest: NestPlan,
    number: int,
    read: set[Stage],
    wanted: frozenset[Stage],
    nest_of: Mapping[Stage, int],
) -> dict[Stage, Stage]:
    """value -> the stage of this nest that may write over it, element by element."""
    takers: dict[Stage, Stage] = {}
    axes = group.group.axes
    for value in sorted(read, key=lambda s: s.op.id):
        own = group.group.in_block(value)
        readers = [
            (stage, set(own) <= axes.carried[stage.number, n])
            for stage in group.group.stages
            for n, (producer, _) in enumerate(stage.reads)
            if producer is value
        ]
        if any(nest_of[s] > number or (nest_of[s] == number and not same) for s, same in readers):
            continue
        here = [s for s, _ in readers if nest_of[s] == number]
        last = max(nest.nest.level[s] for s in here)
        for stage in here:
            if (
                stage in wanted
                and stage not in takers.values()
                and nest.nest.place[stage] is Place.SWEEP
                and nest.nest.level[stage] == last
                and group.group.in_block(stage) == own
            ):
                takers[value] = stage
                break
    return takers
