"""What tiles need: the elements of each value that a tile of the outputs depends on.

    y[p] = x[p - 1] + x[p + 1]    a tile of y, p from t n to (t + 1) n, needs x from one element
                                  before that to one after it

From the outputs back each value gets an interval around the tile, the wider the more stencils are
between (bounds inference, as Halide's). Padding before and after a value (its edge repeated, or
reflected) is *pinned*: only the first tile reads it, or the last. What elements cannot be followed
through is computed as a whole; tiles are views of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.rewrite.shifts import is_near, moves, rolled
from fusionstitch.codegen.rewrite.stencil_axes import Axis
from fusionstitch.hlo.attributes import REDUCERS
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of

#: Elements along an axis that a tile needs beside its own, at most.
MOST_HALO = 48
#: Elements along an axis of what stands before or after a value, at most, and how far from its end
#: they are taken.
MOST_BORDER, NEAR_END = 16, 32
#: Ops that elements can be followed through, besides elementwise ones.
_FOLLOWED = frozenset(
    {*("broadcast", "reduce", "transpose", "reshape"), *("slice", "pad", "concatenate", "reverse")}
)
#: Ops that ask each element where it lies.
_BORDERED = ("pad", "concatenate")


@dataclass(frozen=True)
class Interval:
    """What a tile needs beyond its own elements: of tile t, of n, those from t n + `low` until
    (t + 1) n + `high`."""

    low: int = 0
    high: int = 0

    def shifted(self, by: int) -> Interval:
        return Interval(self.low + by, self.high + by)

    def __or__(self, other: Interval) -> Interval:
        return Interval(min(self.low, other.low), max(self.high, other.high))


def is_known(reduce: Op) -> bool:
    """Whether what a reduction starts from is known of its reducer."""
    return not reduce.shape.is_tuple and reduce.attrs["reducer"] in REDUCERS


#: What a value is pinned to: numbers of axes, each with whether it is the end of it.
Pins = frozenset[tuple[int, bool]]
NO_PINS: Pins = frozenset()


@dataclass(frozen=True)
class Need:
    """A tile of a value: the interval of each axis, by number, that is needed of it."""

    value: Op
    pins: Pins
    intervals: Mapping[int, Interval]


@dataclass(frozen=True)
class Tiles:
    """Axes cut into tiles of some `sizes`, and what each value needs of them.

    Attributes:
        needs: by op and what it is pinned to, the interval of each axis, by number, that it has
        plain: the ops that are computed as they are, too, or alone
    """

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]
    needs: dict[Op, dict[Pins, dict[int, Interval]]] = field(default_factory=dict)
    plain: set[Op] = field(default_factory=set)

    def count(self, number: int) -> int:
        """How many tiles an axis has."""
        return -(-self.axes[number].extent // self.sizes[number])

    def dims(self, op: Op, pins: Pins = NO_PINS) -> dict[int, int]:
        """The dim of each axis that `op` has, by number, but for those it is pinned on."""
        pinned = {number for number, _ in pins}
        return {
            n: axis.dims[op] for n, axis in enumerate(self.axes) if op in axis and n not in pinned
        }

    def counted(self, op: Op, pins: Pins) -> tuple[int, ...]:
        """The axes whose tiles the first dims of `op` in tiles count."""
        return tuple(sorted({*self.dims(op, pins), *(number for number, _ in pins)}))

    def length(self, op: Op, pins: Pins, number: int) -> int:
        """Elements along an axis that a tile of `op` has."""
        need = self.needs[op][pins][number]
        return self.sizes[number] + need.high - need.low

    def summed_alone(self, op: Op) -> list[int]:
        """The axes that a reduction sums over, tile by tile, if what it sums up has no others."""
        if op.opcode != "reduce" or not is_known(op):
            return []
        found = self.summed(op)
        return found if len(found) == len(self.dims(op.operands[0])) else []

    def summed(self, reduce: Op) -> list[int]:
        """The axes that a reduction sums over."""
        own = self.dims(reduce.operands[0])
        return [n for n, dim in own.items() if dim in reduce.attrs["dimensions"]]

    def followed(self, slice_: Op, pins: Pins) -> set[int]:
        """The dims of a slice along which its operand is read at the indices that it takes."""
        pinned = {
            dim
            for n, _ in pins
            if (dim := self.axes[n].dims.get(slice_)) is not None
            and slice_.operands[0].dims[dim] > MOST_BORDER
        }
        return {*self.dims(slice_, pins).values(), *pinned}

    def reads(self, op: Op, pins: Pins) -> list[Need] | None:
        """What a tile of `op` needs of each of its operands, or of the value that it rolls; None
        where it is a view of the whole value."""
        if kind_of(op.opcode) is not Kind.ELEMENTWISE and op.opcode not in _FOLLOWED:
            return None
        if op.opcode in _BORDERED and is_near(op):
            return None
        if op.opcode == "reduce" and not is_known(op) and self.summed(op):
            return None
        needs = self.needs[op][pins]
        intervals: list[dict[int, Interval]] = [{} for _ in op.operands]
        if op.opcode == "reduce":
            intervals[0] = {n: Interval() for n in self.summed(op)}
        op_pins = [pins] * len(op.operands)
        for number, dim in self.dims(op, pins).items():
            axis, interval = self.axes[number], needs[number]
            if axis.periodic and op.dims[dim] != axis.extent:
                return None
            if (roll := rolled(op, dim)) is not None:
                whole = {**needs, number: interval.shifted(roll.shift)}
                return [Need(roll.value, pins, whole)]
            found = moves(op, dim)
            if found is None or (axis.periodic and any(move.shift for move in found)):
                return None
            along = op.opcode == "concatenate" and op.attrs["dimension"] == dim
            main = self.main(op) if along else None
            if main is not None and not self._has_borders(op, number, main, interval):
                return None
            for n, move in enumerate(found):
                if main is not None and n != main:
                    op_pins[n] = pins | {(number, n > main)}
                elif move.dim is not None:
                    intervals[n][number] = interval.shifted(move.shift)
        for number, is_end in pins:
            if op in self.axes[number] and not self._pinned(op, number, is_end, intervals, op_pins):
                return None
        needed = [Need(*each) for each in zip(op.operands, op_pins, intervals, strict=True)]
        # a reshape may merge an axis with others
        if any(one.intervals.keys() != self.dims(one.value, one.pins).keys() for one in needed):
            return None
        return needed

    def main(self, concatenate: Op) -> int:
        """The number of the operand of a concatenate that the others are a border of."""
        dim, operands = concatenate.attrs["dimension"], concatenate.operands
        return max(range(len(operands)), key=lambda n: operands[n].dims[dim])

    def _has_borders(self, op: Op, number: int, main: int, need: Interval) -> bool:
        """Whether what stands before and after an operand of a concatenate is made of elements of
        the first tile, or the last, and of no others."""
        dim, size, last = op.attrs["dimension"], self.sizes[number], self.count(number) - 1
        extents = [x.dims[dim] for x in op.operands]
        before, after = sum(extents[:main]), sum(extents[main + 1 :])
        if any(n > MOST_BORDER for k, n in enumerate(extents) if k != main) or not last:
            return False
        if before > size + need.low or last * size + need.high > op.dims[dim] - after:
            return False
        pieces = [(x, k > main) for k, x in enumerate(op.operands) if k != main]
        return all(self._is_beside(x, number, is_end) for x, is_end in pieces)

    def _is_beside(self, piece: Op, number: int, is_end: bool) -> bool:
        """Whether a border is made of the neighbouring elements of a value alone."""
        axis, size = self.axes[number], self.sizes[number]
        while piece.opcode in ("reshape", "broadcast", "reverse", "convert", "transpose"):
            [piece] = piece.operands
        if piece.opcode != "slice" or piece not in axis:
            return piece.opcode in ("constant", "parameter") or piece.shape.rank == 0
        dim, extent = axis.dims[piece], piece.operands[0].dims[axis.dims[piece]]
        if is_end:
            return piece.attrs["start"][dim] >= extent - NEAR_END
        return piece.attrs["limit"][dim] <= min(NEAR_END, size)

    def _pinned(
        self,
        op: Op,
        number: int,
        is_end: bool,
        intervals: list[dict[int, Interval]],
        op_pins: list[Pins],
    ) -> bool:
        """Has a pinned slice of a long value read the tile that it is pinned to; False where the
        elements of an operand do not follow."""
        dim = self.axes[number].dims[op]
        if op.opcode != "slice":
            return True
        if op.operands[0].dims[dim] <= MOST_BORDER:
            return True
        if op.attrs["stride"][dim] != 1:
            return False
        op_pins[0] -= {(number, is_end)}
        size = self.sizes[number]
        first = (self.count(number) - 1) * size if is_end else 0
        low, high = op.attrs["start"][dim] - first, op.attrs["limit"][dim] - first - size
        intervals[0][number] = Interval(low, high)
        return True


def tiles(graph: Graph, axes: Sequence[Axis], sizes: Sequence[int]) -> Tiles | None:
    """What each value needs where the `axes` are cut into tiles of these sizes; None where some
    tile would need much more than its own elements."""
    found = Tiles(tuple(axes), tuple(sizes))
    for output in graph.root.operands:
        _need(found, Need(output, NO_PINS, {n: Interval() for n in found.dims(output)}))
    for op in reversed(graph.ops[:-1]):
        for pins in found.needs.get(op, ()):
            if (reads := found.reads(op, pins)) is None:
                if not _has_view(found, op, pins):
                    return None
                found.plain.add(op)
                continue
            for one in reads:
                _need(found, one)
        if op in found.plain:
            if alone := found.summed_alone(op):
                x, init = op.operands
                _need(found, Need(x, NO_PINS, {n: Interval() for n in alone}))
                found.plain.add(init)
            else:
                found.plain.update(op.operands)
    widths = (
        interval.high - interval.low
        for by_pins in found.needs.values()
        for intervals in by_pins.values()
        for interval in intervals.values()
    )
    return found if max(widths, default=0) <= MOST_HALO else None


def _has_view(found: Tiles, op: Op, pins: Pins) -> bool:
    """Whether something stands for what lies outside of a value: a number, or, where it goes on as
    it begins, the value of an axis."""
    axes = [(found.axes[n], dim) for n, dim in found.dims(op, pins).items()]
    whole = all(op.dims[dim] == axis.extent for axis, dim in axes if axis.periodic)
    return whole and op.dtype in NUMPY_DTYPES


def _need(found: Tiles, need: Need) -> None:
    """Notes that a tile of a value is needed."""
    value = need.value
    if value.shape.rank == 0 or not (need.intervals or need.pins):
        found.plain.add(value)
        return
    intervals = found.needs.setdefault(value, {}).setdefault(need.pins, {})
    for number, interval in need.intervals.items():
        intervals[number] = intervals.get(number, interval) | interval
