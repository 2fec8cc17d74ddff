"""A kernel as a complete translation unit: parameters, tables, comments, body."""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.printer import function, lines
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.lower.context import Context, Memory
from fusionstitch.codegen.lower.emit import KernelEmitter
from fusionstitch.codegen.memory.inplace import in_place
from fusionstitch.codegen.memory.scratch import scratch_buffers
from fusionstitch.codegen.rewrite.monoids import functors
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import only_element


def write_kernel(scheduled: Scheduled, numerics: str) -> Kernel:
    """Prints a scheduled region."""
    graph, plan, layout = scheduled.graph, scheduled.plan, scheduled.layout
    writer = Writer()
    writer.name(graph.name)
    buffers = scratch_buffers(graph, plan)
    inputs = {p.id: writer.name(p.name or "input") for p in graph.parameters}
    outputs: dict[int, list[str]] = {}
    for op in graph.root.operands:
        outputs.setdefault(op.id, []).append(writer.name(f"{op.name or op.opcode}_out"))
    scratch: dict[int, str] = {}
    for buffer in buffers:
        op = buffer.ops[0]
        alone = f"{op.name or op.opcode}_scratch"
        scratch |= dict.fromkeys(
            (op.id for op in buffer.ops), writer.name(alone if len(buffer.ops) == 1 else "scratch")
        )
    # they lie outside of the kernel, beside all that headers declare
    tables = {op.id: writer.name(f"{op.name}_table") for op in graph if is_table(op)}
    memory = Memory(inputs, outputs, scratch, layout.offsets, tables)
    aliases = in_place(graph, plan)
    int_ = "long long" if _is_wide(graph) else "int"
    emitter = KernelEmitter(Context(plan, memory, numerics, int_, writer))
    body = emitter.body()

    overwritten = {i for _, i in aliases}
    parameters = [
        f"const {_storage(p)}* {'' if i in overwritten else '__restrict__ '}{inputs[p.id]}"
        for i, p in enumerate(graph.parameters)
    ]
    printed: dict[int, Iterable[str]] = {i: iter(names) for i, names in outputs.items()}
    parameters += [f"{_storage(op)}* {next(iter(printed[op.id]))}" for op in graph.root.operands]
    parameters += [f"{_storage(b.ops[0])}* {scratch[b.ops[0].id]}" for b in buffers]
    source = ['#include "fusionstitch.cuh"', ""]
    source += [_table(op, tables[op.id]) for op in graph if op.id in tables]
    source += functors(graph)
    source += (line for one in emitter.functions for line in function(one))
    source += map(comment, _summary(scheduled))
    bounds = f"{plan.block}, {plan.blocks_per_sm}" if plan.blocks_per_sm else f"{plan.block}"
    attributes = f"{_cluster(plan)}__launch_bounds__({bounds})"
    source += [f'extern "C" __global__ void {attributes}', f"{graph.name}("]
    source += ["    " + ",\n    ".join(parameters) + ") {"]
    if layout.total:
        source.append("  FS_DYNAMIC_SHARED(shared_memory);")
    source += lines(body, 1)
    source += ["}", ""]
    return Kernel(
        name=graph.name,
        source="\n".join(source),
        inputs=tuple(p.shape for p in graph.parameters),
        outputs=tuple(op.shape for op in graph.root.operands),
        scratch=tuple(buffer.shape for buffer in buffers),
        grid=plan.grid * plan.cluster,
        block=plan.block,
        shared_bytes=layout.total,
        cooperative=plan.cooperative,
        template=scheduled.facts.template,
        in_place=aliases,
        cluster=plan.cluster,
        facts=(*scheduled.facts.facts, ("scope", scheduled.facts.scope)),
    )


def _cluster(plan: KernelPlan) -> str:
    return f"__cluster_dims__({plan.cluster}, 1, 1) " if plan.cluster > 1 else ""


def is_table(op: Op) -> bool:
    """A constant whose elements differ, if only in a zero's sign: it becomes an array of the
    translation unit."""
    return op.opcode == "constant" and op.shape.size > 1 and only_element(op.attrs["value"]) is None


def _table(op: Op, name: str) -> str:
    values = ", ".join(literal(v, op.dtype) for v in op.attrs["value"].flat)
    compute = c_type(op.dtype).compute
    return f"static __device__ constexpr {compute} {name}[{op.shape.size}] = {{{values}}};\n"


def _storage(op: Op) -> str:
    return c_type(op.dtype).storage


def _is_wide(graph: Graph) -> bool:
    """Whether an index may pass 2^31."""
    return any(op.shape.size >= 1 << 31 for op in graph.ops[:-1])


def _summary(scheduled: Scheduled) -> list[str]:
    ops = [op for op in scheduled.graph.ops[:-1] if op.opcode != "parameter"]
    lines = [
        f"{scheduled.graph.name}: {len(ops)} ops in one kernel, {scheduled.facts.scope} scope."
    ]
    return [*lines, *scheduled.facts.template.splitlines()]
