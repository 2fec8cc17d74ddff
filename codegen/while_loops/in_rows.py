"""Loops whose rows are dealt to threads: each runs all iterations of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fusionstitch.codegen.assembly import Written
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.types import INT, LONG
from fusionstitch.codegen.lower.buffers import buffer_of, is_table, is_wide
from fusionstitch.codegen.rewrite.extents import OWN_LOOP, inner_extents
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.while_loops.flat import Flat, Loop
from fusionstitch.codegen.while_loops.lower import Locations, Lowering
from fusionstitch.codegen.while_loops.overwrites import Pairs, row_by_row
from fusionstitch.codegen.while_loops.ragged import let_rows_stop
from fusionstitch.codegen.while_loops.rows import Rows, find_rows
from fusionstitch.codegen.while_loops.trips import with_counters
from fusionstitch.hlo.errors import CodegenError
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
    """A region with loops whose rows are dealt to threads; `steps` are the variables that count
    iterations, by loop."""

    flat: Flat
    rows: Rows
    block: int
    steps: Mapping[Loop, str]

    @property
    def template(self) -> str:
        """How the kernel is dealt out, as a line."""
        extents = " x ".join(str(n) for _, n in self.rows.chosen) or "1"
        return f"loop rows {extents} threads {self.block}"


def in_rows(flat: Flat, settings: Settings) -> InRows:
    """Raises CodegenError where one iteration of a row is too much for a thread."""
    flat = let_rows_stop(flat)
    rows = find_rows(flat, settings.device)
    work = rows.total(flat)
    if work > MOST_WORK:
        raise CodegenError(f"A thread would run {work} instructions of its row an iteration.")
    if (shared := next((op for op in flat.graph if op.opcode in OWN_LOOP), None)) is not None:
        raise CodegenError(f"Threads work together on each row of {shared.name}.")
    sums = [op for op in flat.graph.ops[:-1] if kind_of(op.opcode) is Kind.REDUCTION]
    joined = max((math.prod(inner_extents(op)) for op in sums), default=0)
    if joined > MOST_JOINED:
        raise CodegenError(f"A thread would reduce {joined} elements of its row, written out.")
    block = next(threads for least, threads in BLOCKS if rows.count >= least)
    counted, steps = with_counters(flat)
    return InRows(counted, rows, block, steps)


def write_rows(form: InRows, settings: Settings) -> Written:
    """The statements of the loops. Raises CodegenError where a value cannot be stored."""
    pairs = row_by_row(form.flat, form.rows)
    writer = Writer()
    lowered = _lowered(form, settings, pairs, writer)
    return Written(lowered, [form.flat.graph], writer.names, in_place=pairs)


def _lowered(form: InRows, settings: Settings, in_place: Pairs, writer: Writer) -> Lowered:
    flat, graph = form.flat, form.flat.graph
    writer.name(graph.name)
    for step in form.steps.values():
        assert writer.name(step) == step
    inputs = [writer.name(p.name or "input") for p in graph.parameters[: flat.inputs]]
    roots = graph.root.operands[: flat.outputs]
    outputs = [writer.name(f"{op.name or op.opcode}_out") for op in roots]
    tables = {op.id: writer.name(f"{op.name}_table") for op in graph if is_table(op)}
    over = {i for _, i in in_place}
    begun = enumerate(zip(graph.parameters, inputs, strict=False))
    buffers = [
        *(buffer_of(p, n, Memory.INPUT, i in over) for i, (p, n) in begun),
        *(buffer_of(op, n, Memory.OUTPUT) for op, n in zip(roots, outputs, strict=True)),
        *(buffer_of(op, tables[op.id], Memory.CONSTANT) for op in graph if op.id in tables),
    ]
    int_ = LONG if is_wide(graph) else INT
    memory = Locations(inputs, outputs, tables, settings.device.cached_instructions)
    numerics = settings.options.numerics
    lowering = Lowering(flat, form.rows, form.steps, memory, numerics, int_, writer)
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
