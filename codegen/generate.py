"""From a region to a kernel: stages, groups, nests, memory, text (paper Algorithm 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen.caching import cache_values
from codegen.emit import KernelEmitter, Memory, describe
from codegen.expressions import literal
from codegen.groups import Group, form_groups
from codegen.kernel import Kernel
from codegen.schedule import KernelPlan, schedule
from codegen.source import Writer
from codegen.stages import find_stages
from codegen.storage import plan_layout, scratch_ops
from codegen.types import c_type
from costmodel.devices import Device
from hlo.errors import CodegenError
from hlo.graph import Graph, Op


@dataclass(frozen=True)
class CodegenOptions:
    """What changes the text of a kernel besides the region and the device."""

    numerics: str = "default"
    sharing: bool = True


def generate(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Kernel:
    """The kernel of a region. Raises CodegenError if none of the ways to schedule it works."""
    options = options or CodegenOptions()
    stages = find_stages(graph)
    if not stages:
        raise CodegenError(f"Region {graph.name} computes nothing: there is no kernel to write.")
    groups = cache_values(form_groups(stages, device), graph, device)
    return _print(graph, schedule(groups, device), device, options)


def _print(graph: Graph, plan: KernelPlan, device: Device, options: CodegenOptions) -> Kernel:
    names = Writer()
    inputs = {p.id: names.name(p.name or f"input_{i}") for i, p in enumerate(graph.parameters)}
    outputs: dict[int, list[str]] = {}
    parameters: list[str] = []
    for p in graph.parameters:
        parameters.append(f"const {c_type(p.dtype).storage}* __restrict__ {inputs[p.id]}")
    for op in graph.root.operands:
        name = names.name(f"{op.name or op.opcode}_out")
        outputs.setdefault(op.id, []).append(name)
        parameters.append(f"{c_type(op.dtype).storage}* {name}")
    passed = scratch_ops(graph, plan)
    scratch = {op.id: names.name(f"{op.name or op.opcode}_scratch") for op in passed}
    parameters += [f"{c_type(op.dtype).storage}* {scratch[op.id]}" for op in passed]

    layout = plan_layout(graph, plan, device.shared_per_block, options.sharing)
    tables = {op.id: names.name(op.name or "table") for op in graph if _is_table(op)}
    memory = Memory(inputs, outputs, scratch, layout.offsets, tables)
    emitter = KernelEmitter(graph, plan, memory, options.numerics, _is_wide(graph))
    for name in [*inputs.values(), *scratch.values(), *tables.values()]:
        emitter.writer.name(name)
    for output in outputs.values():
        for name in output:
            emitter.writer.name(name)
    body = emitter.body()

    source = ['#include "fusionstitch.cuh"', ""]
    for op in graph:
        if op.id in tables:
            source.append(_table_text(op, tables[op.id]))
    source += [f"// {line}" for line in _summary(graph)]
    head = f'extern "C" __global__ void __launch_bounds__({plan.block})\n{graph.name}('
    source.append(head + ",\n    ".join(["", *parameters]).lstrip(",") + ") {")
    if layout.total:
        source.append("  FS_DYNAMIC_SHARED(shared_memory);")
    source += ["  " + line if line else "" for line in body.splitlines()]
    source += ["}", ""]
    return Kernel(
        name=graph.name,
        source="\n".join(source),
        inputs=tuple(p.shape for p in graph.parameters),
        outputs=tuple(op.shape for op in graph.root.operands),
        scratch=tuple(op.shape for op in passed),
        grid=plan.grid,
        block=plan.block,
        shared_bytes=layout.total,
        cooperative=plan.cooperative,
        template="",
    )


def _is_wide(graph: Graph) -> bool:
    return any(op.shape.size >= 1 << 31 for op in graph if not op.shape.is_tuple)


def _is_table(op: Op) -> bool:
    if op.opcode != "constant":
        return False
    value = np.asarray(op.attrs["value"])
    return value.size > 1 and not bool((value == value.flat[0]).all())


def _table_text(op: Op, name: str) -> str:
    values = ", ".join(literal(v, op.dtype) for v in np.asarray(op.attrs["value"]).flat)
    compute = c_type(op.dtype).compute
    return f"static __device__ const {compute} {name}[{op.shape.size}] = {{{values}}};\n"


def _summary(graph: Graph) -> Sequence[str]:
    ops = [op for op in graph.ops[:-1] if op.opcode != "parameter"]
    lines = [f"{graph.name}: {len(ops)} ops in one kernel"]
    return lines


__all__ = ["CodegenOptions", "Group", "describe", "generate"]
