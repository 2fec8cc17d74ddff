"""A flat region in segments: straight ones, each a region of its own, and loops of segments.

Segments pass values to each other through buffers. A loop-carried value has two of them, `now` and
`next`, which are swapped after each iteration. An array of which iterations only replace parts has
one. Sums and products that are the same in all iterations are computed before the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.annotations import annotated, annotations_of
from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.index_maps.maps import position
from fusionstitch.codegen.rewrite.region import rebuilt, with_root
from fusionstitch.codegen.while_loops.conditions import is_simple
from fusionstitch.codegen.while_loops.dealt import Dealt
from fusionstitch.codegen.while_loops.flat import Carried, Flat, Loop, made_of
from fusionstitch.codegen.while_loops.partial_updates import (
    Update,
    is_whole,
    read_by_others,
    replacing,
    updates,
)
from fusionstitch.codegen.while_loops.trips import Counter, counter, with_counters
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops that are not computed twice.
_DEAR = (Kind.REDUCTION, Kind.DOT)


@dataclass(eq=False)
class LoopBuffer:
    """Memory for an array. `output` is its number among the region's outputs, if it must be one."""

    shape: Shape
    label: str
    output: int | None = None


@dataclass(frozen=True, eq=False)
class Target:
    """Where a value is written: to a buffer, or to the part of one that begins at `starts`. `over`:
    other threads may have written there before."""

    buffer: LoopBuffer
    starts: tuple[Index, ...] | None = None
    over: bool = False


@dataclass(frozen=True, eq=False)
class Straight:
    """Ops without a loop. `sources` has for each parameter the buffer that it is read from (None:
    it is an iteration number), `targets` for each root where it is written."""

    graph: Graph
    sources: tuple[LoopBuffer | None, ...]
    targets: tuple[tuple[Target, ...], ...]


@dataclass(frozen=True, eq=False)
class Move:
    """Copies `source` over a part of `target`, from `starts` on, where all `conditions` hold. These
    are scalars that every thread computes from values in buffers."""

    source: LoopBuffer
    target: LoopBuffer
    starts: tuple[Op, ...]
    conditions: tuple[Op, ...]


@dataclass(frozen=True, eq=False)
class Moves:
    """Parts of arrays that are replaced once all threads have read what they need of them."""

    moves: tuple[Move, ...]

    @property
    def body(self) -> tuple[Segment, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Repeat:
    """A loop: its counter, whose variable is `step`, or else its condition, and the `pairs` of
    buffers that are swapped after each iteration. `chosen` is the condition under which the loop
    runs, or the buffer that holds it (None: always). Conditions are computed from buffers."""

    count: Counter | None
    step: str
    condition: Op
    body: tuple[Segment, ...]
    pairs: tuple[tuple[LoopBuffer, LoopBuffer], ...]
    chosen: Op | LoopBuffer | None = None

    @property
    def blind(self) -> bool:
        """Whether an iteration may write over what no other one read."""
        read = {buffer for segment in straight_ones(self.body) for buffer in segment.sources}
        return any(now not in read for now, _ in self.pairs)


Segment = Straight | Repeat | Moves


@dataclass(frozen=True, eq=False)
class Program:
    """The segments in order. `buffers` has the buffer of each value that lies in one, by op id;
    `constants` the final values of counters, by op id. `results` has, by output number, the
    buffers whose final contents are outputs."""

    flat: Flat
    segments: tuple[Segment, ...]
    buffers: dict[int, LoopBuffer]
    constants: dict[int, Op]
    results: dict[int, LoopBuffer]
    #: the blocks that have rows of their own, if rows are dealt to blocks
    dealt: Dealt | None = None

    def read_for(self, scalars: Iterable[Op]) -> set[LoopBuffer]:
        """The buffers that threads read to compute scalars."""
        scalars = list(scalars)
        ops = [o for op in (*scalars, *made_of(scalars)) for o in (op, *op.operands)]
        return {self.buffers[o.id] for o in ops if o.id in self.buffers}


def straight_ones(segments: Iterable[Segment]) -> Iterator[Straight]:
    """The segments without a loop, in their order."""
    for segment in segments:
        if isinstance(segment, Straight):
            yield segment
        else:
            yield from straight_ones(segment.body)


def repeats(segments: Iterable[Segment]) -> Iterator[Repeat]:
    """The loops, outer ones before those in them."""
    for segment in segments:
        if isinstance(segment, Repeat):
            yield segment
            yield from repeats(segment.body)


def program(flat: Flat, dealt: Dealt | None = None, *, table: float) -> Program:
    """The segments of a flat region, which may be that of one block. Arrays of `table` bytes and
    more are not copied in each iteration, but for the parts that it replaces."""
    return replace(_Cutter(flat, table).program(), dealt=dealt)


def copied_to_outputs(name: str, results: Mapping[int, LoopBuffer]) -> Straight:
    """A segment that copies buffers to outputs."""
    buffers = list(dict.fromkeys(results.values()))
    read = [
        Op("parameter", buffer.shape, attrs={"index": n}, name=buffer.label)
        for n, buffer in enumerate(buffers)
    ]
    made = [Op("copy", op.shape, (op,), name=op.name) for op in read]
    targets = [
        tuple(Target(LoopBuffer(buffer.shape, buffer.label, number)) for number in numbers)
        for buffer in buffers
        if (numbers := [n for n, one in results.items() if one is buffer])
    ]
    return Straight(with_root(name, [*read, *made], made), tuple(buffers), tuple(targets))


class _Cutter:
    def __init__(self, flat: Flat, table: float):
        self.flat, self.steps = with_counters(flat)
        self.table = table
        #: the buffers of values that lie in one, by op id, and the final values of counters
        self.buffers: dict[int, LoopBuffer] = {}
        self.constants: dict[int, Op] = {}

    def program(self) -> Program:
        flat = self.flat
        for number in range(flat.inputs):
            op = flat.parameter(number)
            self.buffers[op.id] = LoopBuffer(op.shape, op.name or "input")
        results = dict(enumerate(flat.graph.root.operands[: flat.outputs]))
        ends = {flat.parameter(c.after).id for loop in flat.loops for c in self.states(loop)}
        computed = [
            (op, Target(LoopBuffer(op.shape, _label(op), output=number)))
            for number, op in results.items()
            if op.id not in ends
        ]
        segments = self.sequence(flat.loops, computed)
        outputs = {number: self.buffers[op.id] for number, op in results.items() if op.id in ends}
        return Program(flat, tuple(segments), self.buffers, self.constants, outputs)

    def sequence(
        self, loops: Sequence[Loop], results: Sequence[tuple[Op, Target]]
    ) -> list[Segment]:
        """The segments that run loops one after the other, and give results."""
        ends = [self.needed_by(loop) for loop in loops] + [[op for op, _ in results]]
        segments: list[Segment] = []
        for number, loop in enumerate(loops):
            segments += self.loop(loop, ends[number + 1 :])
        segments += self.straight(results, ())
        return segments

    def needed_by(self, loop: Loop) -> list[Op]:
        """What a loop starts from, and what says whether it does."""
        return [*(self.flat.root(c.first) for c in _all_carried(loop)), *self.choices(loop)]

    def choices(self, loop: Loop) -> list[Op]:
        """What says whether a loop, and those in it, have any iterations."""
        return [self.flat.root(one.chosen) for one in loop.nest if one.chosen is not None]

    def straight(
        self, results: Sequence[tuple[Op, Target]], later: Iterable[Sequence[Op]]
    ) -> Iterator[Straight]:
        """The segment that gives results, and what `later` ones would compute again."""
        members = {op.id for op in self.members(op for op, _ in results)}
        again = {op.id: op for ops in later for op in self.members(ops) if op.id in members}
        costly = [op for op in again.values() if kind_of(op.opcode) in _DEAR]
        buffers = {op.id: LoopBuffer(op.shape, _label(op)) for op in costly}
        values = [*results, *((op, Target(buffers[op.id])) for op in costly)]
        if values:
            yield self.region(values)
        self.buffers |= buffers

    def members(self, roots: Iterable[Op]) -> list[Op]:
        """The ops that roots are computed by, back to values in buffers."""
        return made_of(roots, self.buffers)

    def region(self, results: Sequence[tuple[Op, Target]]) -> Straight:
        """A graph of its own that gives results."""
        ops: list[Op] = []
        copies: dict[int, Op] = {}
        sources: list[LoopBuffer | None] = []
        for op in self.members(op for op, _ in results):
            for operand in op.operands:
                self.copied(operand, ops, copies, sources)
            copies[op.id] = rebuilt(op, [copies[o.id] for o in op.operands])
            ops.append(copies[op.id])
        roots: dict[int, Op] = {}
        targets: dict[int, list[Target]] = {}
        for op, target in results:
            root = self.copied(op, ops, copies, sources)
            if op.id not in roots:
                if root.opcode in ("parameter", "constant"):
                    root = Op("copy", op.shape, (root,), name=op.name)
                    ops.append(root)
                roots[op.id] = root
            targets.setdefault(op.id, []).append(target)
        graph = with_root(self.flat.graph.name, ops, list(roots.values()))
        return Straight(graph, tuple(sources), tuple(tuple(targets[i]) for i in roots))

    def copied(
        self, op: Op, ops: list[Op], copies: dict[int, Op], sources: list[LoopBuffer | None]
    ) -> Op:
        """A copy of an op in a segment's graph: a parameter if its value is in a buffer."""
        if op.id in copies:
            return copies[op.id]
        if op.id in self.constants:
            copy = rebuilt(self.constants[op.id], ())
        else:
            index, counts = {"index": len(sources)}, annotations_of(op).counts
            new = Op("parameter", op.shape, attrs=index, name=_label(op), source=op.source)
            copy = annotated(new, counts=counts)
            sources.append(self.buffers[op.id] if counts is None else None)
        copies[op.id] = copy
        ops.append(copy)
        return copy

    def states(self, loop: Loop) -> list[Carried]:
        """What a loop carries, without what counts its iterations."""
        count = counter(self.flat, loop)
        return [c for c in loop.carried if not (count and c is count.carried)]

    def loop(self, loop: Loop, later: Sequence[Sequence[Op]]) -> Iterator[Segment]:
        """A loop, after what it starts from; `later` segments come after it."""
        flat = self.flat
        count = counter(flat, loop)
        step = self.steps.get(loop, "")
        if count:
            self.end(count)
        begun: list[tuple[Op, Target]] = []
        ended: list[tuple[Op, Target]] = []
        pairs: list[tuple[LoopBuffer, LoopBuffer]] = []
        buffers: dict[int, LoopBuffer] = {}
        moves: list[Move] = []
        for c in self.states(loop):
            inside, first = flat.parameter(c.inside), flat.root(c.first)
            now = LoopBuffer(inside.shape, _label(inside))
            buffers |= {inside.id: now, flat.parameter(c.after).id: now}
            part = self.part(c)
            if part is not None:
                update, starts = part
                whole = count and is_whole(flat, c, (update,), count, step)
                over = loop.chosen is not None or not whole
                ended.append((update.value, Target(now, starts, over)))
                if over:
                    begun.append((first, Target(now)))
                continue
            begun.append((first, Target(now)))
            if parts := self.replaced(c):
                for one in parts:
                    source = LoopBuffer(one.value.shape, _label(one.value))
                    ended.append((one.value, Target(source)))
                    moves.append(Move(source, now, one.starts, one.conditions))
                continue
            next_ = LoopBuffer(inside.shape, _label(inside))
            ended.append((flat.root(c.next), Target(next_)))
            pairs.append((now, next_))
        chosen: Op | LoopBuffer | None = None if loop.chosen is None else flat.root(loop.chosen)
        if isinstance(chosen, Op) and not is_simple(chosen, self.buffers):
            condition, chosen = chosen, LoopBuffer(chosen.shape, "chosen")
            begun.append((condition, Target(chosen)))
        for op in self.invariants(loop, [op for op, _ in ended]):
            buffers[op.id] = LoopBuffer(op.shape, _label(op))
            begun.append((op, Target(buffers[op.id])))
        yield from self.straight(begun, later)
        self.buffers |= buffers
        scalars = {s.id: s for move in moves for s in (*move.starts, *move.conditions)}
        new = {
            i: LoopBuffer(op.shape, _label(op)) for i, op in scalars.items() if not self.simple(op)
        }
        ended += [(scalars[i], Target(buffer)) for i, buffer in new.items()]
        body = tuple(self.sequence(loop.inner, ended))
        if moves:
            self.buffers |= new
            body = (*body, Moves(tuple(moves)))
        if body:  # without one it only counts
            yield Repeat(count, step, flat.root(loop.condition), body, tuple(pairs), chosen)

    def simple(self, op: Op) -> bool:
        """Whether every thread can compute a scalar after what an iteration computes."""
        return op.id in self.buffers or is_simple(op, self.buffers)

    def replaced(self, c: Carried) -> tuple[Update, ...]:
        """The parts of a large carried array that an iteration replaces after all that it reads of
        the array; none where it reads what comes of it, or replaces much."""
        flat, inside = self.flat, self.flat.parameter(c.inside)
        parts = updates(flat, c)
        if parts is None or inside.shape.bytes < self.table:
            return ()
        parts = tuple(replace(p, conditions=tuple(map(_spread, p.conditions))) for p in parts)
        chain = replacing(flat, c)
        roots = flat.graph.root.operands
        readers = {user for op in chain for user in flat.graph.users[op.id]}
        alone = not readers - {*chain, flat.graph.root} and sum(op in chain for op in roots) == 1
        scalar = all(not s.shape.rank for p in parts for s in (*p.starts, *p.conditions))
        much = 2 * sum(p.value.shape.bytes for p in parts) > inside.shape.bytes
        return parts if alone and scalar and not much else ()

    def end(self, count: Counter) -> None:
        """Makes a constant of what a counter is after its loop."""
        after = self.flat.parameter(count.carried.after)
        last = NUMPY_DTYPES[after.dtype].type(count.start + count.trips * count.step)
        self.constants[after.id] = Op("constant", after.shape, attrs={"value": last})

    def part(self, c: Carried) -> tuple[Update, tuple[Index, ...]] | None:
        """The one part of a carried array that an iteration replaces, at an index that counters
        decide, if nothing else reads the array in the loop."""
        flat, inside = self.flat, self.flat.parameter(c.inside)
        found = updates(flat, c)
        if found is None or len(found) > 1 or found[0].conditions or read_by_others(flat, c):
            return None
        value = found[0].value
        starts = tuple(
            position(start, (), n - size + 1)
            for start, n, size in zip(found[0].starts, inside.dims, value.dims, strict=True)
        )
        return (found[0], starts) if not any(s.fetched for s in starts) else None

    def invariants(self, loop: Loop, roots: Sequence[Op]) -> list[Op]:
        """Dear ops that all iterations would compute alike, those included that loops inside would,
        which may have no iterations."""
        flat = self.flat
        inner = [c for one in loop.inner for c in _all_carried(one)]
        carried = [*loop.carried, *inner]
        changing = {flat.parameter(c.inside).id for c in carried}
        changing |= {flat.parameter(c.after).id for c in inner}
        made = [flat.root(number) for c in inner for number in (c.first, c.next)]
        made += [op for one in loop.inner for op in self.choices(one)]
        values = [*roots, *made]
        members = self.members(values)
        for op in members:
            if any(o.id in changing for o in op.operands):
                changing.add(op.id)
        return [
            op
            for op in members
            if op.id not in changing
            and any(kind_of(o.opcode) in _DEAR for o in made_of([op]) if o.id not in self.buffers)
            and (op in values or any(u.id in changing for u in flat.graph.users[op.id]))
        ]


def _all_carried(loop: Loop) -> list[Carried]:
    """What a loop and those in it carry."""
    return [c for one in loop.nest for c in one.carried]


def _spread(op: Op) -> Op:
    """The scalar that is spread over an array, if it is one."""
    return op.operands[0] if op.opcode == "broadcast" and not op.operands[0].shape.rank else op


def _label(op: Op) -> str:
    return op.name or op.opcode
