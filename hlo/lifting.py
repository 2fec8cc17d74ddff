"""Ops of a loop's body for all iterations at once, around the loop, in a module's proto: what
differs from iteration to iteration is stacked along a new first dim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusionstitch.hlo.edit import fill_shape, put
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.literals import modular
from fusionstitch.hlo.loop_editor import LoopEditor
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import unhindered

#: Kinds of ops that may be computed once, where they are the same in each iteration.
PURE = frozenset({Kind.SOURCE, Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCTION, Kind.DOT})


def is_liftable(op: Op, stacked: Sequence[bool]) -> bool:
    """Whether `op` can be computed for all iterations at once, where these operands differ."""
    if not any(stacked):
        return kind_of(op.opcode) in PURE
    if op.opcode == "dot":  # what one operand is stacked along is a dim of its own in the result
        return all(stacked) or not op.attrs["lhs_batch"]
    if op.opcode in ("reduce", "pad"):  # the start of a sum, what a pad is filled with
        return not op.shape.is_tuple and not any(stacked[1:])
    return kind_of(op.opcode) is Kind.ELEMENTWISE or op.opcode in _DEEPER


@dataclass(frozen=True, eq=False)
class StackRead:
    """An iteration's read of a stack that the loop carries: the part at `position` along its first
    axis. The stack is element `index` of the carried tuple."""

    op: Op
    index: int
    position: Op


@dataclass(frozen=True)
class Steps:
    """An element of what a loop carries, by its `index`, that iterations add the same `step` to.
    The parts of stacks are in that order, or `backwards`."""

    index: int
    step: int
    backwards: bool = False


@dataclass(frozen=True, eq=False)
class Cone:
    """Ops to be computed for all iterations, in their order, with those that they are made of.
    `stacks` are the elements of what the loop carries that have all iterations' values of an op, by
    the op's id; `steps` those that iterations add a number to."""

    ops: tuple[Op, ...]
    stacks: Mapping[int, int]
    steps: Mapping[int, Steps] = field(default_factory=dict)


@dataclass(frozen=True)
class Lifted:
    """An instruction around the loop; `stacked`: of all iterations, else the same in each."""

    instruction: Any
    stacked: bool


class Lifter:
    """Computes around a loop what ops of its body give in all iterations. `stacks` gives the stacks
    there by their elements of what the loop carries."""

    def __init__(self, loop: LoopEditor, trips: int, stacks: Callable[[int], Any]):
        self.loop, self.trips, self.stacks = loop, trips, stacks
        self.known: dict[int, Lifted] = {}

    def lift(self, cone: Cone) -> None:
        for ident, index in cone.stacks.items():
            self.known[ident] = Lifted(self.stacks(index), stacked=True)
        for op in cone.ops:
            steps = cone.steps.get(op.id)
            self.known[op.id] = self._made(op) if steps is None else self._stepped(op, steps)

    def __getitem__(self, op: Op) -> Lifted:
        return self.known[unhindered(op).id]

    def whole(self, op: Op) -> int:
        """The id of what all iterations have as `op`, also where that is the same in each."""
        return self._spread(op, self[op], op)

    def shape(self, op: Op) -> Shape:
        """That of what all iterations have as `op`."""
        return Shape(op.dtype, (self.trips, *op.dims))

    def _stepped(self, op: Op, steps: Steps) -> Lifted:
        """What an element is in all iterations."""
        outer, source, shape = self.loop.outer, self.loop.instruction, self.shape(op)
        step = -steps.step if steps.backwards else steps.step
        first = self.loop.begin(steps.index)
        if steps.backwards:
            added = modular(steps.step * (self.trips - 1), op.dtype)
            last = outer.constant(op.dtype, added, source)
            first = outer.add("add", op.shape, [first.id, last.id], source)
        numbers = outer.add("iota", shape, [], source)
        numbers.dimensions.append(0)
        every = [outer.constant(op.dtype, modular(step, op.dtype), source), first]
        step_, first_ = (outer.add("broadcast", shape, [one.id], source).id for one in every)
        moved = outer.add("multiply", shape, [numbers.id, step_], source)
        return Lifted(outer.add("add", shape, [moved.id, first_], source), stacked=True)

    def _made(self, op: Op) -> Lifted:
        if (index := carried(op)) is not None:
            return Lifted(self.loop.begin(index), stacked=False)
        source, operands = self.loop.inner.by_id[op.origin], [self[o] for o in op.operands]
        if not any(one.stacked for one in operands):
            ids = [one.instruction.id for one in operands]
            return Lifted(self.loop.outer.bring(source, ids), stacked=False)
        if op.opcode == "dot":
            return Lifted(self.product(op, *operands), stacked=True)
        joined = kind_of(op.opcode) is Kind.ELEMENTWISE or op.opcode == "concatenate"
        ids = [
            self._spread(o, one, op) if joined else one.instruction.id
            for o, one in zip(op.operands, operands, strict=True)
        ]
        made = self._remade(source, ids, self.shape(op))
        _DEEPER.get(op.opcode, _nothing)(made, self.trips)
        return Lifted(made, stacked=True)

    def _remade(self, source: Any, operands: Sequence[int], shape: Shape) -> Any:
        made = self.loop.outer.bring(source, operands)
        made.shape.Clear()
        fill_shape(made.shape, shape)
        return made

    def _spread(self, op: Op, one: Lifted, reader: Op) -> int:
        """The id of an operand with one part an iteration, and with the dims of its reader where
        it is a scalar that the reader spreads."""
        rank = op.shape.rank
        dims = op.dims if rank or reader.opcode not in ("select", "clamp") else reader.dims
        if one.stacked and dims == op.dims:
            return int(one.instruction.id)
        shape = Shape(op.dtype, (self.trips, *dims))
        source = one.instruction
        made = self.loop.outer.add("broadcast", shape, [source.id], source)
        put(made.dimensions, [0][: one.stacked] + [d + 1 for d in range(rank)])
        return int(made.id)

    def product(self, dot: Op, lhs: Lifted, rhs: Lifted) -> Any:
        """A dot over all iterations; the stacks' dim is its first."""
        made = self.loop.outer.bring(
            self.loop.inner.by_id[dot.origin], [lhs.instruction.id, rhs.instruction.id]
        )
        numbers = made.dot_dimension_numbers
        sides = [
            [numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions],
            [numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions],
        ]
        for one, fields in zip((lhs, rhs), sides, strict=True):
            for dims in fields if one.stacked else ():
                put(dims, [d + 1 for d in dims])
        order = list(range(dot.shape.rank))
        if lhs.stacked and rhs.stacked:
            for batch, _ in sides:
                put(batch, [0, *batch])
        elif rhs.stacked:  # its own dims come first
            (_, left), (_, right) = sides
            mine = list(left)
            put(left, right)
            put(right, mine)
            put(made.operand_ids, made.operand_ids[::-1])
            precisions = made.precision_config.operand_precision
            put(precisions, precisions[::-1])
            free = dot.operands[0].shape.rank - len(dot.attrs["lhs_contract"])
            order = [*order[free:], *order[:free]]
        made.shape.Clear()
        fill_shape(made.shape, Shape(dot.dtype, (self.trips, *(dot.dims[d] for d in order))))
        if order == sorted(order):
            return made
        transposed = self.loop.outer.add("transpose", self.shape(dot), [made.id], made)
        put(transposed.dimensions, [0, *(order.index(d) + 1 for d in range(len(order)))])
        return transposed


def _nothing(made: Any, trips: int) -> None:
    """An op that says nothing of dims."""


def _shifted(made: Any, trips: int) -> None:
    put(made.dimensions, [dim + 1 for dim in made.dimensions])


def _led(made: Any, trips: int) -> None:
    put(made.dimensions, [0, *(dim + 1 for dim in made.dimensions)])


def _sliced(made: Any, trips: int) -> None:
    rest = [(d.start, d.limit, d.stride) for d in made.slice_dimensions]
    made.ClearField("slice_dimensions")
    for start, limit, stride in ((0, trips, 1), *rest):
        made.slice_dimensions.add(start=start, limit=limit, stride=stride)


def _padded(made: Any, trips: int) -> None:
    fields = ("edge_padding_low", "edge_padding_high", "interior_padding")
    rest = [{f: getattr(d, f) for f in fields} for d in made.padding_config.dimensions]
    made.padding_config.ClearField("dimensions")
    for values in (dict.fromkeys(fields, 0), *rest):
        made.padding_config.dimensions.add(**values)


#: What a new first dim changes in what instructions say of dims, by opcode.
_DEEPER: Mapping[str, Callable[[Any, int], None]] = {
    "broadcast": _led,
    "concatenate": _shifted,
    "copy": _nothing,
    "pad": _padded,
    "reduce": _shifted,
    "reshape": _nothing,
    "reverse": _shifted,
    "slice": _sliced,
    "transpose": _led,
}
