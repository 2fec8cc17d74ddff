"""Conditions under which an index is in its range."""

from __future__ import annotations

from fusionstitch.codegen.index_maps.maps import Guard
from fusionstitch.codegen.ir.expressions import Expr, Integer, Number, all_of, infix


def holds(guards: tuple[Guard, ...]) -> Expr:
    """Whether all of some guards hold."""
    parts: list[Expr] = []
    for guard in guards:
        index = Integer(guard.index)
        if guard.index.lo < guard.lower:
            parts.append(infix(">=", index, guard.lower))
        if guard.index.hi >= guard.upper:
            parts.append(infix("<", index, guard.upper))
        if guard.stride != 1:
            parts.append(infix("==", infix("%", index, guard.stride), 0))
    return all_of(parts) or Number("true")
