"""A scheduled region as statements, with the buffers that they read and write."""

from __future__ import annotations

from fusionstitch.codegen.assembly import Written
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.types import INT, LONG, stored
from fusionstitch.codegen.lower.buffers import buffer_of, is_table, is_wide
from fusionstitch.codegen.lower.context import Context, Locations
from fusionstitch.codegen.lower.emit import KernelEmitter
from fusionstitch.codegen.memory.inplace import in_place, pairs, read_by_owners
from fusionstitch.codegen.memory.scratch import scratch_buffers
from fusionstitch.codegen.scheduled import Scheduled


def written(scheduled: Scheduled, numerics: str) -> Written:
    """What a scheduled region becomes, before all passes. Raises CodegenError."""
    graph, plan, layout = scheduled.graph, scheduled.plan, scheduled.layout
    own_buffers = scratch_buffers(graph, plan)
    writer = Writer()
    writer.name(graph.name)
    shared = list(pairs(graph, plan))
    overwritten = {i for (_, i), _ in shared}
    inputs = {p.id: writer.name(p.name or "input") for p in graph.parameters}
    buffers = [
        buffer_of(p, inputs[p.id], Memory.INPUT, i in overwritten)
        for i, p in enumerate(graph.parameters)
    ]
    outputs: dict[int, list[str]] = {}
    for op in graph.root.operands:
        name = writer.name(f"{op.name or op.opcode}_out")
        outputs.setdefault(op.id, []).append(name)
        buffers.append(buffer_of(op, name, Memory.OUTPUT))
    scratch: dict[int, str] = {}
    for own in own_buffers:
        op = own.ops[0]
        alone = f"{op.name or op.opcode}_scratch"
        name = writer.name(alone if len(own.ops) == 1 else "scratch")
        scratch |= dict.fromkeys((op.id for op in own.ops), name)
        kind = stored(op.dtype)
        buffers.append(Buffer(name, kind, own.bytes // kind.bytes, Memory.SCRATCH))
    # they lie outside of the kernel, beside all that headers declare
    tables = {op.id: writer.name(f"{op.name}_table") for op in graph if is_table(op)}
    buffers += [buffer_of(op, tables[op.id], Memory.CONSTANT) for op in graph if op.id in tables]
    owned = read_by_owners(graph, shared)
    memory = Locations(
        inputs, outputs, scratch, layout.offsets, layout.exchanges, tables, owned=owned
    )
    int_ = LONG if is_wide(graph) else INT
    emitter = KernelEmitter(Context(plan, memory, numerics, int_, writer))
    body = emitter.body()
    lowered = Lowered(
        name=graph.name,
        buffers=tuple(buffers),
        functions=tuple(emitter.functions),
        body=body,
        block=plan.block,
        cluster=plan.cluster,
        grid=plan.grid * plan.cluster,
        shared=layout.total,
        per_sm=plan.blocks_per_sm or 0,
        cooperative=plan.cooperative,
    )
    return Written(
        lowered,
        [graph],
        writer.names,
        scratch=tuple(buffer.shape for buffer in own_buffers),
        in_place=in_place(graph, plan),
    )
