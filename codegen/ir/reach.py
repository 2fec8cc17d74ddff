"""How far blocks that wait for each other by counters can get while one of them is stopped.

Counters only go up, so the order in which blocks go on does not matter: as long as any block can go
on, all reach the same statements in the end. So block A does something before block B does another
thing, in every execution of a launch, if B does not get there while A is stopped before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from fusionstitch.codegen.ir.statements import Statement

#: A counter: the buffer, and the element of it.
Counter = tuple[str, int]


@dataclass(frozen=True)
class Sync:
    """A block arrives at a counter, or waits until it has a value."""

    counter: Counter
    value: int | None
    at: Statement


@dataclass(frozen=True)
class Stuck:
    """A block that waits for ever, where, and how many arrive at the counter it waits for."""

    block: int
    sync: Sync
    arrived: int


class Reach:
    """The syncs of each block in the order of the program, for blocks that all run at once."""

    def __init__(self, blocks: Sequence[Sequence[Sync]]):
        numbers: dict[Counter, int] = {}
        self.blocks = blocks
        self.syncs = [
            [(numbers.setdefault(one.counter, len(numbers)), one.value) for one in syncs]
            for syncs in blocks
        ]
        self.counters = len(numbers)
        self._known: dict[int, list[np.ndarray]] = {}

    def stuck(self) -> Stuck | None:
        """The first block that waits for ever."""
        run = _Run(self, stopped=-1)
        run.go_on()
        for block, at in enumerate(run.at):
            if at < len(self.syncs[block]):
                counter, _ = self.syncs[block][at]
                return Stuck(block, self.blocks[block][at], run.counts[counter])
        return None

    def without(self, block: int, arrivals: int) -> np.ndarray:
        """By block, how many syncs it has done while one block has arrived so often, and stands
        still before it arrives again."""
        if block not in self._known:
            run = _Run(self, stopped=block)
            known = [run.go_on()]
            while run.arrive():
                known.append(run.go_on())
            self._known[block] = known
        return self._known[block][arrivals]


class _Run:
    """A launch in which a block is `stopped` before each time that it arrives."""

    def __init__(self, reach: Reach, stopped: int):
        self.syncs, self.stopped = reach.syncs, stopped
        self.at = [0] * len(self.syncs)
        self.counts = [0] * reach.counters
        #: by counter, the values that blocks wait for, the least first
        self.waiting: list[list[tuple[int, int]]] = [[] for _ in range(reach.counters)]
        self.ready = deque(range(len(self.syncs)))

    def go_on(self) -> np.ndarray:
        """Has all blocks go on as far as they come, and says how far that is."""
        while self.ready:
            self._run(self.ready.popleft())
        return np.array(self.at, np.int32)

    def arrive(self) -> bool:
        """Has the block that is held arrive; False if it does not stand before that."""
        syncs, at = self.syncs[self.stopped], self.at[self.stopped]
        if at == len(syncs) or syncs[at][1] is not None:
            return False
        self._count(syncs[at][0])
        self.at[self.stopped] += 1
        self.ready.append(self.stopped)
        return True

    def _run(self, block: int) -> None:
        syncs, at = self.syncs[block], self.at[block]
        while at < len(syncs):
            counter, value = syncs[at]
            if value is None:
                if block == self.stopped:
                    break
                self._count(counter)
            elif self.counts[counter] < value:
                heappush(self.waiting[counter], (value, block))
                break
            at += 1
        self.at[block] = at

    def _count(self, counter: int) -> None:
        self.counts[counter] += 1
        waiting = self.waiting[counter]
        while waiting and waiting[0][0] <= self.counts[counter]:
            _, block = heappop(waiting)
            self.ready.append(block)
