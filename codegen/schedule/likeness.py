"""Groups that become the same statements, but for which buffers they read and write, and where.

What decides the statements of a group is gathered in one value: what its stages compute of what,
who does that, and where in memory it lies, but for the constants of addresses. Elementwise groups
of inputs may be of any size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.index_maps.index import (
    Index,
    Quotient,
    Remainder,
    Term,
    Var,
    linearize,
    substituted,
    variable,
)
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.cuts import Cut
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.pieces import Piece
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.rewrite.extents import inner_extents
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.codegen.schedule.walk import Walk
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.literals import content
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops that do nothing but say where their operand is read: addresses show what they do.
_ADDRESSED = frozenset({"bitcast", "broadcast", "copy", "reshape", "reverse", "slice", "transpose"})


def is_flat(group: GroupPlan) -> bool:
    """Whether a group computes with inputs alone, element by element."""
    return group.group.is_flat and not any(s.reads for s in group.group.stages)


def kind_of_group(group: GroupPlan, written: Mapping[int, int]) -> Hashable:
    """Equal for groups that become the same statements, but for buffers and the constants of
    addresses. `written` is how many buffers of global memory a value is stored to, by op id."""
    return tuple(_Kind(group, written).parts())


@dataclass(eq=False)
class _Kind:
    group: GroupPlan
    written: Mapping[int, int]
    #: what is read and computed, numbered in the order in which it is met
    numbers: dict[int, int] = field(default_factory=dict)

    def parts(self) -> Iterator[Hashable]:
        group = self.group
        self.flat = is_flat(group)
        self.stages = {stage: number for number, stage in enumerate(group.group.stages)}
        yield self.flat, group.points, group.tiles > 1, group.ragged, group.backward
        yield tuple((self.number(op), elements) for op, elements in group.late)
        for stage in group.group.stages:
            yield from self.computed(stage)
        for nest in group.nests:
            yield from self.dealt(nest)

    def number(self, op: Op) -> int:
        return self.numbers.setdefault(op.id, len(self.numbers))

    def computed(self, stage: Stage) -> Iterator[Hashable]:
        """What a stage computes of what, and where it leaves that."""
        for op in _expression(stage):
            if op is stage.op or op.id in stage.inlined:
                operands = tuple(map(self.number, op.operands))
                known = replace(annotations_of(op), part_of=None)
                yield self.number(op), op.opcode, operands, known, *self.described(op)
            else:
                yield self.number(op), op.opcode, op.dtype  # which is what statements call it
        yield stage.optional, self.written.get(stage.op.id, 0)
        yield stage in self.group.shared
        for cut in stage.cuts:
            yield self.written.get(cut.output.id, 0), _destination(cut)

    def described(self, op: Op) -> tuple[Hashable, ...]:
        """What an op says besides."""
        if op.opcode in _ADDRESSED:
            return (op.dtype,)
        if op.opcode == "reduce":
            return op.dtype, joins(op), inner_extents(op)
        shape = op.dtype if kind_of(op.opcode) is Kind.ELEMENTWISE else op.shape
        return shape, _attributes(op)

    def dealt(self, nest: NestPlan) -> Iterator[Hashable]:
        """Who computes what of a nest, and where that is read and written."""
        extents = () if self.flat else (nest.rows, nest.inner)
        yield *extents, nest.teams, nest.tile and replace(nest.tile, reason="")
        yield tuple(self.walked(nest.walk))
        axes = self.group.group.axes
        digits = Digits(self.group.group, nest.nest, self.group.points)
        digits.bind_rows(variable("row", nest.rows), variable("point", self.group.grid_points))
        digits.bind_column(variable("column", nest.inner))
        for stage in nest.nest.stages:
            yield self.stages[stage], nest.nest.level[stage], nest.nest.role[stage]
            for leaf in (*axes.leaves(stage), *axes.inner_leaves(stage)):
                if leaf not in digits.of:
                    digits.bind([leaf], variable("depth", axes.extent(leaf)))
            index, inner = digits.indices(stage)
            where = {
                next(iter(own.variables)): here
                for own, here in chain(
                    zip(stage.dims, index, strict=True), zip(stage.inner, inner, strict=True)
                )
                if own.variables
            }
            if not self.flat:
                yield tuple(map(_frame, chain(index, inner)))
            yield _frame(linearize(index, stage.op.dims))
            for producer, read in stage.reads:
                yield self.stages.get(producer, -1), self.number(producer.op)
                yield self.address(producer.op, read, where)
            for op, read in stage.loads:
                yield self.number(op), self.address(op, read, where)

    def address(self, op: Op, index: Indices, where: Mapping[Var, Index]) -> Hashable:
        """Where an operand is read."""
        found = tuple(substituted(one, where) for one in index)
        picked = [fetched for one in found for fetched in one.fetched]
        known = ((self.number(f.op), f.extent, *map(_frame, f.at)) for f in picked)
        return _frame(linearize(found, op.dims)), *known

    def walked(self, walk: Walk) -> Iterator[Hashable]:
        """How a thread goes along rows."""
        yield walk.width, walk.vectors, walk.unrolled, walk.stride, walk.rows, walk.loads
        yield walk.announced, walk.early, walk.narrow
        for one in walk.row_inputs:
            yield self.number(one.op), _frame(one.base), one.steady, one.ahead
        for live in walk.live:
            yield self.number(live.op), tuple(map(_frame, live.at)), live.level
        for op, at in walk.picked:
            yield self.number(op), tuple(map(_frame, at))
        for rounds in (walk.depth, walk.copies):
            yield tuple(sorted((self.stages[stage], n) for stage, n in rounds.items()))
        yield tuple(sorted(self.stages[stage] for stage in walk.once))


def _expression(stage: Stage) -> Iterator[Op]:
    """The ops that a stage computes and those that it reads, each before its operands."""
    met: set[int] = set()
    todo = [stage.op]
    while todo:
        op = todo.pop()
        if op.id not in met:
            met.add(op.id)
            yield op
            if op is stage.op or op.id in stage.inlined:
                todo += reversed(op.operands)


def _destination(cut: Cut | Piece) -> Hashable:
    """Which part of a value is stored, or where what it is a piece of has it."""
    if isinstance(cut, Cut):
        return tuple(map(_attributes, cut.ops))
    return cut.output.dims, cut.operand.dims, cut.axis, cut.start


def _attributes(op: Op) -> Hashable:
    if op.opcode == "constant":
        return content(op.attrs["value"])
    return frozenset(op.attrs.items())


def _frame(index: Index) -> Hashable:
    """What an index is made of, but for its constants."""
    terms = sorted(index.terms, key=lambda one: -abs(one[1]))
    rest = (index.const > 0) - (index.const < 0)
    return tuple((_part(term), factor > 0, abs(factor) == 1) for term, factor in terms), rest


def _part(term: Term) -> Hashable:
    if isinstance(term, (Quotient, Remainder)):
        return type(term), _frame(term.base)
    return term.name  # indices that the data decides are unnamed, and compared apart
