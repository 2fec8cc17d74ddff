"""What differs between register tiles: how dots are added up, and where their results lie."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.ir.expressions import Number
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.sweeps import Key


class Elements(Protocol):
    """How a dot is added up whose results are the elements of the rows."""

    def start(self, dot: Stage) -> Number | None:
        """What its sums start from; None if its first terms replace it."""

    def add(self, dot: Stage, index: Indices, name: str, started: bool) -> None:
        """Adds all its terms to the elements in the array `name`, which has a start or not. The
        dot's results are those at `index`."""


class Sums(Protocol):
    """How a dot along the columns is added up, a few results to a row."""

    def size(self, dot: Stage) -> int:
        """Results per row that a lane adds up."""

    def add_column(self, results: Mapping[Stage, str], weights: dict[Key, str]) -> None:
        """Adds the current column's terms to the arrays `results`; `weights` are the elements that
        these multiply."""

    def add_step(self, results: Mapping[Stage, str], weights: Mapping[Key, str]) -> None:
        """Adds what all columns of a step add together."""

    def finish(self, dot: Stage, partial: str) -> None:
        """Joins what the lanes of a row have, each of which ends with its share of the results."""

    def each(self, dot: Stage, size: int) -> AbstractContextManager[tuple[Index, Index]]:
        """The loop over the results of a row, of `size`, that a lane has: their indices in its
        array, and their numbers."""
