"""Ops of a graph that are a loop in the user's program, and what XLA takes for that loop.

A rule before planning has written the iterations one after the other. XLA alone would not: where
nothing else computes these ops, its loop remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.hlo.graph import Graph


@dataclass(frozen=True)
class Unrolled:
    """A loop: the ids of the instructions that stand for it now, each with that of the body's
    computation and the instruction in it that it is a copy of; and XLA's microseconds."""

    copies: Mapping[int, tuple[int | None, int]]
    us: float


def note(graph: Graph, loops: Sequence[Unrolled]) -> None:
    """Says which ops of a graph were loops, before anything asks."""
    graph.facts[_noted] = tuple(loops)


def noted(graph: Graph) -> tuple[Unrolled, ...]:
    """What was said of a graph."""
    loops: tuple[Unrolled, ...] = graph.facts.get(_noted, ())
    return loops


def _noted(graph: Graph) -> None:
    """The key of these facts."""


def unrolled(graph: Graph, bits: int) -> dict[int, float]:
    """XLA's microseconds for each unrolled loop, by the bitset of those of its ops that are in
    `bits`. What the simplifier made for these alone counts among them."""
    found: dict[int, float] = {}
    for loop in noted(graph):
        own = 0
        for op in reversed(graph.ops):
            if op.origin in loop.copies or (op.origin is None and _is_for(graph, op.id, own)):
                own |= 1 << op.id
        if own & bits:
            found[own & bits] = loop.us
    return found


def _is_for(graph: Graph, ident: int, bits: int) -> bool:
    users = graph.users[ident]
    return bool(users) and all(bits >> user.id & 1 for user in users)
