"""Rows of a product that are walked block by block, as those of an attention are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stream:
    """Ids of dots that give the elements of rows walked block by block, of those that sum along
    such rows, and of the ops in between, which are computed once per element
    (codegen/dots/chains.py)."""

    products: frozenset[int]
    sums: frozenset[int]
    between: frozenset[int]

    @property
    def dots(self) -> frozenset[int]:
        return self.products | self.sums


NOTHING = Stream(frozenset(), frozenset(), frozenset())
