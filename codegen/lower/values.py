"""Values: the expression of any op of a region at any index, each computed once per scope.

A value lives in the outermost open block in which its index and its arguments are known, so what
depends on the row alone is computed before the sweep along it.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from fusionstitch.codegen.index_maps.index import (
    Fetched,
    constant,
    linearize,
    replaced,
)
from fusionstitch.codegen.index_maps.maps import Guard, Indices, in_range, is_branching, reads
from fusionstitch.codegen.ir.expressions import (
    Arithmetic,
    Cast,
    Choice,
    Expr,
    Integer,
    Load,
    Name,
    Number,
    apply,
    infix,
    number,
)
from fusionstitch.codegen.ir.intrinsics import (
    CLAMP,
    JOIN,
    MAXIMUM,
    MINIMUM,
    ROTATE_LEFT,
    ROUND,
    ROUND_BF16,
    ROUND_F16,
)
from fusionstitch.codegen.ir.statements import Array, Assign, Group, If
from fusionstitch.codegen.ir.types import computed, stored
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.codegen.lower.guards import holds
from fusionstitch.codegen.lower.known import AtDepth, Known, Sources
from fusionstitch.codegen.lower.pads import OFTEN, Nearest
from fusionstitch.codegen.lower.selected import Selection
from fusionstitch.codegen.rewrite.extents import inner_extents
from fusionstitch.codegen.rewrite.monoids import Monoid, joins
from fusionstitch.codegen.text.expressions import is_rounded, literal, preserves_value, rotation
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import UNSIGNED, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of

#: A generator that yields the values it needs, is sent each of them, and returns its own.
Task = Generator[tuple[Op, Indices], Any, AtDepth]
#: Most values that are computed for one, including those that it is made of; what only moves them
#: takes no text. An op inlined at many indices is written at each. A scan over 50 elements by
#: halves has 90 ops and thousands of values, and takes compilers as long as that many ops
#: (`MOST_OPS` of codegen/decisions.py).
MOST_VALUES = 2000
TOO_LONG = f"Its text of more than {MOST_VALUES} values would take too long to compile: split it."
#: Starts of a sum that are more than nothing: zero and -0 add up to zero.
_SIGNING = ("0.0f", "0.0")


class Values:
    """Prints values through the writer of what is `known`; `sources` say how those are read that
    live there; `inlined`, which pads fill, what values at indices read."""

    def __init__(
        self,
        known: Known,
        sources: Sources,
        numerics: str,
        tables: Mapping[int, str],
        inlined: dict[tuple[int, Indices], int] | None = None,
    ):
        self.known, self.sources, self.writer = known, sources, known.writer
        self.numerics, self.tables = numerics, tables
        #: opcodes of which fewer correct bits will do
        self.approximate: frozenset[str] = frozenset()
        self._inlined = {} if inlined is None else inlined
        #: how many values were computed so far
        self.written = 0

    def value(self, op: Op, index: Indices) -> Expr:
        return self.at_depth(op, index)[0]

    def at_depth(self, op: Op, index: Indices) -> AtDepth:
        """The value of `op` at `index`, from a register, from memory, or computed."""
        return self._done(self._finding(op, index))

    def computed(self, op: Op, index: Indices) -> AtDepth:
        """The value computed here, whether or not it is also stored somewhere."""
        return self._done(self._computing(op, index))

    def _done(self, task: Task) -> AtDepth:
        """What `task` gives, once what it waits for is done: a stack of our own, since chains of
        ops are longer than Python's."""
        waiting = [task]
        most = self.written + MOST_VALUES
        given: AtDepth | None = None
        raised: Exception | None = None
        while True:
            try:
                needed = waiting[-1].throw(raised) if raised else waiting[-1].send(given)
                waiting.append(self._finding(*needed))
                if self.written > most:
                    raise CodegenError(TOO_LONG)
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

    def _finding(self, op: Op, index: Indices) -> Task:
        found = self.writer.find((op.id, index))
        if found is not None:
            return found
        if any(i.fetched for i in index):
            fetches: list[Fetched] = []

            def noted(fetched: Fetched) -> Fetched:
                fetches.append(fetched)
                return fetched

            for i in index:
                replaced(i, noted)
            for fetched in fetches:
                if not fetched.name and self.writer.find(fetched) is None:
                    yield fetched.op, fetched.at
                    self._fetched(fetched)
            named = self.named(index)
            if named != index:
                value, depth = yield op, named
                self.writer.chain[depth].memo[op.id, index] = value
                return value, depth
        memory = self.sources.stored(op, index)
        if memory is not None:
            value, depth = memory
            depth = max(depth, self.known.depth_of(index))
            return self.known.define(op, index, value, depth)
        return (yield from self._computing(op, index))

    def named(self, index: Indices) -> Indices:
        """`index` with every integer it depends on printed, and known by name."""
        return tuple(replaced(i, self._fetched) for i in index)

    def _fetched(self, fetched: Fetched) -> Fetched:
        if fetched.name:
            return fetched
        found = self.writer.find(fetched)
        if found is None:
            value, depth = self.at_depth(fetched.op, fetched.at)
            value = clamped(value, fetched.op.dtype, fetched.extent - 1)
            hint = f"{self.known.label(fetched.op)}_index"
            return replace(fetched, name=self.known.integer(fetched, hint, value, depth))
        assert isinstance(found[0], Name)
        return replace(fetched, name=found[0].name)

    def _computing(self, op: Op, index: Indices) -> Task:
        if op.opcode == "constant":
            return self._constant(op, index)
        if op.opcode == "iota":
            position = index[op.attrs["dimension"]]
            compute = computed(op.dtype)
            return Cast(compute, Integer(position)), self.known.depth_of((position,))
        kind, branching = kind_of(op.opcode), is_branching(op)
        if kind is Kind.MOVEMENT and not branching:
            (read,) = reads(op, index)
            return (yield op.operands[read.operand], read.index)
        self.written += 1
        if branching:
            return (yield from self._branches(op, index))
        if kind in (Kind.REDUCTION, Kind.DOT):
            return (yield from self._unrolled(op, index))
        if kind is not Kind.ELEMENTWISE:
            raise CodegenError(f"{op.opcode} cannot be computed inside a kernel: leave it to XLA.")
        rotated = rotation(op)
        if rotated and all(self.sources.stored(o, index) is None for o in op.operands):
            value, depth = yield rotated[0], index
            rotation_of = apply(ROTATE_LEFT, value, number(rotated[1]))
            return self.known.define(op, index, rotation_of, depth)
        args: list[AtDepth] = []
        for read in reads(op, index):
            args.append((yield op.operands[read.operand], read.index))
        numerics = "fast" if op.opcode in self.approximate else self.numerics
        if len(args) == 1 and preserves_value(op, numerics):
            return args[0]
        value = Arithmetic(op, tuple(value for value, _ in args), numerics)
        return self.known.define(op, index, value, max((d for _, d in args), default=0))

    def depth_of(self, op: Op, index: Indices) -> int:
        """The depth from which on an element of an input may be read."""
        if in_range(op, index):
            return self.writer.reading_depth(self.known.depth_of(index))
        return self.writer.ordered_depth  # what asks for the place stands around it

    def accumulated(self, op: Op, dims: Indices, inner: Indices) -> Expr:
        """The term a reduction or dot adds at one step, in its accumulator's type."""
        return self._done(self._adding(op, dims, inner))[0]

    def _adding(self, op: Op, dims: Indices, inner: Indices) -> Task:
        pairs: list[AtDepth] = []
        for read in body_reads(op, dims, inner):
            pairs.append((yield read))
        depth = max(d for _, d in pairs)
        terms = [value for value, _ in pairs]
        if op.opcode == "reduce":
            return terms[0], depth
        compute = computed(op.dtype)
        casts = [
            t if computed(o.dtype) == compute else Cast(compute, t)
            for t, o in zip(terms, op.operands, strict=True)
        ]
        return infix("*", *casts), depth

    def finished(self, op: Op, total: Expr) -> Expr:
        """A reduction's result: its init value joined with the total of its terms."""
        if isinstance(op.attrs.get("reducer"), Monoid):
            return total
        init = self._init(op)
        if init:
            total = apply(JOIN, init[0], total, template=(joins(op)[1],))
        return _rounded(total, op.dtype) if is_rounded(op, self.numerics) else total

    def _init(self, op: Op) -> AtDepth | None:
        """What a reduction starts from, if its terms alone do not give its result."""
        if op.opcode == "dot" or isinstance(op.attrs["reducer"], Monoid):
            return None
        init = self.at_depth(op.operands[len(op.operands) // 2], ())
        return None if init[0] == Number(joins(op)[0]) else init

    def _constant(self, op: Op, index: Indices) -> AtDepth:
        if op.id not in self.tables:
            return Number(literal(op.attrs["value"].flat[0], op.dtype)), 0
        depth = self.known.depth_of(index)
        if not in_range(op, index):  # what asks for the place stands around it
            depth = max(depth, self.writer.ordered_depth)
        elif any(i.variables for i in index):  # a condition keeps the index inside
            depth = self.writer.inside_condition(depth)
        return Load(Name(self.tables[op.id]), Integer(linearize(index, op.dims))), depth

    def _branches(self, op: Op, index: Indices) -> Task:
        alternatives = reads(op, index)
        if len(alternatives) == 1:
            (only,) = alternatives
            return (yield op.operands[only.operand], only.index)
        selected = None
        if op.opcode == "concatenate":
            selected = Selection(self.known, self.sources, self.named).selected(op, index)
        if selected is not None:
            return selected
        inside = nearest = None
        if op.opcode == "pad":
            nearest = Nearest(self.known, self.sources, self.named, self._inlined)
            inside = nearest.inside(op, alternatives[0])
        if inside is not None:
            return (yield from self._padded(op, index, alternatives[0].guards, inside))
        writer = self.writer
        name = writer.name(self.known.label(op))
        writer.add(Array(computed(op.dtype), name))
        with writer.nested(Group()):  # what a branch hoists comes before all of them
            left = 1.0
            for read in alternatives:
                condition = self._holds(read.guards) if read.guards else None
                share = read.share if read.guards else left
                left -= share
                often = share >= OFTEN
                frame: AbstractContextManager[object] = writer.otherwise(condition, chosen=often)
                if read is alternatives[0]:
                    assert condition is not None
                    frame = writer.nested(If(condition), pinned=True, chosen=often)
                with frame:
                    at = nearest.known(op, read) if nearest and read.guards else read.index
                    value, _ = yield op.operands[read.operand], at
                    writer.add(Assign(Name(name), value))
        writer.block.memo[op.id, index] = Name(name)
        return Name(name), writer.depth

    def _padded(self, op: Op, index: Indices, guards: tuple[Guard, ...], inside: Indices) -> Task:
        """A value that most indices have. All read it, at the nearest index that has it, since
        loads in branches would wait for each other."""
        value, depth = yield op.operands[0], inside
        padding, known = yield op.operands[1], ()
        depth = max(depth, known, self.known.depth_of(tuple(g.index for g in guards)))
        chosen = Choice(((self._holds(guards), value),), padding)
        return self.known.define(op, index, chosen, depth)

    def _holds(self, guards: tuple[Guard, ...]) -> Expr:
        return holds(tuple(replace(g, index=self.named((g.index,))[0]) for g in guards))

    def _unrolled(self, op: Op, index: Indices) -> Task:
        """A reduction over very few elements, written out."""
        steps = itertools.product(*(range(extent) for extent in inner_extents(op)))
        pairs: list[AtDepth] = []
        for step in steps:
            pairs.append((yield from self._adding(op, index, tuple(map(constant, step)))))
        terms = [value for value, _ in pairs]
        if op.opcode == "dot":
            total = terms[0] if len(terms) == 1 else infix("+", *terms)
        else:
            start, functor = joins(op)
            if isinstance(op.attrs["reducer"], Monoid) or start in _SIGNING:
                terms.insert(0, Number(start))
            total = terms[0]
            for term in terms[1:]:
                total = apply(JOIN, total, term, template=(functor,))
        if init := self._init(op):
            pairs.append(init)
        depth = max(d for _, d in pairs)
        return self.known.define(op, index, self.finished(op, total), depth)


def _rounded(value: Expr, dtype: str) -> Expr:
    """A float that is computed, as one of a type with fewer bits."""
    own = {"bf16": ROUND_BF16, "f16": ROUND_F16}.get(dtype)
    return apply(own, value) if own else apply(ROUND, value, template=(stored(dtype),))


def clamped(value: Expr, dtype: str, last: int) -> Expr:
    """An integer moved into [0, last], leaving out the ends its type cannot pass."""
    low = None if dtype in UNSIGNED else Number(literal(0, dtype))
    fits = last < np.iinfo(NUMPY_DTYPES[dtype]).max
    high = Number(literal(last, dtype)) if fits else None
    if low and high:
        return apply(CLAMP, low, value, high)
    if low:
        return apply(MAXIMUM, value, low)
    return apply(MINIMUM, value, high) if high else value
