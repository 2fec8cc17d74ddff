"""How long blocks take that wait for each other by counters: the longest path through what they do.

A block goes through its phases one after the other, and through each as fast as where all blocks
that have it do so at once. Where it waits, it goes on when it came there itself or, if that is
later, when what it waits for has reached it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from fusionstitch.costmodel.kernel_cost import Arrival, Await, Step


@dataclass(frozen=True)
class Links:
    """Microseconds to arrive at a counter, and to wait for arrivals long past. Then those from the
    arrival of the last block to the end of another block's wait for it, by the number of blocks
    that arrive."""

    arrive_us: float
    wait_us: float
    signal_us: Callable[[int], float]


@dataclass
class _Counter:
    """How many `blocks` ever arrive; when they have arrived, and which ones; and who waits for how
    many since when."""

    blocks: int = 0
    arrived: list[tuple[float, int]] = field(default_factory=list)
    waiting: list[tuple[int, int, float]] = field(default_factory=list)


def critical_us(blocks: Sequence[Sequence[Step]], phases: Sequence[float], links: Links) -> float:
    """Until the last block has ended, where each takes so long for each of the phases once. A block
    that waits for ever, which no kernel has, ends there."""
    counters = _counters(blocks)
    done = [0] * len(blocks)
    ready = [(0.0, block) for block in range(len(blocks))]
    last = 0.0

    def waited(block: int, one: Await, since: float) -> float:
        """When a block goes on that waits for as many as have arrived. Its own arrivals it sees by
        the order of its instructions."""
        arrived = counters[one.counter].arrived
        own = since + links.wait_us
        for number in range(one.arrivals - 1, -1, -1):
            time, other = arrived[number]
            if other != block:
                return max(own, time + links.signal_us(counters[one.counter].blocks))
        return own

    while ready:  # in the order of time: arrivals at a counter are, too
        now, block = heappop(ready)
        steps = blocks[block]
        while done[block] < len(steps):
            step = steps[done[block]]
            if isinstance(step, int):
                done[block] += 1
                now += phases[step]
                continue
            if ready and ready[0][0] < now:
                heappush(ready, (now, block))
                break
            counter = counters[step.counter]
            if isinstance(step, Arrival):
                done[block] += 1
                now += links.arrive_us
                counter.arrived.append((now, block))
                while counter.waiting and counter.waiting[0][0] <= len(counter.arrived):
                    _, other, since = heappop(counter.waiting)
                    one = blocks[other][done[other]]
                    assert isinstance(one, Await)
                    done[other] += 1
                    heappush(ready, (waited(other, one, since), other))
            elif len(counter.arrived) < step.arrivals:
                heappush(counter.waiting, (step.arrivals, block, now))
                break
            else:
                done[block] += 1
                now = waited(block, step, now)
        last = max(last, now)
    return last


def _counters(blocks: Sequence[Sequence[Step]]) -> dict[int, _Counter]:
    found: dict[int, _Counter] = {}
    for steps in blocks:
        for step in steps:
            if not isinstance(step, int):
                found.setdefault(step.counter, _Counter())
        for number in {step.counter for step in steps if isinstance(step, Arrival)}:
            found[number].blocks += 1
    return found
