"""Streams and events without a GPU: queues whose work runs in a random legal order.

Each piece of work also has an interval in simulated time, where streams wait only for each other's
events, as on a device that is never full. So tests can check overlap without noise.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from fusionstitch.dag.backends.backend import DeviceFailure

#: The probability that adding work to a stream runs some at once. Most of it waits for the host.
_EAGER = 0.2


class Mark:
    """What an event stands for from one `record` to the next."""

    __slots__ = ("reached", "time")

    def __init__(self) -> None:
        self.reached = False
        self.time = 0.0


class Event:
    """An event that was never recorded counts as reached."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark = Mark()
        self.mark.reached = True


class _Task:
    """A task in a stream: `run` is work, `marks` an event to be reached, `waits` an event that must
    be reached before. `given` is the host's time when it was added."""

    __slots__ = ("cost", "given", "marks", "run", "waits", "work")

    def __init__(
        self,
        run: Callable[[], None] | None = None,
        cost: float = 0.0,
        marks: Mark | None = None,
        waits: Mark | None = None,
        work: object = None,
    ) -> None:
        self.run, self.cost, self.marks, self.waits, self.work = run, cost, marks, waits, work
        self.given = 0.0


class Stream:
    """A queue of tasks. `weight` is how likely it advances: some streams lag far behind others."""

    __slots__ = ("clock", "priority", "tasks", "weight")

    def __init__(self, priority: int, weight: float) -> None:
        self.priority = priority
        self.weight = weight
        self.tasks: deque[_Task] = deque()
        self.clock = 0.0


class Machine:
    """All streams of one simulated device, and what failed on it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._busy: list[Stream] = []
        self._failed: DeviceFailure | None = None
        self._host = 0.0  # simulated time on the host: that of the last event it waited for

    def stream(self, priority: int) -> Stream:
        return Stream(priority, 10.0 ** self._random.uniform(-2, 2))

    def work(self, stream: Stream, run: Callable[[], None], cost: float, work: object) -> None:
        """Adds work; `cost` is in milliseconds of simulated time."""
        self._add(stream, _Task(run, cost, work=work))

    def record(self, event: Event, stream: Stream) -> None:
        event.mark = Mark()
        self._add(stream, _Task(marks=event.mark))

    def wait(self, stream: Stream, event: Event) -> None:
        self._add(stream, _Task(waits=event.mark))

    def synchronize(self, event: Event) -> None:
        """Runs work until the event is reached. Raises DeviceFailure."""
        while not event.mark.reached and self._failed is None:
            self._step()
        self.check()
        self._host = max(self._host, event.mark.time)

    def drain(self) -> None:
        """Runs all work. Raises DeviceFailure."""
        while self._busy and self._failed is None:
            self._step()
        self.check()

    def check(self) -> None:
        """Raises the DeviceFailure of failed work: as on a GPU, nothing runs after it."""
        if self._failed is not None:
            raise self._failed

    def _add(self, stream: Stream, task: _Task) -> None:
        if not stream.tasks:
            self._busy.append(stream)
        stream.tasks.append(task)
        task.given = self._host
        if self._random.random() < _EAGER and self._failed is None:
            self._step()

    def _step(self) -> None:
        """Runs the first task of one of the streams that can advance."""
        ready = [s for s in self._busy if (mark := s.tasks[0].waits) is None or mark.reached]
        if not ready:
            raise DeviceFailure("The streams wait for each other: a defect in fusionstitch.")
        [stream] = self._random.choices(ready, [s.weight for s in ready])
        task = stream.tasks.popleft()
        if not stream.tasks:
            self._busy.remove(stream)
        stream.clock = max(stream.clock, task.given)
        if task.waits is not None:
            stream.clock = max(stream.clock, task.waits.time)
        if task.run is not None:
            try:
                task.run()
            except Exception as error:
                self._failed = DeviceFailure(str(error), task.work)
        stream.clock += task.cost
        if task.marks is not None:
            task.marks.time = stream.clock
            task.marks.reached = True
