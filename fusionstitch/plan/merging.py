"""Unions of chosen patterns: candidates that no generator offers, from a first plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionstitch.hlo.graph import Graph
from fusionstitch.patterns.contract import contract


def neighbours(graph: Graph, chosen: Sequence[int]) -> Iterator[tuple[int, str]]:
    """(bitset, rule) for every chosen pattern joined with each pattern it reads from directly."""
    needs = contract(graph, chosen).needs
    for number, bits in enumerate(chosen):
        for before in sorted(n for n in needs[number] if n < len(chosen)):
            yield bits | chosen[before], "merged neighbours"
