"""Sectors and lines of memory that the warps of a block touch by one access of their threads.

The terms of an address that do not depend on the thread, such as those of a block or a loop
iteration, move all lanes alike. So the lanes of each warp are evaluated once, for each offset
within a sector at which they may begin.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.count.axes import Array, Axis, Part
from fusionstitch.codegen.count.executions import Executions
from fusionstitch.codegen.count.factors import Factor, lengths
from fusionstitch.codegen.count.values import Large, Sum, Unknown, Value, at
from fusionstitch.costmodel.devices import WARP
from fusionstitch.costmodel.work import LINE_BYTES, SECTOR_BYTES

#: Most offsets within a sector, and sets of active threads, that are counted separately.
OFFSETS, SETS = 2, 4
#: Warps that are looked at where an address has too many values.
SOME = 1 << 6
_APART, _LANES = 1 << 40, "lanes"
_NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Active:
    """Threads of a block that run together, as bytes of booleans, how many they are, and how often
    they do."""

    threads: bytes
    number: int
    times: float


class Sectors:
    """Counts them for the accesses of a kernel, whose threads are an axis."""

    def __init__(self, thread: Axis):
        self.thread = thread
        self._all = [Active(np.ones(thread.extent, bool).tobytes(), thread.extent, 1.0)]
        self._active: dict[Factor, list[Active]] = {}

    def touched(self, address: Value, width: int, runs: Executions) -> tuple[int, int, int]:
        """Sectors of all executions of an access of `width` bytes at an address in bytes; where it
        is not known, each thread has its own. Then as many as there are if what a warp touches
        begins with a sector, because the next warp is there to share the last one of this. Then
        lines, likewise."""
        total, unit, several = runs.total, 0, WARP
        if isinstance(address, Large) and total:
            warps = warps_of(address, runs, self.thread)
            of_sectors, of_lines = (
                round(distinct(warps, width, size=size) / SOME / WARP * total)
                for size in (SECTOR_BYTES, LINE_BYTES)
            )
            return of_sectors, of_sectors, of_lines
        if isinstance(address, Unknown):
            unit, several, address = address.unit, address.alike, address.known
        if not isinstance(address, (int, Sum)) or not total or several == 1:
            return (total * -(-width // SECTOR_BYTES),) * 2 + (total,)
        lanes, begin = b"", address if isinstance(address, int) else address.const
        for part in address.parts if isinstance(address, Sum) else ():
            if self.thread in part.axes:
                lanes = self._lanes(part)
            else:
                begin, unit = begin + part.first, math.gcd(unit, part.unit)
        offset, unit = begin % SECTOR_BYTES, math.gcd(unit, SECTOR_BYTES)
        found = aligned = threads = lines = 0.0
        for one in self._sets(runs.of(self.thread)):
            given = width, several, lanes, one.threads
            threads += one.times * one.number
            shared = _touched(0, SECTOR_BYTES, *given)
            aligned += one.times * shared
            own = _touched(offset, unit, *given) if offset or unit != SECTOR_BYTES else shared
            found += one.times * own
            lines += one.times * _touched(0, SECTOR_BYTES, *given, LINE_BYTES)
        each = total / threads
        return round(found * each), round(aligned * each), round(lines * each)

    def _lanes(self, part: Part) -> bytes:
        """What a part adds by thread; where it also depends on others, on the first of them."""
        found: bytes | None = part.made.get(_LANES)
        if found is None:
            array = part.array
            if array.ndim > 1:
                dim = part.axes.index(self.thread)
                array = array[tuple(slice(None) if n == dim else 0 for n in range(array.ndim))]
            found = part.made[_LANES] = array.tobytes()
        return found

    def _sets(self, factor: Factor | None) -> list[Active]:
        """Which threads run together."""
        if factor is None:
            return self._all
        found = self._active.get(factor)
        if found is None:
            found = self._active[factor] = list(_of(factor, self.thread))
        return found


def warps_of(address: Large, runs: Executions, thread: Axis) -> Array:
    """An address in all lanes of some warps, a row each."""
    lanes = np.arange(WARP)
    points = {axis: at[:SOME, None] for axis, at in runs.points.items()}
    points[thread] = np.minimum(points[thread] // WARP * WARP + lanes, thread.extent - 1)
    return np.broadcast_to(at(address, points), (SOME, WARP))


def _of(factor: Factor, thread: Axis) -> list[Active]:
    dim, starts = factor.axes.index(thread), factor.starts
    rows, own = factor.weights, starts[dim]
    if rows.ndim == 1 and own is None:
        active = rows > 0
        number = int(np.count_nonzero(active))
        return [Active(active.tobytes(), number, factor.total / number)] if number else []
    times: Array = np.ones(1)
    if rows.ndim > 1:
        for number, (axis, begin) in enumerate(zip(factor.axes, starts, strict=True)):
            if number != dim:
                runs = np.ones(axis.extent) if begin is None else lengths(begin, axis)
                times = np.multiply.outer(times, runs).ravel()
        rows = np.moveaxis(rows, dim, -1).reshape(-1, rows.shape[dim])
    else:
        rows = rows.reshape(1, -1)
    if own is not None:
        rows = rows.repeat(lengths(own, thread), axis=1)
    if len(rows) > SETS:
        rows, times = _fewer(rows, times)
    found = []
    for row, weight in zip(rows, times, strict=True):
        active = row > 0
        number = int(active.sum())
        if number:  # a weight that is no condition is that of a loop
            found.append(Active(active.tobytes(), number, float(weight) * int(row.max())))
    return found


def _fewer(rows: Array, times: Array) -> tuple[Array, Array]:
    """All threads as one row, and some of the others for all of them."""
    full = rows.all(axis=1)
    chosen, weights = [], []
    for some in (np.flatnonzero(full), np.flatnonzero(~full & rows.any(axis=1))):
        step = -(-len(some) // SETS) or 1
        for number in range(0, len(some), step):
            chosen.append(rows[some[number]])
            weights.append(times[some[number : number + step]].sum())
    return np.stack(chosen), np.array(weights)


@functools.lru_cache(maxsize=1 << 12)
def _touched(
    offset: int,
    unit: int,
    width: int,
    several: int,
    lanes: bytes,
    threads: bytes,
    size: int = SECTOR_BYTES,
) -> float:
    """Sectors, or lines of another `size`, that the warps of a block touch where `threads` of it
    are active. Each `several` neighbours are somewhere else."""
    active = np.frombuffer(threads, bool)
    missing = -len(active) % WARP
    addresses = np.frombuffer(lanes, np.int64) if lanes else np.zeros(len(active), np.int64)
    if several < WARP:
        addresses = addresses + np.arange(len(active)) // several * _APART
    if missing:
        active = np.pad(active, (0, missing))
        addresses = np.pad(addresses, (0, missing))
    offsets = range(offset % unit, SECTOR_BYTES, unit)[::-1]
    tried = offsets[:: -(-len(offsets) // OFFSETS)]
    found = 0
    for begin in tried:
        warps = (addresses + begin).reshape(-1, WARP)
        found += distinct(warps, width, active.reshape(-1, WARP), size)
    return found / len(tried)


def distinct(
    addresses: Array, width: int, active: Array | None = None, size: int = SECTOR_BYTES
) -> int:
    """Sectors, or lines of another `size`, of accesses of `width` bytes, a row for each warp;
    vectors of up to 16 bytes have one each."""
    ends = [addresses] if width <= 16 else [addresses, addresses + width - 1]
    taken = [end // size for end in ends]
    if active is not None:
        taken = [np.where(active, one, _NOWHERE) for one in taken]
    warps = taken[0] if len(taken) == 1 else np.concatenate(taken, axis=1)
    warps.sort(axis=1)
    found = int((warps[:, 1:] != warps[:, :-1]).sum()) + len(warps)
    return found if active is None else found - int((warps[:, -1] == _NOWHERE).sum())
