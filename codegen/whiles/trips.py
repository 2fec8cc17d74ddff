"""How often the loops of a flat graph turn, and what counts it."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial

from fusionstitch.codegen.whiles.flat import Carried, Flat, Loop
from fusionstitch.hlo.trips import Count, count

#: Iterations of a loop whose number the data decides, as priced on both sides.
UNKNOWN_TRIPS = 100


@dataclass(frozen=True)
class Counter(Count):
    """A carried value that counts the iterations."""

    carried: Carried


def counter(flat: Flat, loop: Loop) -> Counter | None:
    """The counter of a loop, None where the program does not say how often it runs."""
    for c in loop.carried:
        first, after = flat.root(c.first), flat.root(c.next)
        is_inside = partial(operator.is_, flat.parameter(c.inside))
        found = count(flat.root(loop.condition), first, after, is_inside)
        if found is not None:
            return Counter(found.start, found.step, found.trips, c)
    return None


def trips_of(flat: Flat, loop: Loop) -> int:
    """Iterations of a loop, a usual number where the data decides."""
    found = counter(flat, loop)
    return UNKNOWN_TRIPS if found is None else found.trips


def turns(flat: Flat, loops: tuple[Loop, ...]) -> tuple[object, ...]:
    """How often loops turn: for each (turns, those of the loops in it, whether the program says how
    often)."""
    return tuple(
        (trips_of(flat, loop), turns(flat, loop.inner), counter(flat, loop) is not None)
        for loop in loops
    )
