"""What a kernel made of its loops, for people: who runs an iteration, where carried values live."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.codegen.assembly import Written
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.types import INT
from fusionstitch.codegen.while_loops.flat import Carried, Flat, Loop, invariant_elements
from fusionstitch.codegen.while_loops.in_rows import InRows
from fusionstitch.codegen.while_loops.lower import Locations, Lowering
from fusionstitch.codegen.while_loops.partial_updates import updates
from fusionstitch.codegen.while_loops.phased import Phased
from fusionstitch.codegen.while_loops.trips import counter, trips_of
from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.graph import Graph, Op, Source, loops_of

logger = logging.getLogger(__name__)

#: Ops that only add to what they are given, where nothing else reads that.
_JOINS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
VARIABLE = "the loop's own variable"
#: Where a carried value lives, by its memory.
WHERE = {
    Memory.REGISTER: "registers",
    Memory.SHARED: "shared memory",
    Memory.SCRATCH: "a buffer of the kernel's own",
    Memory.INPUT: "where it lies before the loop",
}
NOWHERE = Source()


@dataclass(frozen=True)
class Element:
    """A loop-carried value: its number in the loop's tuple (None: the kernel's own), its type, its
    role in the loop, where it is stored, and the source line of its next value."""

    number: int | None
    shape: str
    role: str
    place: str
    source: Source = NOWHERE


@dataclass(frozen=True)
class LoopSummary:
    """A loop of a kernel: its iterations (None: the data decides), what it carries, and the loops
    in it."""

    iterations: int | None
    elements: tuple[Element, ...]
    inner: tuple[LoopSummary, ...] = ()

    def __repr__(self) -> str:
        many = "?" if self.iterations is None else self.iterations
        return brief(f"Summary: {many} iterations, {count(self.elements, 'carried value')}")


@dataclass(frozen=True)
class Loops:
    """The loops of a kernel: the `form` of their kernel, the extents of the axes that are dealt to
    `workers`, and the modelled microseconds of one iteration of the outermost loops, a mean."""

    form: str
    axes: tuple[int, ...]
    workers: str
    iteration_us: float
    loops: tuple[LoopSummary, ...]

    def __repr__(self) -> str:
        return brief(f"Loops: {count(self.loops, 'loop')} in the form {self.form}, {self.workers}")


def facts(
    region: Graph, form: InRows | Phased, written: Written, us: float
) -> tuple[tuple[str, object], ...]:
    """What became of the loops of a region, as a fact of its kernel; none where telling it fails,
    which the kernel did not."""
    try:
        return (("loops", summary_of(region, form, written, us)),)
    except Exception:
        logger.warning("there is no summary of the loops of %s", region.name, exc_info=True)
        return ()


def summary_of(region: Graph, form: InRows | Phased, written: Written, us: float) -> Loops:
    """What became of the loops of a region, which take `us` microseconds together."""
    flat = form.flat
    storage = _InRegisters(form) if isinstance(form, InRows) else _InBuffers(form, written)
    in_hlo = list(loops_of(region))
    pairs = zip(flat.loops, in_hlo, strict=True)
    loops = tuple(_summary_of(flat, loop, op, storage) for loop, op in pairs)
    iterations = sum(trips_of(flat, loop) for loop in flat.loops)
    us /= max(1, iterations)
    if isinstance(form, InRows):
        axes = tuple(extent for _, extent in form.rows.chosen)
        return Loops("rows", axes, "a thread for each row", us, loops)
    if dealt := form.program.dealt:
        own = f"each of {count(dealt.rows, 'row')}"
        workers = f"{count(dealt.blocks, 'block')}, {own}"
        if form.cluster > 1:
            workers = f"{count(dealt.blocks, 'cluster')} of {form.cluster} blocks, {own}"
        return Loops(form.form, (dealt.blocks * dealt.rows,), workers, us, loops)
    workers = f"{form.grid} blocks together" if form.grid > 1 else "one block"
    return Loops(form.form, (), workers, us, loops)


class _InRegisters:
    """Where threads that run rows of their own keep what loops carry."""

    def __init__(self, form: InRows):
        memory = Locations((), (), {}, 0)
        self.lowering = Lowering(form.flat, form.rows, form.steps, memory, "default", INT, Writer())

    def of(self, c: Carried) -> str:
        if self.lowering.stacked(c) is not None:
            return f"output {self.lowering.output_of(c)}"
        return WHERE[Memory.REGISTER]


class _InBuffers:
    """Where threads that work together keep what loops carry."""

    def __init__(self, form: Phased, written: Written):
        self.form, self.names = form, written.buffer_names
        self.memories = {one.name: one.memory for one in written.lowered.buffers}
        outputs = [one.name for one in written.lowered.buffers if one.memory is Memory.OUTPUT]
        self.outputs = {name: number for number, name in enumerate(outputs)}

    def of(self, c: Carried) -> str:
        buffer = self.form.program.buffers.get(self.form.flat.parameter(c.inside).id)
        name = None if buffer is None else self.names.get(self.form.same.get(buffer, buffer))
        if name is None:
            return VARIABLE
        if name in self.outputs:
            return f"output {self.outputs[name]}"
        return WHERE[self.memories.get(name, Memory.SHARED)]


def _summary_of(flat: Flat, loop: Loop, op: Op, storage: _InRegisters | _InBuffers) -> LoopSummary:
    body = op.called[1]
    shapes = op.shape.elements or (op.shape,)
    invariant = invariant_elements(body)
    numbers = [number for number in range(len(shapes)) if number not in invariant]
    elements = [
        Element(number, str(shapes[number]), _invariant(body, number), WHERE[Memory.INPUT])
        for number in invariant
    ]
    count = counter(flat, loop)
    for at, c in enumerate(loop.carried):
        made = flat.root(c.next)
        number = numbers[at] if at < len(numbers) else None
        # the whole array, of which blocks may have parts
        shape = str(made.shape if number is None else shapes[number])
        if count and c is count.carried:
            elements.append(Element(number, shape, "counter", VARIABLE, made.source))
        else:
            role = "condition" if number is None else _role(flat, c)
            elements.append(Element(number, shape, role, storage.of(c), made.source))
    elements.sort(key=lambda one: (one.number is None, one.number))
    inner = zip(loop.inner, loops_of(body), strict=True)
    return LoopSummary(
        count.trips if count else None,
        tuple(elements),
        tuple(_summary_of(flat, one, inside, storage) for one, inside in inner),
    )


def _role(flat: Flat, c: Carried) -> str:
    made, inside = flat.root(c.next), flat.parameter(c.inside)
    if updates(flat, c) is not None:
        return "stacked output"
    readers: Sequence[Op] = [op for op in flat.graph.users[inside.id] if op is not flat.graph.root]
    if made.opcode in _JOINS and readers == [made] and made.operands.count(inside) == 1:
        return "accumulator"
    return "state"


def _invariant(body: Graph, number: int) -> str:
    """Whether iterations each take a part of an array that they all are given."""
    readers = [
        reader
        for op in body
        if op.opcode == "get-tuple-element" and op.attrs["index"] == number
        for reader in body.users[op.id]
        if reader is not body.root
    ]
    parts = all(r.opcode == "dynamic-slice" and r.operands[0].shape.rank for r in readers)
    return "stacked input" if readers and parts else "invariant"
