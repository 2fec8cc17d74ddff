"""Which outputs of a loop's kernel may lie where the loop starts from: donated carries, in place.

    y = fori_loop(0, n, step, x)    with x donated: y is written where x was

An output may have the memory of an input that its loop starts from if all reads of the input come
before any write there. Either the thread that owns the row reads it, or a barrier of all threads
that share it lies in between (which the passes place and the verifier checks).
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.ir.kernel import Overwriting
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.memory.inplace import in_place, one_to_one
from fusionstitch.codegen.while_loops.flat import Carried, Flat
from fusionstitch.codegen.while_loops.phased import Phased
from fusionstitch.codegen.while_loops.rows import Rows
from fusionstitch.codegen.while_loops.segments import LoopBuffer, Moves, Segment, Straight
from fusionstitch.hlo.graph import Op

Pairs = tuple[tuple[int, int], ...]


def row_by_row(flat: Flat, rows: Rows) -> Pairs:
    """The (output, input) pairs that may share memory where each thread has rows of its own: it
    reads what its row starts from before its loop, and no other thread does."""
    found = []
    for output, first, carried in _begun(flat):
        inside = flat.parameter(carried.inside)
        dealt = {rows.axes[inside.id, d] for d in range(inside.shape.rank)}
        if _is_input(flat, first) and all(axis in dealt for axis, _ in rows.chosen):
            found.append((output, first.attrs["index"]))
    return one_to_one(found)


def phase_by_phase(form: Phased) -> Pairs:
    """The same where threads work together, segment by segment: the last segment that reads the
    input comes before the first that writes the output, or both are one, which may be in place."""
    flat, dealt = form.flat, form.program.dealt
    found = []
    for output, first, _ in _begun(flat):
        if dealt and first.opcode == "dynamic-slice" and _is_part(form, output, first):
            first = first.operands[0]
        elif dealt:
            continue
        if first.opcode != "parameter" or first.attrs["index"] >= flat.inputs:
            continue
        shape = dealt.shapes[output] if dealt else flat.graph.root.operands[output].shape
        if shape == first.shape and _is_read_first(form, first, output):
            found.append((output, first.attrs["index"]))
    return one_to_one(found)


def overwriting(form: Phased, pairs: Pairs, outputs: list[str]) -> dict[int, Overwriting]:
    """By the number of an input, which output may be written over it, and whose threads meet."""
    scope = form.scope if form.grid > 1 else Scope.BLOCK
    return {i: Overwriting(outputs[o], scope) for o, i in pairs}


def _begun(flat: Flat) -> Iterator[tuple[int, Op, Carried]]:
    """The outputs that are what a loop carried, each with what it began with."""
    carried = {flat.parameter(c.after): c for loop in flat.loops for c in loop.carried}
    for number, root in enumerate(flat.graph.root.operands[: flat.outputs]):
        if root in carried:
            yield number, flat.root(carried[root].first), carried[root]


def _is_input(flat: Flat, op: Op) -> bool:
    """Whether an op is an input that nothing reads but the one loop that begins with it."""
    if op.opcode != "parameter" or op.attrs["index"] >= flat.inputs:
        return False
    readers = flat.graph.users[op.id]
    return readers == (flat.graph.root,) and flat.graph.root.operands.count(op) == 1


def _is_part(form: Phased, output: int, part: Op) -> bool:
    """Whether what a block reads of an input are the rows that it has of an output."""
    dealt, flat = form.program.dealt, form.flat
    assert dealt is not None
    whole, *starts = part.operands
    own = [annotations_of(start).counts is not None for start in starts]
    once = flat.graph.root.operands.count(part) == 1 and flat.graph.users[whole.id] == (part,)
    return once and own == [bool(start.terms) for start in dealt.starts[output]]


def _is_read_first(form: Phased, input_: Op, output: int) -> bool:
    buffer, segments = form.program.buffers[input_.id], form.segments
    reads = [n for n, segment in enumerate(segments) if buffer in _read(form, segment)]
    writes = [n for n, segment in enumerate(segments) if output in _written(form, segment)]
    if not reads or not writes:
        return False
    if reads[-1] < writes[0]:
        return True
    segment = segments[writes[0]]
    return (
        reads[-1] == writes[0]
        and isinstance(segment, Straight)
        and _is_in_place(form, segment, buffer, output)
    )


def _is_in_place(form: Phased, segment: Straight, buffer: LoopBuffer, output: int) -> bool:
    scheduled = form.schedules[segment]
    own = [
        number
        for number, targets in enumerate(segment.targets)
        for target in targets
        if _home(form, target.buffer) == output
    ]
    pairs = in_place(scheduled.graph, scheduled.plan)
    return len(own) == 1 and (own[0], segment.sources.index(buffer)) in pairs


def _read(form: Phased, segment: Segment) -> set[LoopBuffer | None]:
    """The buffers that a segment reads."""
    if isinstance(segment, Straight):
        return set(segment.sources)
    if isinstance(segment, Moves):
        scalars = [op for one in segment.moves for op in (*one.starts, *one.conditions)]
        return {*form.program.read_for(scalars), *(one.source for one in segment.moves)}
    found = {buffer for one in segment.body for buffer in _read(form, one)}
    scalars = [segment.condition, *([segment.chosen] if isinstance(segment.chosen, Op) else [])]
    return found | form.program.read_for(scalars) | set(sum(segment.pairs, ()))


def _written(form: Phased, segment: Segment) -> set[int | None]:
    """The outputs that a segment writes."""
    if isinstance(segment, Straight):
        return {_home(form, target.buffer) for targets in segment.targets for target in targets}
    if isinstance(segment, Moves):
        return {_home(form, one.target) for one in segment.moves}
    inside = {output for one in segment.body for output in _written(form, one)}
    return inside | {_home(form, buffer) for pair in segment.pairs for buffer in pair}


def _home(form: Phased, buffer: LoopBuffer) -> int | None:
    """The number of the output that is this buffer, None if none is."""
    buffer = form.same.get(buffer, buffer)
    return form.outputs.get(buffer, buffer.output)
