"""The longest chain of instructions that wait for each other, in cycles.

A warp issues its instructions in order and goes on while their results are under way. So a lone
thread takes as long as its longest chain of dependent instructions, not as all of them. For each
value the time is known at which it is there. Loads of global memory take no time here:
`pressure.py` counts it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fusionstitch.codegen.ir.expressions import Element, Expr, Integer, Name
from fusionstitch.codegen.ir.walk import names

#: A variable, a buffer of shared memory as a whole, or an element of an array by its index as it is
#: spelled.
Key = tuple[str, Expr | None]


@dataclass(eq=False)
class Frame:
    """The body of a loop, which began at a time: the variables that it declares, the values that
    it read before it wrote them, and those that it wrote."""

    began: float = 0.0
    local: set[str] = field(default_factory=set)
    awaited: set[Key] = field(default_factory=set)
    wrote: dict[Key, None] = field(default_factory=dict)


class Chain:
    """When values are there: those in `ready`, and all others by `settled`; the last of all so far
    at `last`. `frame` is that of the innermost loop."""

    def __init__(self) -> None:
        self.ready: dict[Key, float] = {}
        self.settled = self.last = 0.0
        self.frame = Frame()

    def read(self, key: Key) -> float:
        """When a variable or an element is there."""
        name, index = key
        if key not in self.frame.wrote:
            self.frame.awaited.add(key)
        if key in self.ready or index is None:
            return self.ready.get(key, self.settled)
        own = [time for (other, _), time in self.ready.items() if other == name]
        return max(own, default=self.settled)

    def write(self, key: Key, time: float) -> None:
        """A variable or an element gets a value."""
        self.ready[key] = time
        self.frame.wrote[key] = None
        self.last = max(self.last, time)

    def declare(self, name: str, time: float) -> None:
        """A variable of the innermost loop."""
        self.frame.local.add(name)
        self.write((name, None), time)

    def swap(self, left: str, right: str) -> None:
        """Two buffers change names."""
        times = [self.ready.get((name, None), self.settled) for name in (left, right)]
        self.write((left, None), times[1])
        self.write((right, None), times[0])

    def after(self, times: Iterable[float], cycles: float) -> float:
        """When what takes so many cycles has its result, by when its operands are there."""
        time = max(times, default=self.settled) + cycles
        self.last = max(self.last, time)
        return time

    def settle(self) -> None:
        """All that was begun is there."""
        self.ready.clear()
        self.settled = self.last

    def begin(self) -> Frame:
        """The first iteration of a loop begins. Gives the frame that it stands in, for its
        `end`."""
        self.settle()
        outer, self.frame = self.frame, Frame(self.settled)
        return outer

    def end(self, outer: Frame, iterations: int, variable: str) -> None:
        """The first iteration has ended, and the others are like it: each begins when what it needs
        of the one before is there. Elements whose index has the loop's `variable` differ in each
        iteration."""
        own = self.frame
        waits = [self.settled - own.began]
        for name, index in own.wrote:
            apart = variable in _variables(index)
            if name not in own.local and not apart and (name, index) in own.awaited:
                waits.append(self.ready.get((name, index), self.settled) - own.began)
        self.last += max(0, iterations - 1) * max(waits)
        self.settle()
        outer.awaited.update(key for key in own.awaited if key[0] not in own.local)
        outer.wrote.update({key: None for key in own.wrote if key[0] not in own.local})
        self.frame = outer

    def back_to(self, time: float) -> None:
        """What came since does not count."""
        self.ready.clear()
        self.settled = self.last = time

    def go_on(self, cycles: float) -> None:
        """So much more time has passed."""
        self.back_to(self.last + cycles)


def key(target: Expr) -> Key:
    """That of a variable, or of an element of an array."""
    match target:
        case Name(name):
            return name, None
        case Element(Name(name), at):
            return name, at
    return "", target


def _variables(index: Expr | None) -> frozenset[str]:
    if isinstance(index, Integer):
        return frozenset(variable.name for variable in index.index.variables)
    return frozenset(names(index)) if index is not None else frozenset()
