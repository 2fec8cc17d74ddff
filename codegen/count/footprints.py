"""Which bytes of a buffer are read or written, and how many of them come to a multiprocessor.

An access goes over so many places as its address has values: at most as many as those of its parts
together, and no more than lie between the first and the last. What a block visits again is still in
the cache beside its multiprocessor where all that it visits fits there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fusionstitch.codegen.count.axes import Axis, Part
from fusionstitch.codegen.count.executions import Executions
from fusionstitch.codegen.count.tally import Footprint
from fusionstitch.codegen.count.values import Large, Sum, Value
from fusionstitch.codegen.count.values import at as value_at
from fusionstitch.costmodel.work import SECTOR_BYTES

#: An array of up to so many bytes is in the cache beside the multiprocessor when it is read again.
L1_BYTES = 1 << 16


@dataclass(eq=False)
class Visited:
    """What accesses of one buffer, of `size` bytes, visit: by the first byte, the one behind the
    last, and how many at most, the bytes that come to multiprocessors for it."""

    size: int
    parts: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def add(self, at: Value, width: int, runs: Executions, sectors: int, grid: Axis) -> int:
        """An access of `width` bytes, so many behind the begin. Gives the bytes that come to
        multiprocessors for it alone."""
        total, brought = runs.total, sectors * SECTOR_BYTES
        if isinstance(at, Large) and total:
            places = value_at(at, runs.points)
            low, high = int(np.min(places)), int(np.max(places)) + width
            key = low, high, min(high - low, total * width)
            return self._visit(key, high - low, brought, grid)
        if not isinstance(at, (int, Sum)):  # the data decides which
            key = 0, self.size, min(self.size, brought)
            return self._visit(key, self.size, brought, grid)
        found = at if isinstance(at, Sum) else Sum(at, ())
        low, high = found.ends
        own = [part for part in found.parts if grid not in part.axes]
        visits = min(_distinct(found.parts, width), max(total * width, brought))
        key = low, high + width, min(visits, high + width - low)
        return self._visit(key, min(_distinct(own, width), _span(own) + width), brought, grid)

    def _visit(self, key: tuple[int, int, int], block: int, brought: int, grid: Axis) -> int:
        """Of what is visited, each block has so many bytes at most."""
        if block > L1_BYTES:
            self.parts[key] = self.parts.get(key, 0) + brought
            return brought
        once = min(brought, block * grid.extent)
        self.parts[key] = max(self.parts.get(key, 0), once)
        return once

    def closed(self) -> Footprint:
        """All of it."""
        low = min(first for first, _, _ in self.parts)
        high = max(last for _, last, _ in self.parts)
        distinct = sum(visits for _, _, visits in self.parts)
        least = min(distinct, high - low, self.size)
        return Footprint(least, max(least, sum(self.parts.values())))


def _distinct(parts: Sequence[Part], width: int) -> int:
    """How many bytes addresses of these parts visit at most: where they lie apart, in sectors."""
    apart = math.gcd(*(part.unit for part in parts))
    each = max(width, min(SECTOR_BYTES, apart))
    return math.prod(part.values for part in parts) * each


def _span(parts: Sequence[Part]) -> int:
    return sum(part.ends[1] - part.ends[0] for part in parts)
