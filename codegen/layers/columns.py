"""How the lanes of a warp hold the elements of 16 rows.

Tensor cores leave lane 4 g + t columns 2 t and 2 t + 1 of rows g and g + 8, of each 8 columns. They
read the summed elements of the next product from the same lanes, in any order that is the same on
both sides. So a row never leaves its lanes: what a layer gives is what the next one reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.dots.tile import TENSOR_COLUMNS, TENSOR_GROUPS, TENSOR_LANES
from fusionstitch.codegen.index_maps.index import Index

#: Rows of a warp, and how many of them a lane has elements of.
WARP_ROWS, LANE_ROWS = 16, 2
#: Neighbouring columns of a lane: two are an instruction's, four those of two instructions.
PAIR, FOUR = 2, 4


@dataclass(frozen=True)
class Columns:
    """`extent` elements of a row, of which a lane has `lot` neighbours in each `step`.

    Lots of four are one access of memory, and one instruction's summed elements of 16 bits.
    """

    extent: int
    lot: int

    @classmethod
    def of(cls, extent: int, wide: bool) -> Columns:
        """Those of a row: lots of four, where products need them (`wide`) or pairs would not leave
        fewer columns empty."""
        pairs, fours = (-extent % (TENSOR_LANES * lot) for lot in (PAIR, FOUR))
        return cls(extent, FOUR if wide or fours == pairs else PAIR)

    @property
    def unit(self) -> int:
        """Columns of a step."""
        return TENSOR_LANES * self.lot

    @property
    def steps(self) -> int:
        """Steps in which a lane goes through its columns."""
        return -(-self.extent // self.unit)

    @property
    def padded(self) -> int:
        """Columns with the empty ones."""
        return self.steps * self.unit

    @property
    def ragged(self) -> bool:
        """Whether some are empty."""
        return self.padded != self.extent

    @property
    def tiles(self) -> int:
        """Instructions' results side by side."""
        return self.padded // TENSOR_COLUMNS

    @property
    def held(self) -> int:
        """Elements that a lane holds of both of its rows."""
        return LANE_ROWS * self.steps * self.lot

    def column(self, step: Index, member: Index, near: Index) -> Index:
        """The column of lane `member` of a row."""
        return step * self.unit + member * self.lot + near

    def at(self, step: Index, near: Index, row: int) -> Index:
        """Where an array of a lane has the element in that column of its row 0 or 1: in the order
        in which instructions leave it."""
        tile = step * (self.lot // PAIR) + near // PAIR
        return tile * (LANE_ROWS * PAIR) + near % PAIR + row * PAIR

    def result(self, tile: Index, group: Index) -> Index:
        """Which column a product computes at place `group` of an instruction's 8 columns."""
        if self.lot == PAIR:
            return tile * TENSOR_COLUMNS + group
        first = tile // PAIR * self.unit + group // PAIR * FOUR
        return first + tile % PAIR * PAIR + group % PAIR


assert LANE_ROWS * TENSOR_GROUPS == WARP_ROWS
