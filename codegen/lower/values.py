"""Values: the expression of any op of a region at any index, each computed once per scope.

A value lives in the outermost open block in which its index and its arguments are known, so what
depends on the row alone is computed before the sweep along it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import (
    Address,
    Arithmetic,
    Choice,
    Expr,
    Integer,
    Load,
    Name,
    Number,
    all_of,
    apply,
    infix,
    number,
)
from fusionstitch.codegen.ir.statements import Array, Assign, Group, If
from fusionstitch.codegen.loops.stages import body_reads, inner_extents
from fusionstitch.codegen.places.index import (
    Fetched,
    Index,
    bounded_variables,
    constant,
    linearize,
    narrowed,
    replaced,
    variable,
)
from fusionstitch.codegen.places.maps import Guard, Indices, Read, in_range, is_branching, reads
from fusionstitch.codegen.rewrite.monoids import Monoid, joins
from fusionstitch.codegen.text.expressions import keeps_value, literal, rotation, rounder
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import UNSIGNED, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of

#: A value, and the depth of the block from which on it is known.
Placed = tuple[Expr, int]
#: What gives a value after it has been sent each value that it asks for.
Task = Generator[tuple[Op, Indices], Any, Placed]
#: An op at an index, with the guards known so far and those of the last step.
_Piece = tuple[Op, Indices, tuple[Guard, ...], tuple[Guard, ...]]
#: Pieces among which an address is selected, and among which one that lies elsewhere in each; of
#: more, branches find the right one sooner.
MOST_SELECTED, MOST_ADDRESSES = 8, 2
#: Elements of the longest vector: pieces that start at multiples of it can be read by vectors.
MOST_ALIGNED = 16


@dataclass(frozen=True)
class Located:
    """An element of a buffer."""

    buffer: Expr
    address: Index


#: Starts of a sum that are more than nothing: zero and -0 add up to zero.
_SIGNING = ("0.0f", "0.0")


class Values:
    """Prints values through `writer`. `stored(op, index)` is the hook for values that live in
    memory: it gives what reads one and the depth from which it may be read, or None;
    `located(op, index)` says in which buffer it lies, if it lies in one, `loaded_from` gives what
    lies behind a pointer, and `bases` where the vectors begin that addresses run
    through, with the place in them (the addresses and 0 if these are no vectors)."""

    def __init__(
        self,
        writer: Writer,
        stored: Callable[[Op, Indices], Placed | None],
        located: Callable[[Op, Indices], Located | None],
        loaded_from: Callable[[Op, str, int, Index, bool], Expr],
        bases: Callable[[Sequence[Index]], tuple[list[Index], Index]],
        numerics: str,
        tables: dict[int, str],
        label: Callable[[Op], str],
        int_: str = "int",
    ):
        self.int = int_
        self.label = label
        self.writer = writer
        self.stored = stored
        self.located = located
        self.loaded_from = loaded_from
        self.bases = bases
        self.numerics = numerics
        #: opcodes of which fewer correct bits will do
        self.approximate: frozenset[str] = frozenset()
        self.tables = tables

    def value(self, op: Op, index: Indices) -> Expr:
        return self.placed(op, index)[0]

    def placed(self, op: Op, index: Indices) -> Placed:
        """The value of `op` at `index`, from a register, from memory, or computed."""
        return self._done(self._placing(op, index))

    def computed(self, op: Op, index: Indices) -> Placed:
        """The value computed here, whether or not it is also stored somewhere."""
        return self._done(self._computing(op, index))

    def _done(self, task: Task) -> Placed:
        """What `task` gives, once what it waits for is done: a stack of our own, since chains of
        ops are longer than Python's."""
        waiting = [task]
        given: Placed | None = None
        raised: Exception | None = None
        while True:
            try:
                wanted = waiting[-1].throw(raised) if raised else waiting[-1].send(given)
                waiting.append(self._placing(*wanted))
                given = raised = None
            except StopIteration as end:
                waiting.pop()
                given, raised = end.value, None
            except Exception as error:  # for what waits: it may have blocks to close
                waiting.pop()
                raised = error
            if not waiting:
                if raised:
                    raise raised
                assert given is not None
                return given

    def _placing(self, op: Op, index: Indices) -> Task:
        found = self.writer.find((op.id, index))
        if found is not None:
            return found
        places: list[Fetched] = []

        def noted(place: Fetched) -> Fetched:
            places.append(place)
            return place

        for i in index:
            replaced(i, noted)
        for place in places:
            if not place.name and self.writer.find(place) is None:
                yield place.op, place.at
                self._fetched(place)
        named = self.named(index)
        if named != index:
            value, depth = yield op, named
            self.writer.chain[depth].memo[op.id, index] = value
            return value, depth
        memory = self.stored(op, index)
        if memory is not None:
            value, depth = memory
            depth = max(depth, self._index_depth(index))
            return self._keep(op, index, value, depth)
        return (yield from self._computing(op, index))

    def named(self, index: Indices) -> Indices:
        """`index` with every integer it depends on printed, and known by name."""
        return tuple(replaced(i, self._fetched) for i in index)

    def _fetched(self, place: Fetched) -> Fetched:
        if place.name:
            return place
        found = self.writer.find(place)
        if found is None:
            value, depth = self.placed(place.op, place.at)
            value = clamped(value, place.op.dtype, place.extent - 1)
            return replace(
                place, name=self._integer(place, f"{self.label(place.op)}_index", value, depth)
            )
        assert isinstance(found[0], Name)
        return replace(place, name=found[0].name)

    def _computing(self, op: Op, index: Indices) -> Task:
        if op.opcode == "constant":
            return self._constant(op, index)
        if op.opcode == "iota":
            position = index[op.attrs["dimension"]]
            compute = c_type(op.dtype).compute
            return apply(compute, Integer(position)), self._index_depth((position,))
        if is_branching(op):
            return (yield from self._branches(op, index))
        kind = kind_of(op.opcode)
        if kind is Kind.MOVEMENT:
            (read,) = reads(op, index)
            return (yield op.operands[read.operand], read.index)
        if kind in (Kind.REDUCTION, Kind.DOT):
            return (yield from self._unrolled(op, index))
        if kind is not Kind.ELEMENTWISE:
            raise CodegenError(f"{op.opcode} cannot be computed inside a kernel: leave it to XLA.")
        rotated = rotation(op)
        if rotated and all(self.stored(o, index) is None for o in op.operands):
            value, depth = yield rotated[0], index
            rotation_of = apply("fs_rotate_left", value, number(rotated[1]))
            return self._keep(op, index, rotation_of, depth)
        args: list[Placed] = []
        for read in reads(op, index):
            args.append((yield op.operands[read.operand], read.index))
        numerics = "fast" if op.opcode in self.approximate else self.numerics
        if len(args) == 1 and keeps_value(op, numerics):
            return args[0]
        value = Arithmetic(op, tuple(value for value, _ in args), numerics)
        return self._keep(op, index, value, max((d for _, d in args), default=0))

    def accumulated(self, op: Op, dims: Indices, inner: Indices) -> Expr:
        """The term a reduction or dot adds at one step, in its accumulator's type."""
        return self._done(self._adding(op, dims, inner))[0]

    def _adding(self, op: Op, dims: Indices, inner: Indices) -> Task:
        placed: list[Placed] = []
        for read in body_reads(op, dims, inner):
            placed.append((yield read))
        depth = max(d for _, d in placed)
        terms = [value for value, _ in placed]
        if op.opcode == "reduce":
            return terms[0], depth
        compute = c_type(op.dtype).compute
        casts = [
            t if c_type(o.dtype).compute == compute else apply(compute, t)
            for t, o in zip(terms, op.operands, strict=True)
        ]
        return infix("*", *casts), depth

    def finished(self, op: Op, total: Expr) -> Expr:
        """A reduction's result: its init value joined with the total of its terms."""
        if isinstance(op.attrs.get("reducer"), Monoid):
            return total
        init = self._init(op)
        if init:
            total = apply(f"{joins(op)[1]}::apply", init[0], total)
        function = rounder(op.dtype, self.numerics)
        return apply(function, total) if function else total

    def _init(self, op: Op) -> Placed | None:
        """What a reduction starts from, if its terms alone do not give its result."""
        if op.opcode == "dot" or isinstance(op.attrs["reducer"], Monoid):
            return None
        init = self.placed(op.operands[len(op.operands) // 2], ())
        return None if init[0] == Number(joins(op)[0]) else init

    def _keep(self, op: Op, index: Indices, value: Expr, depth: int) -> Placed:
        name = self.writer.name(self.label(op))
        self.writer.let(c_type(op.dtype).compute, name, value, depth)
        self.writer.chain[depth].memo[op.id, index] = Name(name)
        return Name(name), depth

    def _constant(self, op: Op, index: Indices) -> Placed:
        if op.id not in self.tables:
            return Number(literal(op.attrs["value"].flat[0], op.dtype)), 0
        depth = self._index_depth(index)
        if not in_range(op, index):  # what asks for the place stands around it
            depth = max(depth, self.writer.ordered_depth)
        return Load(Name(self.tables[op.id]), Integer(linearize(index, op.dims))), depth

    def _branches(self, op: Op, index: Indices) -> Task:
        alternatives = reads(op, index)
        if len(alternatives) == 1:
            (only,) = alternatives
            return (yield op.operands[only.operand], only.index)
        selected = self._selected(op, index) if op.opcode == "concatenate" else None
        if selected is not None:
            return selected
        writer = self.writer
        name = writer.name(self.label(op))
        writer.add(Array(c_type(op.dtype).compute, name))
        with writer.nested(Group()):  # what a branch hoists comes before all of them
            for read in alternatives:
                condition = self._guards(read) if read.guards else None
                frame: AbstractContextManager[object] = writer.otherwise(condition)
                if read is alternatives[0]:
                    assert condition is not None
                    frame = writer.nested(If(condition), pinned=True)
                with frame:
                    value, _ = yield op.operands[read.operand], read.index
                    writer.add(Assign(Name(name), value))
        writer.block.memo[op.id, index] = Name(name)
        return Name(name), writer.depth

    def _selected(self, op: Op, index: Indices) -> Placed | None:
        """One load from the piece that holds the element, if all pieces lie in buffers: loads
        behind branches would wait for each other. Pieces alike in their strides differ in where
        they start alone, which fewer variables decide than the element."""
        pieces = list(self._pieces(op, index, (), narrow=False))
        found = [piece for _, piece in pieces if piece is not None]
        if len(found) < len(pieces) or len(pieces) > MOST_SELECTED:
            return None
        conditions = [guards for guards, _ in pieces]
        address = found[-1].address
        apart = [piece.address - address for piece in found]
        depth = self._index_depth(tuple(g.index for guards in conditions for g in guards))
        depth = max(depth, self.writer.ordered_depth)
        alike = all(not difference.terms for difference in apart)
        if alike:
            starts = [_moved(p.buffer, d.const) for p, d in zip(found, apart, strict=True)]
        elif len(pieces) <= MOST_ADDRESSES:
            narrow = self._pieces(op, index, (), narrow=True)
            found = [piece for _, piece in narrow if piece is not None]
            if len(found) < len(pieces):
                return None
            addresses, address = self.bases([piece.address for piece in found])
            depth = max(depth, self._index_depth(tuple(addresses)))
            starts = [Address(p.buffer, Integer(a)) for p, a in zip(found, addresses, strict=True)]
        else:
            return None
        start = self._choice(op, conditions, starts, depth)
        vector = not alike or all(d.const % MOST_ALIGNED == 0 for d in apart)
        value = self.loaded_from(op, start, depth, address, vector)
        return self._keep(op, index, value, max(depth, self._index_depth((address,))))

    def _choice(
        self, op: Op, guards: Sequence[tuple[Guard, ...]], starts: Sequence[Expr], depth: int
    ) -> str:
        """The pointer of the first piece whose guards hold."""
        cases = [(holds(g), start) for g, start in zip(guards, starts, strict=True)]
        choice = Choice(tuple(cases[:-1]), starts[-1])
        known = self.writer.find(choice)
        if known is not None:
            assert isinstance(known[0], Name)
            return known[0].name
        name = self.writer.name(f"{self.label(op)}_from")
        self.writer.let(f"const {c_type(op.dtype).storage}*", name, choice, depth)
        self.writer.chain[depth].memo[choice] = Name(name)
        return name

    def _pieces(
        self, op: Op, index: Indices, guards: tuple[Guard, ...], narrow: bool
    ) -> Iterator[tuple[tuple[Guard, ...], Located | None]]:
        """The elements that `op` at `index` may be, each with what holds if it is, the last with
        nothing but `guards`; None for one that lies in no buffer. With `narrow` their addresses
        are those where that holds."""
        stack: list[_Piece] = [(op, index, guards, ())]
        while stack:
            op, index, guards, new = stack.pop()
            if not all(self._there(i, narrow) for i in index):
                yield (*guards, *new), None  # an integer that only its branch may read
                continue
            index = self.named(self._where(new, index) if narrow else index)
            guards = (*guards, *new)
            known = self.writer.find((op.id, index))
            located = self.located(op, index) if known is None else None
            moves = kind_of(op.opcode) is Kind.MOVEMENT and not is_branching(op)
            if located is None and known is None and (moves or op.opcode == "concatenate"):
                for read in reversed(reads(op, index)):
                    stack.append((op.operands[read.operand], read.index, guards, read.guards))
            else:
                yield guards, located

    def _there(self, index: Index, narrow: bool) -> bool:
        """Whether the integers that an index depends on can be read whatever else holds: where
        places are narrowed none can."""

        def one(place: Fetched) -> bool:
            if place.name:
                return True
            inside = not narrow and in_range(place.op, place.at)
            return inside and all(self._there(i, narrow) for i in place.at)

        return all(map(one, index.fetched))

    def _where(self, guards: Sequence[Guard], index: Indices) -> Indices:
        """`index` as it is where `guards` hold: narrower ranges make addresses simpler."""
        for guard in guards:
            bounds = bounded_variables(guard.index, guard.upper)
            if bounds:
                index = tuple(narrowed(i, bounds) for i in index)
            elif guard.index.hi >= guard.upper and guard.lower == 0 and guard.index in index:
                place = self._named(guard.index, guard.upper)
                index = tuple(place if i == guard.index else i for i in index)
        return index

    def _named(self, index: Index, extent: int) -> Index:
        """A variable of `extent` with the value of `index`."""
        known = self.writer.find(("named", index, extent))
        if known is not None:
            assert isinstance(known[0], Name)
            return variable(known[0].name, extent)
        depth = self._index_depth((index,))
        key = "named", index, extent
        return variable(self._integer(key, "place", Integer(index), depth), extent)

    def _integer(self, key: Hashable, wanted: str, value: Expr, depth: int) -> str:
        """Declares an integer that is known by `key` from `depth` on; its name."""
        name = self.writer.name(wanted)
        self.writer.let(self.int, name, value, depth)
        self.writer.depth_of[name] = depth
        self.writer.chain[depth].memo[key] = Name(name)
        return name

    def _guards(self, read: Read) -> Expr:
        return holds(tuple(replace(g, index=self.named((g.index,))[0]) for g in read.guards))

    def _unrolled(self, op: Op, index: Indices) -> Task:
        """A reduction over very few elements, written out."""
        steps = itertools.product(*(range(extent) for extent in inner_extents(op)))
        placed: list[Placed] = []
        for step in steps:
            placed.append((yield from self._adding(op, index, tuple(map(constant, step)))))
        terms = [value for value, _ in placed]
        if op.opcode == "dot":
            total = terms[0] if len(terms) == 1 else infix("+", *terms)
        else:
            start, functor = joins(op)
            if isinstance(op.attrs["reducer"], Monoid) or start in _SIGNING:
                terms.insert(0, Number(start))
            total = terms[0]
            for term in terms[1:]:
                total = apply(f"{functor}::apply", total, term)
        if init := self._init(op):
            placed.append(init)
        depth = max(d for _, d in placed)
        return self._keep(op, index, self.finished(op, total), depth)

    def _index_depth(self, index: Indices) -> int:
        depths = [self.writer.depth_of[v.name] for i in index for v in i.variables]
        return max(depths, default=0)


def clamped(value: Expr, dtype: str, last: int) -> Expr:
    """An integer moved into [0, last], leaving out the ends its type cannot pass."""
    low = None if dtype in UNSIGNED else Number(literal(0, dtype))
    fits = last < np.iinfo(NUMPY_DTYPES[dtype]).max
    high = Number(literal(last, dtype)) if fits else None
    if low and high:
        return apply("fs_clamp", low, value, high)
    if low:
        return apply("fs_max", value, low)
    return apply("fs_min", value, high) if high else value


def _moved(buffer: Expr, by: int) -> Expr:
    """A pointer from which an element lies where it lies `by` further in `buffer`."""
    return infix("-" if by < 0 else "+", buffer, abs(by)) if by else buffer


def holds(guards: tuple[Guard, ...]) -> Expr:
    """Whether all of some guards hold."""
    parts: list[Expr] = []
    for guard in guards:
        place = Integer(guard.index)
        if guard.index.lo < guard.lower:
            parts.append(infix(">=", place, guard.lower))
        if guard.index.hi >= guard.upper:
            parts.append(infix("<", place, guard.upper))
        if guard.stride != 1:
            parts.append(infix("==", infix("%", place, guard.stride), 0))
    return all_of(parts) or Number("true")
