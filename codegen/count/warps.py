"""Sectors of memory that the warps of a block touch by one access of their threads.

What an address adds to that of a thread's own part, as a block or a turn of a loop does, moves all
lanes alike; so the lanes of each warp are looked at once, at each offset within a sector that they
may begin at.
"""

from __future__ import annotations

import math

import numpy as np

from fusionstitch.codegen.count.executions import Executions, Factor, lengths
from fusionstitch.codegen.count.values import Array, Axis, Part, Sum, Value
from fusionstitch.costmodel.work import SECTOR_BYTES

WARP = 32
#: Offsets within a sector, and sets of active threads, that are told apart.
OFFSETS, SETS = 4, 4
_NOWHERE = np.iinfo(np.int64).max


class Sectors:
    """Counts them for the accesses of a kernel, whose threads are an axis."""

    def __init__(self, thread: Axis):
        self.thread = thread
        self._known: dict[tuple[object, ...], float] = {}

    def touched(self, address: Value, width: int, runs: Executions) -> int:
        """Sectors of all executions of an access of `width` bytes at an address in bytes; where that
        is not known, each thread has its own."""
        total = runs.total
        if isinstance(address, int):
            address = Sum(address, ())
        if not isinstance(address, Sum) or not total:
            return total * -(-width // SECTOR_BYTES)
        lanes: Array | None = None
        begin, unit = address.const, 0
        for part in address.parts:
            if self.thread in part.axes:
                lanes = self._lanes(part)
            else:
                begin, unit = begin + int(part.array.flat[0]), math.gcd(unit, part.unit)
        begin, unit = begin % SECTOR_BYTES, math.gcd(unit, SECTOR_BYTES)
        key = (None if lanes is None else lanes.tobytes(), begin, unit, width, runs.of(self.thread))
        share = self._known.get(key)
        if share is None:
            share = self._known[key] = self._share(lanes, begin, unit, width, key[-1])
        return round(share * total)

    def _lanes(self, part: Part) -> Array:
        """The bytes that a part adds by thread; where it also depends on others, on the first."""
        place = part.axes.index(self.thread)
        at = tuple(slice(None) if n == place else 0 for n in range(len(part.axes)))
        found: Array = part.array[at]
        return found

    def _share(
        self, lanes: Array | None, begin: int, unit: int, width: int, active: object
    ) -> float:
        """Sectors per execution of a thread."""
        block = self.thread.extent
        addresses = np.zeros(block, np.int64) if lanes is None else lanes
        offsets = range(begin % unit, SECTOR_BYTES, unit)
        step = -(-len(offsets) // OFFSETS)
        sets = _active(active, self.thread) if isinstance(active, Factor) else None
        if sets is None:
            weights, sets = np.ones(1), np.ones((1, block), bool)
        else:
            weights, sets = sets
        executions = float((weights * sets.sum(axis=1)).sum())
        if not executions:
            return 0.0
        found, tried = 0.0, offsets[::step]
        for offset in tried:
            first = (addresses + offset) // SECTOR_BYTES
            last = (addresses + (offset + width - 1)) // SECTOR_BYTES
            each = [first] if width <= 16 else [first, last]
            found += float((weights * _distinct(each, sets)).sum())
        return found / len(tried) / executions


def _active(factor: Factor, thread: Axis) -> tuple[Array, Array]:
    """Which threads run together, a row for each set of them, and how often each row does."""
    place = factor.axes.index(thread)
    weights = factor.weights
    times: Array = np.ones(1)
    for number, (axis, starts) in enumerate(zip(factor.axes, factor.starts, strict=True)):
        if number == place:
            continue
        own = np.ones(axis.extent) if starts is None else lengths(starts, axis)
        times = np.multiply.outer(times, own).ravel()
    rows = np.moveaxis(weights, place, -1).reshape(-1, weights.shape[place])
    starts = factor.starts[place]
    if starts is not None:
        rows = np.repeat(rows, lengths(starts, thread), axis=1)
    times = times * rows.max(axis=1)  # a weight that is no condition is that of a loop
    active = rows > 0
    full = active.all(axis=1)
    kept = [(float(times[full].sum()), np.ones(thread.extent, bool))] if full.any() else []
    others = np.flatnonzero(~full & (times > 0))
    step = -(-len(others) // SETS)
    for number in range(0, len(others), step or 1):
        some = others[number : number + step]
        kept.append((float(times[some].sum()), active[some[0]]))
    if not kept:
        return np.zeros(1), active[:1]
    return np.array([t for t, _ in kept]), np.stack([row for _, row in kept])


def _distinct(each: list[Array], sets: Array) -> Array:
    """How many different sectors the warps touch, for each set of active threads."""
    count, block = sets.shape
    missing = -block % WARP
    parts = []
    for sectors in each:
        taken = np.where(sets, sectors, _NOWHERE)
        if missing:
            taken = np.pad(taken, ((0, 0), (0, missing)), constant_values=_NOWHERE)
        parts.append(taken.reshape(count, -1, WARP))
    lanes = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
    lanes = np.sort(lanes, axis=2)
    found = (lanes[:, :, 1:] != lanes[:, :, :-1]).sum(axis=2) + 1
    found -= lanes[:, :, -1] == _NOWHERE
    total: Array = found.sum(axis=1)
    return total
