"""What counts the iterations of a loop of a flat graph."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial

from fusionstitch.codegen.whiles.flat import Carried, Flat, Loop
from fusionstitch.hlo.trips import Count, count


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
