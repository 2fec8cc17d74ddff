"""Where a loop stands: the index of each of its values in terms of the loop's own variables."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from fusionstitch.codegen.index_maps.index import Index, delinearize, linearize
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest
from fusionstitch.codegen.loops.stages import Stage


class Digits:
    """The index digits of every axis of a nest, once its grid point, row and column are bound to
    variables; a tile has `points` grid points."""

    def __init__(self, group: Group, nest: Nest, points: int) -> None:
        self.group, self.nest, self.points = group, nest, points
        self.axes = group.axes
        #: which of the tile's grid points it is
        self.point = Index()
        self.of: dict[int, Index] = {}

    @functools.cached_property
    def points_last(self) -> bool:
        """Whether neighbouring rows are those of neighbouring grid points, not of one: where these
        are what lies together in memory, and each row is one element."""
        if self.nest.inner or not self.nest.rows:
            return False
        return self.points > 1 and all(map(self.group.along_grid, self.nest.stages))

    def point_of(self, row: Index) -> Index:
        """Which of the tile's grid points row number `row` of the tile is of."""
        if self.points_last:
            return row % self.points
        return row // math.prod(map(self.axes.extent, self.nest.rows))

    def bind_rows(self, row: Index, position: Index) -> None:
        """Binds the axes of the rows to row number `row` of the tile and those of the grid to its
        grid point, which is number `position` of all; all others are forgotten."""
        extents = [*map(self.axes.extent, self.nest.rows)]
        if self.points_last:
            *digits, self.point = delinearize(row, [*extents, self.points])
        else:
            self.point, *digits = delinearize(row, [self.points, *extents])
        self.of = dict(zip(self.nest.rows, digits, strict=True))
        self.bind(self.group.grid, position)

    def bind_column(self, column: Index) -> None:
        """Binds the axes along the rows."""
        self.bind(self.nest.inner, column)

    def bind(self, leaves: Sequence[int], indices: Index) -> None:
        """Binds atomic axes to the digits of one number."""
        extents = [self.axes.extent(leaf) for leaf in leaves]
        self.of.update(zip(leaves, delinearize(indices, extents), strict=True))

    def index(self, stage: Stage) -> Indices:
        """Where in a stage's value this is."""
        return self._numbers(self.axes.dims[stage.number])

    def inner(self, stage: Stage) -> Indices:
        """Where among the elements that a stage sums over this is."""
        return self._numbers(self.axes.inner[stage.number])

    def indices(self, stage: Stage) -> tuple[Indices, Indices]:
        """Both of them."""
        return self.index(stage), self.inner(stage)

    def _numbers(self, chains: Sequence[int]) -> Indices:
        found = []
        for axis in chains:
            leaves = [leaf for leaf in self.axes.set.leaves(axis) if self.axes.extent(leaf) != 1]
            extents = [self.axes.extent(leaf) for leaf in leaves]
            found.append(linearize([self.of[leaf] for leaf in leaves], extents))
        return tuple(found)
