"""How many iterations the loops of a flat graph have, and what counts them."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import partial

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.while_loops.flat import Carried, Flat, Loop, conjuncts
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.trips import UNKNOWN_TRIPS, Count, count


@dataclass(frozen=True)
class Counter(Count):
    """A carried value that counts the iterations."""

    carried: Carried


def counter(flat: Flat, loop: Loop) -> Counter | None:
    """The counter of a loop, None where the number of iterations is not known. Of several in the
    condition, the one that ends the loop."""
    conditions = conjuncts(flat.root(loop.condition))
    found = [one for condition in conditions if (one := _counted(flat, loop, condition))]
    return min(found, key=lambda one: one.trips) if len(found) == len(conditions) else None


def _counted(flat: Flat, loop: Loop, condition: Op) -> Counter | None:
    """What a condition compares with its last number."""
    for c in loop.carried:
        first, after = flat.root(c.first), flat.root(c.next)
        is_inside = partial(operator.is_, flat.parameter(c.inside))
        found = count(condition, first, after, is_inside)
        if found is not None:
            return Counter(found.start, found.step, found.trips, c)
    return None


def with_counters(flat: Flat) -> tuple[Flat, dict[Loop, str]]:
    """The region whose counters are annotated with the numbers of iterations that they are, and
    the variables that count these, by loop."""
    steps: dict[Loop, str] = {}
    numbers: dict[int, Index] = {}
    for loop in flat.every:
        if count := counter(flat, loop):
            steps[loop] = f"turn_{len(steps)}" if steps else "turn"
            number = variable(steps[loop], max(1, count.trips)) * count.step + count.start
            numbers[count.carried.inside] = number

    def counting(op: Op) -> list[Op] | None:
        number = numbers.get(op.attrs["index"]) if op.opcode == "parameter" else None
        return None if number is None else [annotated(op, counts=number)]

    return replace(flat, graph=rewrite(flat.graph, counting)), steps


def trips_of(flat: Flat, loop: Loop) -> int:
    """Iterations of a loop, a usual number where the data decides."""
    found = counter(flat, loop)
    return UNKNOWN_TRIPS if found is None else found.trips


def iterations(flat: Flat, loops: tuple[Loop, ...]) -> tuple[object, ...]:
    """How many iterations loops have: for each (iterations, those of the loops in it, whether XLA
    knows how many, which takes one comparison)."""
    return tuple(
        (
            trips_of(flat, loop),
            iterations(flat, loop.inner),
            counter(flat, loop) is not None and len(conjuncts(flat.root(loop.condition))) == 1,
        )
        for loop in loops
    )
