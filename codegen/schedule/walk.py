"""How a thread goes along the rows of a nest: decided before anything is lowered.

Indices are given in the variables of `WHERE`, which lowering replaces by its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.hlo.graph import Op

#: The tile; its grid point where the last tile is not full; the row; the vector of a row, and the
#: element of that.
TILE, POINT, ROW, UNIT, ELEMENT = "tile", "point", "row", "unit", "element"
#: Of register tiles, too: the tile's number in its team's, its row, the lanes' group that has that
#: on tensor cores, and the result of a dot along the columns.
TEAM, TILED, GROUP, RESULT = "team", "tiled", "group", "result"
#: All iterations of a loop are written out, as `unroll` of the IR's loops says.
ALL = -1


@dataclass(frozen=True)
class Live:
    """A value of the elements of a row that stays in registers: the sweep of `level` has it first,
    and later ones need it again."""

    op: Op
    at: Indices
    level: int


@dataclass(frozen=True)
class RowInput:
    """An input that stays in registers as it was loaded, by vectors that begin at `base`. These are
    the same in all rows if it is `steady`; those of the next row are loaded `ahead` of time."""

    op: Op
    base: Index
    steady: bool
    ahead: bool = False


@dataclass(frozen=True)
class Run:
    """Rows that a thread visits together, of one element each or of pairs: `length` of them that
    are `apart` from each other."""

    length: int = 1
    apart: int = 1

    def row_of(self, row: Index, number: int) -> Index:
        """The row of number `number` of run `row`."""
        if self.length == 1:
            return row
        outer = row // self.apart * (self.length * self.apart)
        return outer + number * self.apart + row % self.apart


@dataclass(frozen=True)
class Walk:
    """What a thread does at a time, and what stays in its registers.

    width    elements per access; `vectors` of them are a thread's part of a row
    unrolled the walk along a row is written out vector by vector, so that registers can hold them
    run      the rows that a thread visits together: where each is one element, and where pairs are
             summed up, so that what it reads along them serves all
    stride   rows from one that a thread visits to its next; 0 if it visits one, or repeats others'
    rows     rows of a loop that only sums columns that are under way at once; 0 in other loops
    loads    steps of a loop along a row that are unrolled together; 0 leaves it to the compiler
    announced inputs of later rows are brought to L2 before they are loaded
    row_inputs inputs that stay in registers from row to row, in the order they are loaded
    live     values that stay in registers from sweep to sweep
    picked   elements that the data picks, read before the sweeps that need them

    Of a register tile `live`, and besides:

    depth    by dot that gives elements, the rounds of summed elements that are unrolled together
    once     the dots of one round, whose terms need nothing to be added to
    copies   by streamed dot, the rounds of copies to shared memory that are
    early    vectors of the elements that a thread will have joined are loaded before the dots
    narrow   exponentials of fewer correct bits will do
    """

    width: int = 1
    vectors: int = 1
    unrolled: bool = False
    run: Run = Run()
    stride: int = 0
    rows: int = 0
    loads: int = 0
    announced: bool = False
    row_inputs: tuple[RowInput, ...] = ()
    live: tuple[Live, ...] = ()
    picked: tuple[tuple[Op, Indices], ...] = ()
    depth: Mapping[Stage, int] = field(default_factory=dict)
    once: frozenset[Stage] = frozenset()
    copies: Mapping[Stage, int] = field(default_factory=dict)
    early: bool = False
    narrow: bool = False


ONE_BY_ONE = Walk()
