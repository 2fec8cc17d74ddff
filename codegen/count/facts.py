"""What a scheduled kernel will do, for the cost model and the report, before any text exists."""

from __future__ import annotations

import math
from dataclasses import replace

from fusionstitch.codegen.count.sectors import read_beside
from fusionstitch.codegen.count.walks import row_words, walks
from fusionstitch.codegen.dots.streams import stream_steps
from fusionstitch.codegen.dots.tile import SPLIT_ADDS, Tile, thread_steps
from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.scratch import global_values
from fusionstitch.codegen.memory.storage import SharedLayout
from fusionstitch.codegen.places.index import Var
from fusionstitch.codegen.places.maps import Indices
from fusionstitch.codegen.schedule.residency import ADDRESS_REGISTERS
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.work import PICKS, SECTOR_BYTES, Work, arithmetic
from fusionstitch.hlo.graph import ITEM_BYTES, Graph, Op

#: Registers per thread that launch bounds leave, what kernels without them take, and what they take
#: beside the elements of a row: softmax and layer norm took 18..62 with 4..32 elements a thread.
BOUNDED_REGISTERS, USUAL_REGISTERS, ROW_REGISTERS = 64, 40, 20
MOST_REGISTERS = 255
#: A value below this share of L2 is still there when a later phase reads it.
L2_SHARE = 0.5


def kernel_facts(
    graph: Graph, plan: KernelPlan, layout: SharedLayout, device: Device
) -> KernelFacts:
    """The work of each phase, the widest scope, and Table 4's figures."""
    outputs = {o.id for o in graph.root.operands}
    passed = {s.op.id for s in global_values(plan)}
    seen: set[int] = set()
    works: list[Work] = []
    alone: list[tuple[Work, ...]] = []
    for phase in plan.phases:
        groups = [_group_work(group, plan, graph, outputs, passed) for group in phase]
        loaded: dict[int, int] = {}
        for _, loads in groups:
            for ident, size in loads.items():
                loaded[ident] = max(loaded.get(ident, 0), size)
        single = [work + _loaded(loads, seen, graph, device) for work, loads in groups]
        blocks = [min(plan.grid, group.tiles) for group in phase]
        pairs = zip(single, blocks, strict=True)
        alone.append(tuple(replace(work, blocks=n) for work, n in pairs) if len(phase) > 1 else ())
        together = sum((work for work, _ in groups), _loaded(loaded, seen, graph, device))
        busy = plan.cluster * min(plan.grid, sum(g.tiles for g in phase))
        works.append(replace(together, blocks=busy))
        seen |= loaded.keys()
    return KernelFacts(
        work=sum(works[1:], works[0]),
        phases=tuple(works),
        alone=tuple(alone),
        walks=tuple(tuple(w for g in phase for w in walks(g, plan)) for phase in plan.phases),
        threads=plan.block,
        shared_bytes=layout.total,
        registers=_registers(plan, device),
        scope=scope(plan, layout),
        facts=(
            ("unshared_bytes", layout.unshared),
            ("shared_requests", sum(p.requests for p in layout.plans)),
            ("shared_allocations", sum(p.allocations for p in layout.plans)),
            ("groups", len(plan.groups)),
        ),
    )


def _group_work(
    group: GroupPlan, plan: KernelPlan, graph: Graph, outputs: set[int], passed: set[int]
) -> tuple[Work, dict[int, int]]:
    """What a group computes and writes, and the bytes that it reads of each input."""
    tiled = {s: nest.tile for nest in group.nests if nest.tile for s in nest.nest.stages}
    steps = sum(_longest_walk(group, nest, plan.block) for nest in group.nests)
    work = Work(
        dot_steps=group.tiles * plan.block * steps,
        dot_chain=steps,
        l2_bytes=_copied_again(group) + _tiled_again(group) + read_beside(group),
    )
    loads: dict[int, int] = {}
    computed: set[int] = set()
    written = exchanged = 0
    for stage in group.group.stages:
        tile = tiled.get(stage)
        own = _computed(stage, group, graph, computed, tile)
        if own.dot_steps:  # counted above
            own = replace(own, dot_steps=0)
        if tile is not None:
            slots = SPLIT_ADDS if tile.tensor and stage.op.dtype == "f32" else 1.0
            own = replace(own, dot_flops=int(own.dot_flops * slots))
        work += own
        for op, index in stage.loads:
            loads[op.id] = max(loads.get(op.id, 0), _touched(op, index, stage))
        if stage.op.id in outputs:
            written += stage.op.shape.bytes
        elif stage.op.id in passed:
            exchanged += stage.op.shape.bytes
        for cut in stage.cuts:  # each element asks once whether it is part of it
            written += cut.output.shape.bytes
            work += Work(int_ops=stage.op.shape.size)
        for producer, _ in stage.reads:
            if producer.op.id in passed and producer not in group.group.stages:
                exchanged += producer.op.shape.bytes
    return work + Work(bytes_written=written, l2_bytes=exchanged), loads


def _loaded(loads: dict[int, int], seen: set[int], graph: Graph, device: Device) -> Work:
    """Traffic of reading inputs, of which those `seen` before may still be in L2."""
    work = Work()
    for ident, size in loads.items():
        again = ident in seen and graph.ops[ident].shape.bytes < device.l2_bytes * L2_SHARE
        work += Work(l2_bytes=size) if again else Work(bytes_read=size)
    return work


def _touched(op: Op, index: Indices, stage: Stage) -> int:
    """Bytes of an input that a stage reads at `index`: all, or where the data or the number of an
    iteration decides the place, the sectors around the elements it visits."""
    loops = frozenset[Var]().union(*(i.variables for i in index))
    own = frozenset[Var]().union(*(i.variables for i in (*stage.dims, *stage.inner)))
    if loops <= own and not any(i.fetched for i in index):
        return op.shape.bytes
    loops &= own
    along = {term for term, c in index[-1].terms if c == 1 and isinstance(term, Var)}
    run = math.prod(v.extent for v in along) * ITEM_BYTES[op.dtype]
    runs = math.prod(v.extent for v in loops - along)
    return min(op.shape.bytes, runs * -(-run // SECTOR_BYTES) * SECTOR_BYTES)


def _registers(plan: KernelPlan, device: Device) -> int:
    """Registers per thread: what launch bounds leave, or what kernels without them take."""
    streamed = [n.tile.registers for g in plan.groups for n in g.nests if n.tile and n.tile.columns]
    if streamed:
        return min(MOST_REGISTERS, max(streamed) + ADDRESS_REGISTERS)
    if plan.blocks_per_sm and any(n.tile for g in plan.groups for n in g.nests):
        most = device.registers_per_sm // (plan.blocks_per_sm * plan.block)
        return min(MOST_REGISTERS, most // 8 * 8)
    if plan.blocks_per_sm:
        return BOUNDED_REGISTERS
    words = max(row_words(nest) for group in plan.groups for nest in group.nests)
    return ROW_REGISTERS + words if words else USUAL_REGISTERS


def _copied_again(group: GroupPlan) -> int:
    """Bytes of their columns' operands that blocks of streamed rows read: but for the first of
    them, from L2."""
    return sum(
        group.tiles * -(-nest.inner // nest.tile.columns) * nest.tile.shared
        for nest in group.nests
        if nest.tile is not None and nest.tile.columns
    )


def _tiled_again(group: GroupPlan) -> int:
    """Bytes of their operands that the tiles of lone dots read from L2: all but the first of them
    do."""
    if group.group.held is None or group.group.streamed:
        return 0
    again = 0
    for nest in group.nests:
        for dot in nest.nest.products:
            item = max(ITEM_BYTES[o.dtype] for o in dot.op.operands)
            read = group.tiles * (nest.rows + nest.inner) * group.group.inner_size(dot) * item
            again += max(0, read - sum(o.shape.bytes for o in dot.op.operands))
    return again


def _computed(
    stage: Stage, group: GroupPlan, graph: Graph, before: set[int], tile: Tile | None
) -> Work:
    """Arithmetic of a stage. Its loop visits each element once, or once per result of a dot; one
    with a register tile once per row or column of the tile; a streamed one each operand once per
    block of rows, and nothing that was computed `before`."""
    visits = stage.op.shape.size * group.group.inner_size(stage)
    picks = any(graph.ops[i].opcode in PICKS for i in (stage.op.id, *stage.inlined))
    flops = flops64 = special = int_ops = 0
    inlined = stage.inlined
    if group.group.streamed:
        visits = max(1, visits // group.nests[0].rows)
        inlined = inlined - before
        before |= inlined
    elif tile is not None and group.group.held is not None:
        visits //= min(tile.team_rows, tile.team_columns)
    for i in sorted(inlined):
        work = arithmetic(graph.ops[i])
        again = 1.0
        if stage.op.opcode == "dot":
            again = visits / max(1, graph.ops[i].shape.size)
            again = max(1.0, again) if group.group.streamed else again
        if picks:
            again = min(again, visits / graph.ops[i].shape.size)
        flops += int(work.flops * again)
        flops64 += int(work.flops64 * again)
        special += int(work.special * again)
        int_ops += int(work.int_ops * again)
    inlined_work = Work(flops=flops, flops64=flops64, special=special, int_ops=int_ops)
    return arithmetic(stage.op) + inlined_work


def _longest_walk(group: GroupPlan, nest: NestPlan, block: int) -> int:
    """Steps of a dot that one thread takes for a tile, one behind the other; those without rows
    wait for the others."""
    if nest.tile is not None:
        teams = -(-nest.rows // nest.tile.team_rows)
        passes = -(-teams * nest.tile.team // block)
        steps = stream_steps if nest.tile.columns else thread_steps
        return passes * steps(group.group, nest.nest, nest.tile)
    dots = [s for s in nest.nest.stages if s.op.opcode == "dot"]
    passes = -(-nest.rows * nest.teams.threads // block)
    each = sum(-(-group.group.inner_size(s) // nest.teams.threads) for s in dots)
    return passes * each


def scope(plan: KernelPlan, layout: SharedLayout) -> str:
    """The widest scope an intermediate crosses."""
    if plan.cooperative:
        return "grid"
    if plan.cluster > 1:
        return "cluster"
    if layout.offsets:
        return "block"
    joined = any(
        nest.teams.threads > 1 and Place.REDUCE in nest.nest.place.values()
        for group in plan.groups
        for nest in group.nests
    )
    return "warp" if joined else "thread"
