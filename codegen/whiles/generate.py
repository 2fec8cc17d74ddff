"""From a region with loops to one kernel: flatten, rewrite, deal rows, lower, verify, print."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.kernel import Lowered, Space
from fusionstitch.codegen.ir.passes import PASSES
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.loops.stages import inner_extents
from fusionstitch.codegen.lower.program import buffer_of, is_table, is_wide, translation_unit
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.codegen.whiles.flat import Flat, flatten
from fusionstitch.codegen.whiles.lower import Lowering, Memory
from fusionstitch.codegen.whiles.lower_phased import PhasedLowering
from fusionstitch.codegen.whiles.phased import Phased, plan_phased
from fusionstitch.codegen.whiles.price import loop_us, turns
from fusionstitch.codegen.whiles.ragged import let_rows_stop
from fusionstitch.codegen.whiles.rows import Rows, find_rows
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.work import Work
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Shape
from fusionstitch.hlo.semantics import Kind, kind_of

#: Instructions of a row's iterations, written out, that a kernel holds.
MOST_WORK = 4000
#: Elements that a thread reduces, written out as one expression.
MOST_JOINED = 256
#: Threads of a block by the rows from which on blocks are so large: few rows are spread over many
#: multiprocessors.
BLOCKS = ((1 << 17, 128), (1 << 15, 64), (0, 32))


@dataclass(frozen=True, eq=False)
class InRows:
    """A region with loops whose rows are dealt to threads."""

    flat: Flat
    rows: Rows
    block: int
    us: float

    @property
    def template(self) -> str:
        """How the kernel is dealt out, as a line."""
        extents = " x ".join(str(n) for _, n in self.rows.chosen) or "1"
        return f"loop rows {extents} threads {self.block}"


@dataclass(frozen=True, eq=False)
class Looped:
    """A region with loops, the form of its kernel, and what that is estimated to do."""

    region: Graph
    form: InRows | Phased
    facts: KernelFacts


def plan_loops(region: Graph, settings: Settings, watch: Watch = NOBODY) -> Looped:
    """The fastest form by the model. Raises CodegenError where no kernel runs the loops of a
    region."""
    if settings.template is not None:
        raise CodegenError("Kernels of loops follow no template.")
    forms: list[InRows | Phased] = []
    refused: list[CodegenError] = []
    for plan in (_in_rows, _in_phases):
        try:
            forms.append(plan(region, settings, watch))
        except CodegenError as error:
            refused.append(error)
    if not forms:
        raise CodegenError(" ".join(map(str, refused)))
    form = min(forms, key=lambda form: form.us)
    return Looped(region, form, _facts(region, form))


def _facts(region: Graph, form: InRows | Phased) -> KernelFacts:
    flat = form.flat if isinstance(form, InRows) else form.program.flat
    rows = form.rows.count if isinstance(form, InRows) else 0
    moved = Work(
        bytes_read=sum(p.shape.bytes for p in region.parameters),
        bytes_written=sum(op.shape.bytes for op in region.root.operands),
    )
    return KernelFacts(
        moved,
        threads=form.block,
        scope="loop",
        loop_us=form.us,
        facts=(("rows", rows), ("turns", turns(flat, flat.loops)[0])),
    )


def _flat(region: Graph, settings: Settings, watch: Watch) -> Flat:
    flat = flatten(region)
    graph = rewritten(flat.graph, settings, None, watch)
    if any(op.shape.size == 0 for op in graph.ops[:-1]):
        raise CodegenError("A value without elements: its loop is left to XLA.")
    return Flat(graph, flat.inputs, flat.outputs, flat.loops)


def _in_rows(region: Graph, settings: Settings, watch: Watch) -> InRows:
    """Each thread runs all iterations of its row."""
    flat = let_rows_stop(_flat(region, settings, watch))
    rows = find_rows(flat, settings.device.sm_count)
    work = rows.total(flat)
    if work > MOST_WORK:
        raise CodegenError(f"A thread would run {work} instructions of its row an iteration.")
    sums = [op for op in flat.graph.ops[:-1] if kind_of(op.opcode) is Kind.REDUCTION]
    joined = max((math.prod(inner_extents(op)) for op in sums), default=0)
    if joined > MOST_JOINED:
        raise CodegenError(f"A thread would reduce {joined} elements of its row, written out.")
    block = next(threads for least, threads in BLOCKS if rows.count >= least)
    form = InRows(flat, rows, block, loop_us(flat, rows, settings.device))
    lower_rows(form, settings)  # only lowering tells whether every value has a place
    return form


def _in_phases(region: Graph, settings: Settings, watch: Watch) -> Phased:
    """All threads go through each iteration together."""
    return plan_phased(_flat(region, settings, watch), settings)


def write_loops(looped: Looped, settings: Settings, watch: Watch = NOBODY) -> Kernel:
    """The kernel of a region with loops. Raises CodegenError where a value has no place."""
    form, region = looped.form, looped.region
    if isinstance(form, InRows):
        scratch, per_sm = list[Shape](), 0
        lowered, graphs = lower_rows(form, settings), [form.flat.graph]
    else:
        lowering = PhasedLowering(form, settings.options.numerics, settings.device.shared_per_block)
        lowered = lowering.lowered()
        graphs, scratch = lowering.graphs, lowering.scratch
        per_sm = -(-form.grid // settings.device.sm_count)
    watch.lowered(lowered, "lowered", "what the loops became")
    for one in PASSES:
        before, lowered = lowered, one.run(lowered)
        if lowered is not before:
            watch.lowered(lowered, one.name, one.about)
    verify(lowered)
    bounds = f"{lowered.block}, {per_sm}" if per_sm else f"{lowered.block}"
    summary = list(_summary(region, form))
    kernel = Kernel(
        name=region.name,
        source="\n".join(translation_unit(graphs, lowered, summary, bounds)),
        inputs=tuple(p.shape for p in region.parameters),
        outputs=tuple(op.shape for op in region.root.operands),
        scratch=tuple(scratch),
        grid=lowered.grid,
        block=lowered.block,
        shared_bytes=lowered.shared,
        cooperative=isinstance(form, Phased) and not form.alone,
        template=form.template,
        facts=(*looped.facts.facts, ("scope", "loop")),
    )
    if not (verdict := launchable(kernel, settings.device)):
        raise CodegenError(f"{verdict}.")
    return kernel


def lower_rows(form: InRows, settings: Settings) -> Lowered:
    """The statements of the loops, one row a thread."""
    flat, graph, writer = form.flat, form.flat.graph, Writer()
    writer.name(graph.name)
    inputs = [writer.name(p.name or "input") for p in graph.parameters[: flat.inputs]]
    roots = graph.root.operands[: flat.outputs]
    outputs = [writer.name(f"{op.name or op.opcode}_out") for op in roots]
    tables = {op.id: writer.name(f"{op.name}_table") for op in graph if is_table(op)}
    buffers = [
        *(buffer_of(p, n, Space.INPUT) for p, n in zip(graph.parameters, inputs, strict=False)),
        *(buffer_of(op, n, Space.OUTPUT) for op, n in zip(roots, outputs, strict=True)),
        *(buffer_of(op, tables[op.id], Space.TABLE) for op in graph if op.id in tables),
    ]
    int_ = "long long" if is_wide(graph) else "int"
    memory = Memory(inputs, outputs, tables)
    lowering = Lowering(flat, form.rows, memory, settings.options.numerics, int_, writer)
    return Lowered(
        name=graph.name,
        buffers=tuple(buffers),
        functions=(),
        body=lowering.body(form.block),
        block=form.block,
        cluster=1,
        grid=-(-form.rows.count // form.block),
        shared=0,
    )


def _summary(region: Graph, form: InRows | Phased) -> Iterator[str]:
    flat = form.flat if isinstance(form, InRows) else form.program.flat
    ops = [op for op in flat.graph.ops[:-1] if op.opcode != "parameter"]
    how = "of a row in one thread" if isinstance(form, InRows) else "in phases"
    yield f"{region.name}: {len(ops)} ops in one kernel, all iterations {how}."
    yield form.template
