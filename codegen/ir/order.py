"""Whether what blocks do with a buffer is in an order, in every execution of a launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.ir.blocks import Steps, Touched
from fusionstitch.codegen.ir.elements import Common, Elements
from fusionstitch.codegen.ir.elements import Steps as Shape
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
        sets = [one.elements for _, one in self.touched]
        self.first = np.array([_FIRST if e is None else e.first for e in sets], np.int64)
        self.last = np.array([_LAST if e is None else e.last for e in sets], np.int64)
        self.blocks = np.array([block for block, _ in self.touched], np.int64)
        self.syncs = np.array([one.syncs for _, one in self.touched], np.int64)
        self.writes = np.array([one.writes for _, one in self.touched], bool)
        #: the steps of sets of elements (None: any), of each by its number
        shapes: dict[Shape | None, int] = {}
        of = [None if e is None else e.steps for e in sets]
        self.shapes = np.array([shapes.setdefault(one, len(shapes)) for one in of], np.int64)
        self.steps = list(shapes)
        self._common: dict[tuple[int, int], Common | None] = {}

    def unordered(self) -> Pair | None:
        """A write, and what another block does with an element of it without either waiting for
        the other."""
        for number in np.flatnonzero(self.writes).tolist():
            block, one = self.touched[number]
            others = ~self._after(number) & (self.blocks != block)
            others[:number] &= ~self.writes[:number]  # was looked at from the other one
            for other_number in self._sharing(number, others).tolist():
                other_block, other = self.touched[other_number]
                if self.reach.without(other_block, other.arrivals)[block] >= one.syncs:
                    return Pair(block, one, other_block, other)
        return None

    def unwritten(self) -> tuple[int, Touched] | None:
        """A read of an element that nothing wrote before."""
        left = ~self.writes
        for number in np.flatnonzero(self.writes).tolist():
            block, one = self.touched[number]
            own = (self.blocks == block) & (self.syncs >= one.syncs)
            left[self._sharing(number, left & (self._after(number) | own))] = False
        return next((self.touched[read] for read in np.flatnonzero(left)), None)

    def _after(self, number: int) -> np.ndarray:
        """What other blocks do only after a write."""
        block, one = self.touched[number]
        return self.reach.without(block, one.arrivals)[self.blocks] < self.syncs

    def _sharing(self, number: int, others: np.ndarray) -> np.ndarray:
        """The numbers of those of some others that may be of the same elements."""
        near = (self.first <= self.last[number]) & (self.last >= self.first[number])
        found = np.flatnonzero(others & near)
        own, meets = int(self.shapes[number]), np.ones(len(found), bool)
        for shape in np.unique(self.shapes[found]).tolist():
            common = self._in_common(own, shape)
            if common is not None:
                of_it = self.shapes[found] == shape
                distances = self.first[found[of_it]] - self.first[number]
                different, positions = np.unique(distances, return_inverse=True)
                meets[of_it] = np.array([common.at(d) for d in different.tolist()])[positions]
        return found[meets]

    def _in_common(self, own: int, other: int) -> Common | None:
        """What sets of two shapes have in common; None where one may be of any elements."""
        if (own, other) not in self._common:
            a, b = self.steps[own], self.steps[other]
            self._common[own, other] = None if a is None or b is None else Common(a, b)
        return self._common[own, other]


def begun_early(
    name: str, steps: Sequence[Steps], reach: Reach
) -> Iterator[tuple[int, Sync, Touched | None]]:
    """The syncs at counters of a buffer that may come before what sets these to zero, and what that
    is, if there is anything."""
    positions = [
        (block, number, sync)
        for block, own in enumerate(steps)
        for number, sync in enumerate(own.syncs)
        if sync.counter[0] == name
    ]
    blocks = np.array([block for block, _, _ in positions], np.int64)
    syncs = np.array([number for _, number, _ in positions], np.int64)
    elements = np.array([sync.counter[1] for _, _, sync in positions], np.int64)
    # before it arrives, a block waits for its own threads
    arrives = np.array([sync.value is None for _, _, sync in positions], np.int64)
    begun = np.zeros(len(positions), bool)
    for block, own in enumerate(steps):
        for one in (one for one in own.touched if one.buffer == name):
            here = [e for e in np.unique(elements) if _meets(one.elements, Elements(int(e)))]
            of_it = np.isin(elements, here)
            before = reach.without(block, one.arrivals)[blocks] < syncs
            before |= (blocks == block) & (one.syncs < syncs + arrives)
            for number in np.flatnonzero(of_it & ~before):
                yield blocks[number], positions[number][2], one
            begun |= of_it
    for number in np.flatnonzero(~begun):
        yield blocks[number], positions[number][2], None


def _meets(one: Elements | None, other: Elements) -> bool:
    return one is None or one.meets(other)
