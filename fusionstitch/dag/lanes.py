"""Assigns elements to streams."""

from __future__ import annotations

from collections import deque
from typing import Any

from fusionstitch.dag.backends.backend import Backend
from fusionstitch.dag.element import Element, Lane
from fusionstitch.dag.options import Policies


class Lanes:
    """The streams of a scheduler.

    `count` is how many the policies asked for. The backend's streams are never destroyed. Those of
    idle lanes are reused, so a long program has only as many as ran at the same time. `busy` are
    those with pending elements.
    """

    def __init__(self, backend: Backend, policies: Policies) -> None:
        self._backend = backend
        self._reuse = policies.streams == "reuse"
        self._disjoint = policies.parent == "disjoint"
        self._idle: dict[int, deque[Lane]] = {}
        self._handles: dict[int, list[Any]] = {}
        self.busy: dict[Lane, None] = {}
        self.count = 0
        self.handles = 0

    def assign(self, element: Element) -> Lane:
        """The stream of an element whose parents are known."""
        priority = element.work.priority
        for parent in element.parents:
            lane = parent.lane
            if lane.priority == priority and not (parent.passed_on and self._disjoint):
                parent.passed_on = True
                break
        else:
            lane = self._new(priority)
            self.busy[lane] = None
        element.lane = lane
        lane.pending.append(element)
        return lane

    def release(self, lane: Lane) -> None:
        """Takes back a stream without pending elements."""
        del self.busy[lane]
        if self._reuse:
            self._idle.setdefault(lane.priority, deque()).append(lane)
        else:
            self._handles.setdefault(lane.priority, []).append(lane.handle)

    def clear(self) -> None:
        """Restarts the numbering; nothing may be pending."""
        self.count = sum(map(len, self._idle.values()))

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
