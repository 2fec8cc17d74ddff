"""A kernel as a complete translation unit: parameters, tables, comments, body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.passes import PASSES
from fusionstitch.codegen.ir.printer import function, lines
from fusionstitch.codegen.ir.spelling import type_text
from fusionstitch.codegen.ir.types import INT, LONG, PointerTo, computed, stored
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.lower.context import Context, Locations
from fusionstitch.codegen.lower.emit import KernelEmitter
from fusionstitch.codegen.memory.inplace import in_place, pairs, read_by_owners
from fusionstitch.codegen.memory.scratch import Buffer as ScratchBuffer
from fusionstitch.codegen.memory.scratch import scratch_buffers
from fusionstitch.codegen.rewrite.monoids import functors
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import only_element


def lower_kernel(
    scheduled: Scheduled,
    numerics: str,
    scratch_of: Sequence[ScratchBuffer],
) -> Lowered:
    """The statements of a scheduled region with these buffers of its own."""
    graph, plan, layout = scheduled.graph, scheduled.plan, scheduled.layout
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
    for own in scratch_of:
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
    memory = Locations(inputs, outputs, scratch, layout.offsets, layout.rooms, tables, owned=owned)
    int_ = LONG if is_wide(graph) else INT
    emitter = KernelEmitter(Context(plan, memory, numerics, int_, writer))
    body = emitter.body()
    return Lowered(
        name=graph.name,
        buffers=tuple(buffers),
        functions=tuple(emitter.functions),
        body=body,
        block=plan.block,
        cluster=plan.cluster,
        grid=plan.grid * plan.cluster,
        shared=layout.total,
        per_sm=plan.blocks_per_sm or 0,
    )


def statements(scheduled: Scheduled, numerics: str, watch: Watch = NOBODY) -> Lowered:
    """What a scheduled region becomes after all passes."""
    scratch = scratch_buffers(scheduled.graph, scheduled.plan)
    lowered = lower_kernel(scheduled, numerics, scratch)
    watch.lowered(lowered, "lowered", "what the schedule became")
    return passed(lowered, watch)


def passed(lowered: Lowered, watch: Watch, left_out: Sequence[str] = ()) -> Lowered:
    """A kernel behind all passes but some."""
    for one in PASSES:
        if one.name in left_out:
            continue
        before, lowered = lowered, one.run(lowered)
        if lowered is not before:
            watch.lowered(lowered, one.name, one.about)
    return lowered


def write_kernel(scheduled: Scheduled, lowered: Lowered) -> Kernel:
    """Verifies the statements that a scheduled region became, and prints them."""
    graph, plan = scheduled.graph, scheduled.plan
    verify(lowered)
    return Kernel(
        name=graph.name,
        source="\n".join(translation_unit([graph], lowered, _summary(scheduled))),
        inputs=tuple(p.shape for p in graph.parameters),
        outputs=tuple(op.shape for op in graph.root.operands),
        scratch=tuple(buffer.shape for buffer in scratch_buffers(graph, plan)),
        grid=lowered.grid,
        block=lowered.block,
        shared_bytes=lowered.shared,
        cooperative=plan.cooperative,
        template=scheduled.template,
        in_place=in_place(graph, plan),
        cluster=lowered.cluster,
        facts=(*scheduled.facts, ("scope", scheduled.scope)),
    )


def translation_unit(
    graphs: Sequence[Graph], lowered: Lowered, summary: Sequence[str]
) -> Iterator[str]:
    """The lines of a kernel's text: `graphs` are those that it computes, which have its tables in
    their order; `summary` says what it is."""
    yield from ('#include "fusionstitch.cuh"', "")
    tables = [b.name for b in lowered.buffers if b.memory is Memory.CONSTANT]
    yield from (_table(op, tables.pop(0)) for graph in graphs for op in graph if is_table(op))
    yield from functors(graphs)
    for own in lowered.functions:
        yield from function(own)
    yield from map(comment, summary)
    yield f'extern "C" __global__ void {_cluster(lowered)}__launch_bounds__({lowered.bounds})'
    parameters = [_parameter(b) for b in lowered.buffers if b.memory is not Memory.CONSTANT]
    yield from (f"{lowered.name}(", "    " + ",\n    ".join(parameters) + ") {")
    if lowered.shared:
        yield "  FS_DYNAMIC_SHARED(shared_memory);"
    yield from lines(lowered.body, 1)
    yield from ("}", "")


def buffer_of(op: Op, name: str, memory: Memory, overwritten: bool = False) -> Buffer:
    """The buffer that holds a value in memory."""
    # a table holds what is computed with
    element = computed(op.dtype) if memory is Memory.CONSTANT else stored(op.dtype)
    return Buffer(name, element, op.shape.size, memory, overwritten)


def _parameter(buffer: Buffer) -> str:
    if buffer.memory is not Memory.INPUT:
        return f"{type_text(PointerTo(buffer.type))} {buffer.name}"
    alone = "" if buffer.overwritten else "__restrict__ "
    return f"{type_text(PointerTo(buffer.type, constant=True))} {alone}{buffer.name}"


def _cluster(lowered: Lowered) -> str:
    return f"__cluster_dims__({lowered.cluster}, 1, 1) " if lowered.cluster > 1 else ""


def is_table(op: Op) -> bool:
    """A constant whose elements differ, if only in a zero's sign: it becomes an array of the
    translation unit."""
    return op.opcode == "constant" and op.shape.size > 1 and only_element(op.attrs["value"]) is None


def _table(op: Op, name: str) -> str:
    values = ", ".join(literal(v, op.dtype) for v in op.attrs["value"].flat)
    compute = type_text(computed(op.dtype))
    return f"static __device__ constexpr {compute} {name}[{op.shape.size}] = {{{values}}};\n"


def is_wide(graph: Graph) -> bool:
    """Whether an index may pass 2^31."""
    return any(op.shape.size >= 1 << 31 for op in graph.ops[:-1])


def _summary(scheduled: Scheduled) -> list[str]:
    ops = [op for op in scheduled.graph.ops[:-1] if op.opcode != "parameter"]
    lines = [f"{scheduled.graph.name}: {len(ops)} ops after rewriting, {scheduled.scope} scope."]
    return [*lines, *scheduled.template.splitlines()]
