"""Storage: which stage values pass through shared or global memory and where they lie, and the
buffers in which threads exchange values.

Algorithm 4 plans over positions in execution order. The loops of one nest interleave row by row. So
inside a nest a buffer may get a new owner only in place, and never in a nest whose threads go
through runs of elements. Everything else that a nest reads stays live to the nest's end, which has
a position of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fusionstitch.codegen.index_maps.vectors import ACCESS_BYTES
from fusionstitch.codegen.loops.dominance import DominanceTree
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.exchange_scratch import ExchangeBuffer, exchange_buffers
from fusionstitch.codegen.memory.shared import Allocation, SharedPlan, SharedRequest, plan_shared
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph


@dataclass(frozen=True)
class SharedLayout:
    """Where stage values and exchange buffers of nests lie, in bytes of a block's shared memory.
    Every group has all of it: no two are at work in one block at once.

    `plans` holds Algorithm 4's result of each group; `unshared` the total had nothing been reused.
    """

    offsets: Mapping[Stage, int]
    exchanges: Mapping[ExchangeBuffer, Allocation]
    total: int
    unshared: int
    plans: tuple[SharedPlan, ...]


def plan_layout(graph: Graph, plan: KernelPlan, limit: int, sharing: bool) -> SharedLayout:
    """Shared memory of a kernel. Raises CodegenError if `limit` bytes per block do not suffice."""
    offsets: dict[Stage, int] = {}
    exchanges: dict[ExchangeBuffer, Allocation] = {}
    plans: list[SharedPlan] = []
    tree: DominanceTree | None = None
    for group in plan.groups:
        requests, stages = requests_of(group, plan)
        if not any(r.bytes or r.scratch for r in requests):
            continue
        tree = tree or DominanceTree(graph.ops[:-1], graph.root.operands)
        result = plan_shared(requests, partial(_dominates, tree, stages), limit, sharing)
        if not isinstance(result, SharedPlan):
            raise CodegenError(f"{result} Split the pattern, or lower the tile size.")
        plans.append(result)
        offsets |= {
            s: allocation.offset for s, allocation in result.results.items() if isinstance(s, Stage)
        }
        exchanges |= {
            r: allocation
            for r, allocation in result.scratch.items()
            if isinstance(r, ExchangeBuffer)
        }
    return SharedLayout(
        offsets,
        exchanges,
        _whole(max((p.total for p in plans), default=0)),
        _whole(max((p.unshared for p in plans), default=0)),
        tuple(plans),
    )


def _whole(size: int) -> int:
    """`size` in whole accesses of the widest kind: a compiler that joins loads reads so far."""
    return -(-size // ACCESS_BYTES) * ACCESS_BYTES


def _dominates(
    tree: DominanceTree,
    stages: Mapping[Hashable, Sequence[Stage]],
    taker: Hashable,
    owner: Hashable,
) -> bool:
    """Whether a stage, or any of those that an exchange buffer or the end of a nest stands for,
    dominates the stage whose value a buffer holds."""
    assert isinstance(owner, Stage)
    takers = [taker] if isinstance(taker, Stage) else stages[taker]
    return any(tree.dominates(t.op, owner.op) for t in takers)


def requests_of(
    group: GroupPlan, plan: KernelPlan
) -> tuple[list[SharedRequest], dict[Hashable, Sequence[Stage]]]:
    """Requests in execution order: of each nest its exchange buffers, its values, and its end. The
    stages of the nest by each that is not a stage itself."""
    nest_of = {s: n for n, nest in enumerate(group.nests) for s in nest.nest.stages}
    shared = group.shared
    requests: list[SharedRequest] = []
    stages: dict[Hashable, Sequence[Stage]] = {}
    for number, nest in enumerate(group.nests):
        read = _values_read(nest, shared, nest_of, number)
        takers: dict[Stage, Stage] = {}
        if not nest.repeats(plan.block, group.ragged) and nest.walk.run.length == 1:
            takers = _in_place_takers(group, nest, number, read, shared, nest_of)
        for exchange, size in exchange_buffers(nest, group, plan.block, plan.cluster):
            stages[exchange] = nest.nest.stages
            requests.append(SharedRequest(exchange, scratch=size, nest=number))
        for stage in sorted(nest.nest.stages, key=lambda s: (nest.nest.level[s], s.op.id)):
            taken = frozenset(v for v, taker in takers.items() if taker is stage)
            size = 0
            if stage in shared:
                elements = group.points * group.group.block_size(stage)
                size = elements * compute_bytes(stage.op.dtype)
            requests.append(SharedRequest(stage, size, taken, taken, nest=number))
        end = ("end of nest", number)
        stages[end] = nest.nest.stages
        requests.append(SharedRequest(end, 0, frozenset(read - set(takers)), nest=number))
    return requests, stages


def _values_read(
    nest: NestPlan, shared: frozenset[Stage], nest_of: Mapping[Stage, int], number: int
) -> set[Stage]:
    return {
        producer
        for stage in nest.nest.stages
        for producer, _ in stage.reads
        if producer in shared and nest_of[producer] != number
    }


def _in_place_takers(
    group: GroupPlan,
    nest: NestPlan,
    number: int,
    read: set[Stage],
    shared: frozenset[Stage],
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
                stage in shared
                and stage not in takers.values()
                and nest.nest.role[stage] is Role.SWEEP
                and nest.nest.level[stage] == last
                and group.group.in_block(stage) == own
            ):
                takers[value] = stage
                break
    return takers
