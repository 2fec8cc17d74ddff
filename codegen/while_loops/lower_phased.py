"""A program of segments as statements: all threads go through each iteration together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from fusionstitch.codegen.assembly import Written
from fusionstitch.codegen.index_maps.index import Index, delinearize, linearize, variable
from fusionstitch.codegen.index_maps.maps import Indices, position
from fusionstitch.codegen.index_maps.vectors import ACCESS_BYTES
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Expr,
    Integer,
    Load,
    Name,
    Not,
    Number,
    all_of,
    infix,
    number,
)
from fusionstitch.codegen.ir.kernel import Buffer, Iterations, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Barrier, For, If, Leave, Shared, Store, Swap, While
from fusionstitch.codegen.ir.types import BOOL, INT, LONG, stored
from fusionstitch.codegen.lower.buffers import buffer_of, is_table, is_wide
from fusionstitch.codegen.lower.context import Context, Locations, Part
from fusionstitch.codegen.lower.emit import KernelEmitter
from fusionstitch.codegen.lower.known import AtDepth, Elementwise, Known
from fusionstitch.codegen.lower.values import Values
from fusionstitch.codegen.lower.vector_access import as_computed
from fusionstitch.codegen.memory.inplace import pairs, read_by_owners
from fusionstitch.codegen.memory.scratch import in_memory, scratch_buffers
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.while_loops.overwrites import Pairs, overwriting, phase_by_phase
from fusionstitch.codegen.while_loops.phased import Phased, shared_bytes
from fusionstitch.codegen.while_loops.segments import (
    LoopBuffer,
    Move,
    Moves,
    Repeat,
    Segment,
    Straight,
    Target,
    repeats,
)
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op, Shape


def write_phased(form: Phased, settings: Settings) -> Written:
    """The statements of the loops. Raises CodegenError where a value cannot be stored."""
    device = settings.device
    lowering = PhasedLowering(form, settings.options.numerics, device.shared_per_block)
    resident, meet = form.threads.resident, form.scope is Scope.GRID
    per_sm = resident if meet or resident > 1 else 0
    return Written(
        replace(lowering.lowered(), per_sm=per_sm, cooperative=meet),
        lowering.graphs,
        lowering.writer.names,
        lowering.scratch,
        lowering.in_place,
        buffer_names=lowering.names,
    )


class PhasedLowering:
    """Writes the segments of a program, for blocks of at most `limit` bytes of shared memory.
    `scratch` are the shapes of the kernel's own buffers, `graphs` the segments in their order."""

    def __init__(self, phased: Phased, numerics: str, limit: int):
        self.phased, self.numerics, self.limit = phased, numerics, limit
        self.shared = shared_bytes(phased)
        self.flat = phased.program.flat
        self.writer = Writer()
        self.writer.name(self.flat.graph.name)
        self.int = LONG if is_wide(self.flat.graph) else INT
        self.barrier = None if phased.alone else Barrier(phased.scope)
        #: the buffers in shared memory that each block of a cluster has
        self.copies: dict[str, int] = {}
        self.names: dict[LoopBuffer, str] = {}
        self.buffers: list[Buffer] = []
        self.scratch: list[Shape] = []
        self.in_place: Pairs = ()
        self.tables: list[Buffer] = []
        self.graphs: list[Graph] = []

    def lowered(self) -> Lowered:
        phased, flat, dealt = self.phased, self.flat, self.phased.program.dealt
        self.writer.declare(BLOCK.name)
        for repeat in repeats(phased.segments):
            assert not repeat.step or self.writer.name(repeat.step) == repeat.step
        inputs = [self.writer.name(p.name or "input") for p in flat.graph.parameters[: flat.inputs]]
        roots = flat.graph.root.operands[: flat.outputs]
        shapes = dealt.shapes if dealt else [op.shape for op in roots]
        self.outputs = [self.writer.name(f"{op.name or op.opcode}_out") for op in roots]
        self.in_place = phase_by_phase(phased)
        over = overwriting(phased, self.in_place, self.outputs)
        for i, (p, name) in enumerate(zip(flat.graph.parameters, inputs, strict=False)):
            self.names[phased.program.buffers[p.id]] = name
            buffer = buffer_of(p, name, Memory.INPUT, i in over)
            self.buffers.append(replace(buffer, by=over.get(i)))
        for op, name, shape in zip(roots, self.outputs, shapes, strict=True):
            self.buffers.append(replace(buffer_of(op, name, Memory.OUTPUT), size=shape.size))
        if phased.scope is Scope.CLUSTER:
            begun = Barrier(Scope.CLUSTER, why="all run before one writes to another")
            self.writer.add(begun)
        self.segments(phased.segments)
        own = (one for one in phased.segments if isinstance(one, Repeat))
        counters = frozenset(one.step for one in own if one.count)
        return Lowered(
            name=flat.graph.name,
            buffers=(*self.buffers, *self.tables),
            functions=(),
            body=self.writer.body,
            block=phased.block,
            cluster=phased.cluster,
            grid=phased.grid,
            shared=self.shared,
            iterations=Iterations(phased.scope, phased.threads.registers, counters),
        )

    def name(self, buffer: LoopBuffer) -> str:
        """The name of the buffer in the kernel."""
        buffer = self.phased.same.get(buffer, buffer)
        if buffer not in self.names:
            output = self.output(buffer)
            if output is not None:
                self.names[buffer] = self.outputs[output]
            else:
                self.names[buffer] = self.own(
                    buffer.label, buffer.shape.dtype, in_memory(buffer.shape)
                )
        return self.names[buffer]

    def part(self, target: Target) -> str | Part:
        """The buffer that a value is written to, or the part of one."""
        buffer, starts, dims = target.buffer, target.starts, target.buffer.shape.dims
        output, dealt = self.output(buffer), self.phased.program.dealt
        if dealt and output is not None:
            first = starts or (Index(),) * len(dims)
            starts = tuple(a + b for a, b in zip(first, dealt.starts[output], strict=True))
            dims = dealt.shapes[output].dims
        return self.name(buffer) if starts is None else Part(self.name(buffer), dims, starts)

    def output(self, buffer: LoopBuffer) -> int | None:
        """The number of the output that is this buffer, None if none is."""
        return self.phased.outputs.get(buffer, buffer.output)

    def read(self, buffer: LoopBuffer) -> str:
        """The buffer that an array is read from."""
        if self.phased.program.dealt and self.output(buffer) is not None:
            raise CodegenError(f"{buffer.label} is read of what blocks have parts of.")
        return self.name(buffer)

    def own(self, label: str, dtype: str, shape: Shape) -> str:
        """A buffer of the kernel's own, of elements of `dtype` and the size of `shape`. It is in
        shared memory if only a block reads it and it fits, or only a cluster, each of whose blocks
        then has a copy. Otherwise it is in global memory."""
        name = self.writer.name(f"{label}_scratch")
        kind = stored(dtype)
        size = shape.bytes // kind.bytes
        shared = self.phased.scope is not Scope.GRID
        if shared and self.shared + shape.bytes <= self.limit:
            array = Shared(kind, name, self.shared, size, changes=True)
            self.writer.add(array, depth=0)
            self.shared += -(-shape.bytes // ACCESS_BYTES) * ACCESS_BYTES
            if self.phased.cluster > 1:
                self.copies[name] = self.phased.cluster
            return name
        if shared and self.phased.grid > self.phased.together:
            raise CodegenError(f"{label}, {shape}, does not fit into the memory of its block.")
        self.buffers.append(Buffer(name, kind, size, Memory.SCRATCH))
        self.scratch.append(shape)
        return name

    def segments(self, segments: Sequence[Segment]) -> None:
        last = segments[-1] if segments is self.phased.segments else None
        for segment in segments:
            if isinstance(segment, Repeat):
                self.repeat(segment)
            elif isinstance(segment, Moves):
                self.moves(segment)
            else:
                self.straight(segment)
            if self.barrier and segment is not last:
                self.writer.add(self.barrier)

    def repeat(self, one: Repeat) -> None:
        writer = self.writer
        if self.phased.alone and one.blind:
            writer.add(Barrier(Scope.BLOCK, why="what is not read is written again"))
        chosen = None if one.chosen is None else self.condition_name(one.chosen)
        frame: For | While = While()
        if one.count:
            kind = LONG if one.count.trips >= 1 << 31 else self.int
            frame = For(kind, one.step, number(0), number(one.count.trips))
        with writer.nested(frame, pinned=True):
            if one.count:
                writer.declare(one.step)
            if chosen is not None:
                writer.add(Leave(Not(chosen)))
            if not one.count:
                with writer.forgetting():
                    writer.add(Leave(Not(self.scalar(one.condition))))
            self.segments(one.body)
            for now, next_ in one.pairs:
                if next_ not in self.phased.same:
                    writer.add(Swap(self.name(now), self.name(next_)))

    def moves(self, one: Moves) -> None:
        """Replaces parts of arrays, element by element."""
        done: set[LoopBuffer] = set()
        for move in one.moves:
            if move.target in done:  # parts of one array may overlap
                self.writer.add(self.barrier or Barrier(Scope.BLOCK, why="one is over the other"))
            done.add(move.target)
            with self.writer.forgetting():
                self.move(move)

    def move(self, one: Move) -> None:
        writer, scalars = self.writer, _Scalars(self)
        part, whole = one.source.shape, one.target.shape
        counts = [n - size + 1 for n, size in zip(whole.dims, part.dims, strict=True)]
        starts = scalars.values.named(
            tuple(position(s, (), count) for s, count in zip(one.starts, counts, strict=True))
        )
        condition = all_of([scalars.values.value(op, ()) for op in one.conditions])
        threads = self.phased.block * self.phased.together
        at = writer.name("at")
        first = Integer(
            self.number() * self.phased.block + variable(THREAD.name, self.phased.block)
        )
        frame = For(self.int, at, first, number(part.size), step=threads)
        guard = writer.nested(If(condition), pinned=True) if condition else nullcontext()
        with guard, writer.nested(frame, pinned=True):
            element = variable(writer.declare(at), part.size)
            index = delinearize(element, part.dims)
            to = linearize([i + s for i, s in zip(index, starts, strict=True)], whole.dims)
            value = Load(Name(self.read(one.source)), Integer(element))
            target = self.read(one.target)
            writer.add(Store(target, Integer(to), value, self.copies.get(target, 1)))

    def number(self) -> Index:
        """The number of a block among those that work on an iteration together."""
        if self.phased.alone:
            return Index()
        return variable(BLOCK.name, self.phased.grid) % self.phased.together

    def condition_name(self, condition: Op | LoopBuffer) -> Name:
        """A condition that every thread computes once, by name."""
        name = self.writer.name("chosen")
        with self.writer.forgetting():
            if isinstance(condition, Op):
                value = self.scalar(condition)
            else:
                value = Load(Name(self.read(condition)), number(0))
            self.writer.let(BOOL, name, value)
        return Name(name)

    def scalar(self, condition: Op) -> Expr:
        """A condition, as every thread computes it."""
        return _Scalars(self).values.value(condition, ())

    def table(self, op: Op) -> str:
        name = self.writer.name(f"{op.name}_table")
        self.tables.append(buffer_of(op, name, Memory.CONSTANT))
        return name

    def straight(self, one: Straight) -> None:
        scheduled, alone = self.phased.schedules[one], self.phased.alone
        graph = scheduled.graph
        if alone and any(t.over for targets in one.targets for t in targets):
            self.writer.add(Barrier(Scope.BLOCK, why="parts are written over"))
        self.graphs.append(graph)
        plan = replace(scheduled.plan, grid=self.phased.together)
        inputs = {
            p.id: self.read(buffer)
            for p, buffer in zip(graph.parameters, one.sources, strict=True)
            if buffer is not None
        }
        outputs: dict[int, list[str]] = {}
        parts: dict[int, list[Part]] = {}
        for op, targets in zip(graph.root.operands, one.targets, strict=True):
            for target in targets:
                part = self.part(target)
                if isinstance(part, Part):
                    parts.setdefault(op.id, []).append(part)
                else:
                    outputs.setdefault(op.id, []).append(part)
        scratch: dict[int, str] = {}
        for own in scratch_buffers(graph, plan):
            op = own.ops[0]
            name = self.own(op.name or op.opcode, op.dtype, own.shape)
            scratch |= dict.fromkeys((op.id for op in own.ops), name)
        tables = {op.id: self.table(op) for op in graph if is_table(op)}
        layout = scheduled.layout
        memory = Locations(
            *(
                inputs,
                outputs,
                scratch,
                layout.offsets,
                layout.exchanges,
                tables,
                parts,
                self.copies,
            ),
            owned=read_by_owners(graph, pairs(graph, plan)),
        )
        worker = self.worker()
        context = Context(plan, memory, self.numerics, self.int, self.writer, worker=worker)
        with self.writer.forgetting():
            KernelEmitter(context).phases(self.barrier)

    def worker(self) -> Expr:
        """The number of a block among those that work on an iteration together."""
        if self.phased.scope is Scope.CLUSTER:
            return infix("%", BLOCK, self.phased.cluster)
        return number(0) if self.phased.alone else BLOCK


class _Scalars(Elementwise):
    """What conditions read: elements of buffers, and iteration numbers."""

    def __init__(self, lowering: PhasedLowering):
        self.lowering = lowering
        known = Known(lowering.writer, lambda op: op.name or op.opcode, lowering.int)
        self.values = Values(known, self, lowering.numerics, {})

    def stored(self, op: Op, index: Indices) -> AtDepth | None:
        if (counted := self.values.known.counted(op)) is not None:
            return counted
        program = self.lowering.phased.program
        if (end := program.constants.get(op.id)) is not None:
            return Number(literal(end.attrs["value"], op.dtype)), 0
        buffer = program.buffers.get(op.id)
        if buffer is None:
            return None
        load = Load(Name(self.lowering.read(buffer)), Integer(linearize(index, op.dims)))
        return as_computed(op, load), self.lowering.writer.ordered_depth
