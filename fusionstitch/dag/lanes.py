"""Which stream an element goes to."""

from __future__ import annotations

from collections import deque
from typing import Any

from fusionstitch.dag.backends.backend import Backend
from fusionstitch.dag.element import Element, Lane
from fusionstitch.dag.options import Policies


class Lanes:
    """The streams of a scheduler.

    `count` is how many the policies asked for. The backend's own are never destroyed: those of idle
    streams are taken again, so that a long program has as many as ran at once.
    """

    def __init__(self, backend: Backend, policies: Policies) -> None:
        self._backend = backend
        self._reuse = policies.streams == "reuse"
        self._disjoint = policies.parent == "disjoint"
        self._idle: dict[int, deque[Lane]] = {}
        self._handles: dict[int, list[Any]] = {}
        self.count = 0
        self.handles = 0

    def assign(self, element: Element, priority: int) -> Lane:
        """The stream of an element whose parents are known."""
        lane = None
        for parent in element.parents:
            theirs = parent.lane
            free = not (parent.passed_on and self._disjoint)
            if free and theirs is not None and theirs.priority == priority:
                parent.passed_on = True
                lane = theirs
                break
        if lane is None:
            lane = self._new(priority)
        element.lane = lane
        element.lane_number = lane.number
        lane.pending.append(element)
        return lane

    def release(self, lane: Lane) -> None:
        """Takes back a stream on which nothing is pending."""
        if self._reuse:
            self._idle.setdefault(lane.priority, deque()).append(lane)
        else:
            self._handles.setdefault(lane.priority, []).append(lane.handle)

    def _new(self, priority: int) -> Lane:
        if idle := self._idle.get(priority):
            return idle.popleft()
        handles = self._handles.get(priority)
        if handles:
            handle = handles.pop()
        else:
            handle = self._backend.stream(priority)
            self.handles += 1
        self.count += 1
        return Lane(self.count - 1, handle, priority)
