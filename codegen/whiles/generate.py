"""From a region with loops to one kernel: flatten, rewrite, deal rows, lower, verify, print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.kernel import Lowered, Space
from fusionstitch.codegen.ir.passes import PASSES
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.lower.program import buffer_of, is_table, is_wide, translation_unit
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.codegen.whiles.flat import Flat, flatten
from fusionstitch.codegen.whiles.lower import Lowering, Memory
from fusionstitch.codegen.whiles.price import loop_us, turns
from fusionstitch.codegen.whiles.ragged import let_rows_stop
from fusionstitch.codegen.whiles.rows import Rows, find_rows
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.work import Work
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph

#: Instructions of a row's iterations, written out, that a kernel holds.
MOST_WORK = 4000
#: Threads of a block by the rows from which on blocks are so large: few rows are spread over many
#: multiprocessors.
BLOCKS = ((1 << 17, 128), (1 << 15, 64), (0, 32))


@dataclass(frozen=True, eq=False)
class Looped:
    """A region with loops, and how its rows are dealt to threads."""

    flat: Flat
    rows: Rows
    block: int
    facts: KernelFacts

    @property
    def template(self) -> str:
        """How the kernel is dealt out, as a line."""
        extents = " x ".join(str(n) for _, n in self.rows.chosen) or "1"
        return f"loop rows {extents} threads {self.block}"


def plan_loops(region: Graph, settings: Settings, watch: Watch = NOBODY) -> Looped:
    """Raises CodegenError where no kernel runs the loops of a region."""
    if settings.template is not None:
        raise CodegenError("Kernels of loops follow no template.")
    flat = flatten(region)
    graph = rewritten(flat.graph, settings, None, watch)
    flat = let_rows_stop(Flat(graph, flat.inputs, flat.outputs, flat.loops))
    if any(op.shape.size == 0 for op in flat.graph.ops[:-1]):
        raise CodegenError("A value without elements: its loop is left to XLA.")
    rows = find_rows(flat, settings.device.sm_count)
    work = rows.total(flat)
    if work > MOST_WORK:
        raise CodegenError(f"A thread would run {work} instructions of its row an iteration.")
    block = next(threads for least, threads in BLOCKS if rows.count >= least)
    moved = Work(
        bytes_read=sum(p.shape.bytes for p in region.parameters),
        bytes_written=sum(op.shape.bytes for op in region.root.operands),
        blocks=-(-rows.count // block),
    )
    facts = KernelFacts(
        moved,
        threads=block,
        scope="loop",
        loop_us=loop_us(flat, rows, settings.device),
        facts=(("rows", rows.count), ("turns", turns(flat, flat.loops)[0])),
    )
    return Looped(flat, rows, block, facts)


def write_loops(looped: Looped, settings: Settings, watch: Watch = NOBODY) -> Kernel:
    """The kernel of a region with loops. Raises CodegenError where a value has no place."""
    lowered = lower_loops(looped, settings)
    watch.lowered(lowered, "lowered", "what the loops became")
    for one in PASSES:
        before, lowered = lowered, one.run(lowered)
        if lowered is not before:
            watch.lowered(lowered, one.name, one.about)
    verify(lowered)
    graph, flat = looped.flat.graph, looped.flat
    return Kernel(
        name=graph.name,
        source="\n".join(
            translation_unit(graph, lowered, list(_summary(looped)), f"{looped.block}")
        ),
        inputs=tuple(p.shape for p in graph.parameters[: flat.inputs]),
        outputs=tuple(op.shape for op in graph.root.operands[: flat.outputs]),
        scratch=(),
        grid=lowered.grid,
        block=lowered.block,
        shared_bytes=0,
        cooperative=False,
        template=looped.template,
        facts=(*looped.facts.facts, ("scope", "loop")),
    )


def lower_loops(looped: Looped, settings: Settings) -> Lowered:
    """The statements of the loops, one row a thread."""
    flat, graph, writer = looped.flat, looped.flat.graph, Writer()
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
    lowering = Lowering(flat, looped.rows, memory, settings.options.numerics, int_, writer)
    return Lowered(
        name=graph.name,
        buffers=tuple(buffers),
        functions=(),
        body=lowering.body(looped.block),
        block=looped.block,
        cluster=1,
        grid=-(-looped.rows.count // looped.block),
        shared=0,
    )


def _summary(looped: Looped) -> Iterator[str]:
    ops = [op for op in looped.flat.graph.ops[:-1] if op.opcode != "parameter"]
    yield f"{looped.flat.graph.name}: {len(ops)} ops in one kernel, all iterations of a row in one"
    yield f"thread. {looped.template}"
