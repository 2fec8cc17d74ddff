"""Whether what blocks do with a buffer is in an order, in every execution of a launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.ir.blocks import Steps, Touched
from fusionstitch.codegen.ir.elements import Elements
from fusionstitch.codegen.ir.reach import Reach, Sync

_FIRST, _LAST = -(1 << 62), 1 << 62


@dataclass(frozen=True)
class Pair:
    """What two blocks do with a buffer at the same time, or in any order."""

    block: int
    one: Touched
    other_block: int
    other: Touched


class Order:
    """What blocks do with one buffer, and who waits for whom."""

    def __init__(self, name: str, steps: Sequence[Steps], reach: Reach):
        self.reach, self.name = reach, name
        self.touched = [
            (block, one)
            for block, own in enumerate(steps)
            for one in own.touched
            if one.buffer == name
        ]
        ranges = [_range(one.elements) for _, one in self.touched]
        self.first = np.array([first for first, _ in ranges], np.int64)
        self.last = np.array([last for _, last in ranges], np.int64)
        self.blocks = np.array([block for block, _ in self.touched], np.int64)
        self.syncs = np.array([one.syncs for _, one in self.touched], np.int64)
        self.writes = np.array([one.writes for _, one in self.touched], bool)

    def unordered(self) -> Pair | None:
        """A write, and what another block does with an element of it without either waiting for
        the other."""
        for number in np.flatnonzero(self.writes).tolist():
            block, one = self.touched[number]
            near = self._near(number) & ~self._after(number) & (self.blocks != block)
            near[:number] &= ~self.writes[:number]  # was looked at the other way round
            for other_number in np.flatnonzero(near).tolist():
                other_block, other = self.touched[other_number]
                back = self.reach.without(other_block, other.arrivals)
                if back[block] >= one.syncs and _meet(one, other):
                    return Pair(block, one, other_block, other)
        return None

    def unwritten(self) -> tuple[int, Touched] | None:
        """A read of what nobody wrote before."""
        left = ~self.writes
        for number in np.flatnonzero(self.writes).tolist():
            block, one = self.touched[number]
            own = (self.blocks == block) & (self.syncs >= one.syncs)
            for read in np.flatnonzero(left & self._near(number) & (self._after(number) | own)):
                left[read] = not _meet(one, self.touched[read][1])
        return next((self.touched[read] for read in np.flatnonzero(left)), None)

    def _near(self, number: int) -> np.ndarray:
        """What may be of the same elements."""
        return (self.first <= self.last[number]) & (self.last >= self.first[number])

    def _after(self, number: int) -> np.ndarray:
        """What other blocks do only after a write."""
        block, one = self.touched[number]
        return self.reach.without(block, one.arrivals)[self.blocks] < self.syncs


def begun_early(
    name: str, steps: Sequence[Steps], reach: Reach
) -> Iterator[tuple[int, Sync, Touched | None]]:
    """The syncs at counters of a buffer that may come before what sets these to zero, and what that
    is, if there is anything."""
    places = [
        (block, place, sync)
        for block, own in enumerate(steps)
        for place, sync in enumerate(own.syncs)
        if sync.counter[0] == name
    ]
    blocks = np.array([block for block, _, _ in places], np.int64)
    syncs = np.array([place for _, place, _ in places], np.int64)
    elements = np.array([sync.counter[1] for _, _, sync in places], np.int64)
    # before it arrives, a block waits for its own threads
    arrives = np.array([sync.value is None for _, _, sync in places], np.int64)
    begun = np.zeros(len(places), bool)
    for block, own in enumerate(steps):
        for one in (one for one in own.touched if one.buffer == name):
            here = [e for e in np.unique(elements) if _meets(one.elements, Elements(int(e)))]
            of_it = np.isin(elements, here)
            before = reach.without(block, one.arrivals)[blocks] < syncs
            before |= (blocks == block) & (one.syncs < syncs + arrives)
            for number in np.flatnonzero(of_it & ~before):
                yield blocks[number], places[number][2], one
            begun |= of_it
    for number in np.flatnonzero(~begun):
        yield blocks[number], places[number][2], None


def _range(elements: Elements | None) -> tuple[int, int]:
    return (_FIRST, _LAST) if elements is None else (elements.first, elements.last)


def _meet(one: Touched, other: Touched) -> bool:
    return one.elements is None or _meets(other.elements, one.elements)


def _meets(one: Elements | None, other: Elements) -> bool:
    return one is None or one.meets(other)
