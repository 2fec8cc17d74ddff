"""How often a `while` runs, where the program says so: HLO gives no trip counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusionstitch.hlo.graph import INTEGERS, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.tuples import resolved

#: Iterations of a loop whose number the data decides, as priced on both sides.
UNKNOWN_TRIPS = 100


@dataclass(frozen=True)
class Count:
    """What an integer counts: `start`, `start + step`, ..., `trips` times."""

    start: int
    step: int
    trips: int


def count(condition: Op, first: Op, after: Op, is_inside: Callable[[Op], bool]) -> Count | None:
    """The count of an integer that starts as `first` and becomes `after`, in a loop that runs while
    the integer is below (or above) a constant by `condition`. `is_inside` recognizes the ops that
    are the integer in an iteration. None for other integers, and for one that would overflow its
    type."""
    if condition.opcode != "compare" or not is_inside(condition.operands[0]):
        return None
    start, step, stop = integer(first), stepped(after, is_inside), integer(condition.operands[1])
    if start is None or step is None or stop is None:
        return None
    trips = _trips(condition.attrs["direction"], start, step, stop)
    limits = np.iinfo(NUMPY_DTYPES[first.dtype])
    if trips is None or not limits.min <= start + trips * step <= limits.max:
        return None
    return Count(start, step, trips)


@dataclass(frozen=True)
class Counted(Count):
    """A loop that counts element `index` of what it carries."""

    index: int


def counted(loop: Op) -> Counted | None:
    """What counts the iterations of a `while` that carries a tuple."""
    condition, body = loop.called
    init = loop.operands[0]
    if not condition.root.operands or not init.opcode == body.root.opcode == "tuple":
        return None
    index = carried(condition.root.operands[0])
    if index is None:
        return None
    after = resolved(body.root.operands[index])
    found = count(condition.root, init.operands[index], after, lambda op: carried(op) == index)
    return None if found is None else Counted(found.start, found.step, found.trips, index)


def carried(op: Op) -> int | None:
    """The index i when `op` is element i of its graph's parameter."""
    if op.opcode == "get-tuple-element" and op.operands[0].opcode == "parameter":
        index: int = op.attrs["index"]
        return index
    return None


def _trips(direction: str, start: int, step: int, stop: int) -> int | None:
    if direction in ("LE", "GE"):
        direction, stop = direction[0] + "T", stop + (1 if direction == "LE" else -1)
    if direction == "LT" and step > 0:
        return max(0, -(-(stop - start) // step))
    if direction == "GT" and step < 0:
        return max(0, -(-(start - stop) // -step))
    return None


def stepped(after: Op, is_inside: Callable[[Op], bool]) -> int | None:
    """What `after` adds to what is inside."""
    if after.opcode not in ("add", "subtract"):
        return None
    first, second = after.operands
    if is_inside(first):
        added = integer(second)
        return -added if added is not None and after.opcode == "subtract" else added
    return integer(first) if is_inside(second) and after.opcode == "add" else None


def integer(op: Op) -> int | None:
    """The value of a scalar integer, copies of it seen through."""
    while op.opcode == "copy":
        op = op.operands[0]
    if op.dtype not in INTEGERS or op.shape.rank:
        return None
    value = splat(op)
    return None if value is None else int(value)
