"""What a region of layers is made of: which values lanes hold of each row, and what sums up rows.

    h[R, 64] = tanh(x[R, 9] w + b)     d[R, 64] = ...     dw[9, 64] = x^T d     db[64] = sum(d)

Every value either has the rows or sums them up. One with the rows is held by the lanes of its row,
or computed where it is read. A product with what has no rows gives a row from a row; sums along the
rows are added up from row to row. Index maps say which dims the rows are: those of the product that
is looked at first, and, wherever its rows are read or were made, the same place in the same order.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.index_maps.index import Index, delinearize
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.layers.columns import Columns
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op

#: Elements of a row that lanes hold, and summed elements of a product, of which lanes hold a few at
#: a time.
MOST_COLUMNS, MOST_DEPTH = 128, 512
#: Operations from which a value that is read again is held; if registers do not suffice, those from
#: which it is then.
WORTH_HOLDING = (4, 24, 64)


class Role(enum.Enum):
    """What a value is to the rows."""

    PRODUCT = "a row times a matrix"
    FOLD = "all elements of a row joined"
    ELEMENTS = "computed element by element"
    SUM = "products of two rows, summed over all rows"
    TOTAL = "elements, summed over all rows"
    LATE = "computed from sums over all rows"


#: Roles of what has no rows any more.
ENDS = (Role.SUM, Role.TOTAL, Role.LATE)


@dataclass(eq=False)
class Value:
    """An op of a region with a loop of its own.

    `dims` and `inner` are its index variables; `rows` those that are the rows, `columns` the other
    ones, of the result. `reads` are the values that it reads and `loads` the inputs, at which
    index. One that is `scattered` is read at columns of other lanes. `stepwise`: its reads differ
    from step to step.
    """

    op: Op
    dims: Indices
    inner: Indices
    reads: list[tuple[Value, Indices]] = field(default_factory=list)
    loads: list[tuple[Op, Indices]] = field(default_factory=list)
    branches: bool = False
    is_output: bool = False
    rows: tuple[int, ...] = ()
    role: Role = Role.ELEMENTS
    scattered: bool = False
    stepwise: bool = False

    @property
    def all(self) -> Indices:
        """All of its index variables."""
        return (*self.dims, *self.inner)

    @property
    def extents(self) -> tuple[int, ...]:
        """How many values each of these has."""
        return tuple(i.hi + 1 for i in self.all)

    @property
    def free(self) -> list[int]:
        """The dims of the result that are not the rows."""
        return [d for d in range(len(self.dims)) if d not in self.rows]

    @property
    def along(self) -> list[int]:
        """The index variables that are not the rows, of what it sums up or is computed at."""
        if self.role in (Role.PRODUCT, Role.FOLD):
            return list(range(len(self.dims), len(self.all)))
        if self.role is Role.ELEMENTS:
            return self.free
        return [d for d in range(len(self.all)) if d not in self.rows]

    def size(self, positions: Sequence[int]) -> int:
        """How many values some index variables have together."""
        extents = self.extents
        return math.prod(extents[d] for d in positions)

    @property
    def visited(self) -> int:
        """Elements that one of the result is made of."""
        return self.size(range(len(self.dims), len(self.all)))

    def place(self, *known: tuple[Sequence[int], Index]) -> tuple[Indices, Indices]:
        """`dims` and `inner` where the index variables at some positions count up to what is given,
        and the others are as they are."""
        found, extents = list(self.all), self.extents
        for positions, at in known:
            digits = delinearize(at, [extents[d] for d in positions])
            for d, digit in zip(positions, digits, strict=True):
                found[d] = digit
        return tuple(found[: len(self.dims)]), tuple(found[len(self.dims) :])


@dataclass(frozen=True, eq=False)
class Layers:
    """A region of layers: how many rows there are, and its values in their order. `wide`: whether
    lanes have lots of four columns. Of values that are read again, those are held that take `worth`
    operations."""

    graph: Graph
    rows: int
    values: tuple[Value, ...]
    wide: bool
    worth: int

    def columns(self, extent: int) -> Columns:
        """How lanes hold so many elements of a row."""
        return Columns.of(extent, self.wide)

    @property
    def sparing(self) -> bool:
        """Whether registers are scarce."""
        return self.worth > WORTH_HOLDING[0]

    def of(self, value: Value) -> Columns:
        """How lanes hold a value."""
        return self.columns(value.size(value.free))

    def with_role(self, *roles: Role) -> list[Value]:
        """The values of some roles, in their order."""
        return [value for value in self.values if value.role in roles]


def side_of_rows(value: Value) -> int:
    """Which operand of a product has the rows."""
    rows = {v for d in value.rows for v in value.all[d].variables}
    for number, (_, index) in enumerate(body_reads(value.op, value.dims, value.inner)):
        if any(rows & i.variables for i in index):
            return number
    raise CodegenError(f"{value.op.name} multiplies no rows.")


def sides_of_sum(value: Value) -> tuple[Sequence[int], Sequence[int]]:
    """The dims of a sum of products that come from one operand, and from the other."""
    left = value.op.operands[0].shape.rank - len(value.inner)
    return range(left), range(left, len(value.dims))


def columns_of(value: Value) -> list[Sequence[int]]:
    """The index variables that run along the rows that a value reads: of a sum of products, those
    of either operand."""
    return list(sides_of_sum(value)) if value.role is Role.SUM else [value.along]
