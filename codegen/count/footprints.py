"""Which bytes of a buffer are read or written, and how many of them come to a multiprocessor.

An access touches as many elements as its address has values: at most the product over its parts,
and no more than lie between the first and the last. What a block visits again is still in the cache
beside its multiprocessor where all that it visits fits there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fusionstitch.codegen.count.axes import Array, Axis, Part
from fusionstitch.codegen.count.executions import Executions
from fusionstitch.codegen.count.tally import Footprint
from fusionstitch.codegen.count.values import Large, Sum, Value
from fusionstitch.codegen.count.values import at as value_at
from fusionstitch.costmodel.kernel_cost import Again
from fusionstitch.costmodel.work import LINE_BYTES, SECTOR_BYTES

#: Bytes from one access to another that are in its line, as likely as not.
BESIDE = LINE_BYTES // 2


@dataclass(eq=False)
class _Region:
    """What accesses of the same elements of a buffer bring to the multiprocessors: at least `once`,
    all of it `brought`. Each block visits `block` bytes, all of them the same if `common`."""

    block: int
    once: int = 0
    brought: int = 0
    common: bool = False


@dataclass(eq=False)
class Visited:
    """What accesses of one buffer, of `size` bytes, visit: by the first byte, the one after the
    last, and how many at most. The cache beside a multiprocessor keeps arrays of `near` bytes."""

    size: int
    near: int
    parts: dict[tuple[int, int, int], _Region] = field(default_factory=dict)
    #: bytes at points of the same executions, by their mean
    recent: dict[tuple[Executions, int], list[Array]] = field(default_factory=dict)

    def add(self, at: Value, width: int, runs: Executions, sectors: int, grid: Axis) -> int:
        """An access of `width` bytes, so many after the begin. Gives the bytes that come to
        multiprocessors for it alone."""
        total, brought = runs.total, sectors * SECTOR_BYTES
        if isinstance(at, Large) and total:
            values = value_at(at, runs.points)
            if self._has_come(values, runs):
                return 0
            low, high = _in_sectors(int(np.min(values)), int(np.max(values)) + width)
            key = low, high, min(high - low, max(total * width, brought))
            block = high - low
            if block > self.near:  # else it is kept, however often it is visited
                block = min(block, -(-brought // grid.extent))
            return self._visit(key, block, brought, grid)
        if not isinstance(at, (int, Sum)):  # the data decides which
            key = 0, self.size, min(self.size, brought)
            return self._visit(key, self.size, brought, grid)
        found = at if isinstance(at, Sum) else Sum(at, ())
        low, high = _in_sectors(found.ends[0], found.ends[1] + width)
        own = [part for part in found.parts if grid not in part.axes]
        visits = min(_distinct(found.parts, width), max(total * width, brought))
        key = low, high, min(visits, high - low)
        block = min(_distinct(own, width), _span(own) + width)
        return self._visit(key, block, brought, grid, len(own) == len(found.parts))

    def _has_come(self, values: Array, runs: Executions) -> bool:
        """Whether each of these bytes lies beside one that the same thread has just visited, as the
        terms of a short sum do: then its line is there."""
        mean = int(values.mean()) // BESIDE
        for near in range(mean - 1, mean + 2):
            for others in self.recent.get((runs, near), ()):
                if np.abs(values - others).max() < BESIDE:
                    return True
        self.recent.setdefault((runs, mean), []).append(values)
        return False

    def _visit(
        self, key: tuple[int, int, int], block: int, brought: int, grid: Axis, common: bool = False
    ) -> int:
        """Of what is visited, each block has so many bytes at most."""
        once = min(brought, block * grid.extent)
        known = self.parts.setdefault(key, _Region(block))
        known.block = max(known.block, block)
        known.once = max(known.once, once)
        known.brought += brought
        known.common |= common
        return once if block <= self.near else brought

    def closed(self) -> Footprint:
        """All of it."""
        low = min(first for first, _, _ in self.parts)
        high = max(last for _, last, _ in self.parts)
        distinct = sum(visits for _, _, visits in self.parts)
        least = min(distinct, high - low, self.size)
        regions = self.parts.values()
        once = max(least, self._once())
        again = tuple(
            Again(one.block, one.brought - one.once, one.common)
            for one in regions
            if one.brought > one.once
        )
        return Footprint(least, once, again)

    def _once(self) -> int:
        """What comes to multiprocessors of all regions. Where blocks visit as much of several that
        begin within it, as a stencil does of shifted ones, each visits the union of these."""
        once, begun = 0, sorted(self.parts.items(), key=lambda item: item[0])
        while begun:
            (first, _, _), one = begun.pop(0)
            last, together, most = first, one.once, one.once
            apart = []
            for key, other in begun:
                near = abs(other.block - one.block) <= SECTOR_BYTES and one.block <= self.near
                if near and key[0] - last < one.block:
                    last, together = key[0], together + other.once
                    most = max(most, other.once)
                else:
                    apart.append((key, other))
            union = most * (one.block + last - first) // max(1, one.block)
            once, begun = once + min(together, union), apart
        return once


def _in_sectors(low: int, high: int) -> tuple[int, int]:
    """The sectors from a byte to another one: what lies in one of them comes together."""
    return low // SECTOR_BYTES * SECTOR_BYTES, -(-high // SECTOR_BYTES) * SECTOR_BYTES


def _distinct(parts: Sequence[Part], width: int) -> int:
    """How many bytes addresses of these parts visit at most: where they lie apart, in sectors."""
    apart = math.gcd(*(part.unit for part in parts))
    each = max(width, min(SECTOR_BYTES, apart))
    return math.prod(part.values for part in parts) * each


def _span(parts: Sequence[Part]) -> int:
    return sum(part.ends[1] - part.ends[0] for part in parts)
