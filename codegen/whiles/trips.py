"""How often a loop runs, where the program says so: HLO gives no trip counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.whiles.flat import Carried, Flat, Loop
from fusionstitch.hlo.graph import INTEGERS, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat


@dataclass(frozen=True)
class Counter:
    """A carried integer that counts the iterations: `start`, `start + step`, ..., `trips` times."""

    carried: Carried
    start: int
    step: int
    trips: int


def counter(flat: Flat, loop: Loop) -> Counter | None:
    """What counts the iterations of a loop that runs while a counter is below (or above) a
    constant; None for any other loop, and for counters that would pass the end of their type."""
    condition = flat.root(loop.condition)
    if condition.opcode != "compare" or condition.operands[0].dtype not in INTEGERS:
        return None
    for c in loop.carried:
        inside = flat.parameter(c.inside)
        if condition.operands[0] is not inside or inside.shape.rank:
            continue
        start, step = _integer(flat.root(c.first)), _step(flat.root(c.next), inside)
        stop = _integer(condition.operands[1])
        if start is None or step is None or stop is None:
            continue
        trips = _trips(condition.attrs["direction"], start, step, stop)
        limits = np.iinfo(NUMPY_DTYPES[inside.dtype])
        if trips is not None and limits.min <= start + trips * step <= limits.max:
            return Counter(c, start, step, trips)
    return None


def _trips(direction: str, start: int, step: int, stop: int) -> int | None:
    if direction in ("LE", "GE"):
        direction, stop = direction[0] + "T", stop + (1 if direction == "LE" else -1)
    if direction == "LT" and step > 0:
        return max(0, -(-(stop - start) // step))
    if direction == "GT" and step < 0:
        return max(0, -(-(start - stop) // -step))
    return None


def _step(after: Op, inside: Op) -> int | None:
    """What `after` adds to `inside`."""
    if after.opcode not in ("add", "subtract") or inside not in after.operands:
        return None
    first, second = after.operands
    if after.opcode == "subtract":
        added = _integer(second)
        return -added if first is inside and added is not None else None
    return _integer(second if first is inside else first)


def _integer(op: Op) -> int | None:
    value = splat(op)
    return None if value is None or op.dtype not in INTEGERS else int(value)
