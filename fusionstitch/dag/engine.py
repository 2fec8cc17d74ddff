"""Processes elements one by one: dependencies, stream, transfers, events, launch; frees them
later."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from fusionstitch.dag.backends.backend import Backend, DeviceFailure
from fusionstitch.dag.dependencies import connect
from fusionstitch.dag.element import Element, Lane, Storage
from fusionstitch.dag.errors import KernelError
from fusionstitch.dag.lanes import Lanes
from fusionstitch.dag.memory import Memory
from fusionstitch.dag.options import Policies
from fusionstitch.dag.timeline import Clock

T = TypeVar("T")

#: The most elements that may be pending; beyond that the host waits for the older half.
PENDING = 1024
#: The most elements named in an error, of those that may have failed.
_NAMED = 8


class Engine:
    """The scheduler without its user interface.

    `log` has the elements of the last `remembered` launches, finished or not.
    """

    def __init__(self, backend: Backend, policies: Policies, remembered: int) -> None:
        self.backend = backend
        self.policies = policies
        self._async = policies.policy == "async"
        self._const, self._prefetch = policies.const, policies.prefetch
        self.memory = Memory(backend)
        self.lanes = Lanes(backend, policies)
        self.clock = Clock(backend, remembered) if policies.timing else None
        self.log: deque[Element] = deque(maxlen=remembered)
        #: elements submitted while a sequence is recorded
        self.recording: list[Element] | None = None
        self._failures: tuple[type[BaseException], ...] = (DeviceFailure, *backend.failures)
        self._events: list[Any] = []
        self._count = self._finished = 0
        self._failed = ""

    def __del__(self) -> None:
        """Array memory is not freed while work that uses it is running."""
        with contextlib.suppress(Exception):
            for lane in self.lanes.busy:
                self.backend.synchronize(lane.pending[-1].done)

    # ---- an element, from its call to its event -------------------------------------------------

    def submit(self, element: Element) -> None:
        """Puts the element's work on a stream, after everything that it depends on.

        Raises KernelError for work that failed before, and what `Work.begin` raises.
        """
        if self._failed:
            raise KernelError(self._failed)
        if self.recording is not None:
            element.number = len(self.recording)
            self.recording.append(element)
            return
        element.number = self._count
        self._count += 1
        if self._async:
            connect(element, self._const)
        lane = self.lanes.assign(element)
        backend, stream, uses = self.backend, lane.handle, element.uses
        try:
            unsettled: tuple[Storage, ...] = ()
            for storage, const in uses.items():
                sender = storage.sender
                if not storage.on_device or (sender is not None and sender.lane is not lane):
                    unsettled += (storage,)
                elif not const:
                    storage.on_host, storage.lent = False, None
            if unsettled and self._prefetch:
                self._settle(unsettled, element, lane)
            for parent in element.parents:
                if parent.lane is not lane:
                    backend.wait(stream, parent.done)
            if unsettled and not self._prefetch:
                self._settle(unsettled, element, lane)
            if self.clock is not None:
                element.begun = self.recorded(stream)
            element.work.begin(element, stream)
            element.done = event = self._events.pop() if self._events else self.event()
            backend.record(event, stream)
        except BaseException as error:
            self._refused(element, error)
            raise
        element.arguments = None
        self.log.append(element)
        for storage in unsettled:
            if not uses[storage]:
                storage.on_host, storage.lent = False, None
        if not self._async:
            self.wait(element)
        elif self._count - self._finished >= PENDING:
            self._wait_for_older_half()

    def _refused(self, element: Element, error: BaseException) -> None:
        """Cleans up after a failed launch; later elements may still wait for this one.

        Raises KernelError if the reason is that work failed before.
        """
        element.begun = element.arguments = None  # what did not run has no time
        if isinstance(error, self._failures):
            raise self._failure(element, error) from None
        element.done = self.recorded(element.lane.handle)
        if not self._async:
            self.wait(element)

    def _settle(self, unsettled: tuple[Storage, ...], element: Element, lane: Lane) -> None:
        """Brings arrays to the device that were last written on the host, were never written, or
        belong to JAX. Makes the stream wait for those that arrive on another one."""
        for storage in unsettled:
            if storage.on_device:
                self.backend.wait(lane.handle, storage.sent)
            elif storage.lent is None or not element.work.of_jax:
                self._send(storage, element, lane.handle)

    def _send(self, storage: Storage, element: Element, stream: Any) -> None:
        begun = None
        if storage.lent is not None:
            self.memory.take(storage, stream)
        else:
            device = self.memory.on_device(storage)
            host = storage.host if storage.on_host else None
            if self.clock is not None and host is not None:
                begun = self.recorded(stream)
            self.backend.upload(device, host, stream)
            storage.on_device = True
        storage.sender, storage.sent = element, self.recorded(stream)
        element.sent += ((storage, begun, storage.sent),)

    def recorded(self, stream: Any) -> Any:
        """An event after the present work on a stream."""
        event = self.event()
        self.backend.record(event, stream)
        return event

    def event(self) -> Any:
        """A new or recycled event."""
        return self._events.pop() if self._events else self.backend.event(self.clock is not None)

    def give_back(self, event: Any) -> None:
        self._events.append(event)

    # ---- waiting --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises KernelError if work is known to have failed."""
        if self._failed:
            raise KernelError(self._failed)

    def wait(self, element: Element) -> None:
        """Waits on the host for an element, and frees everything that came before it.

        Raises KernelError for work that failed.
        """
        if element.finished:
            return
        self.until(element.done, element)
        self._finish(element)

    def until(self, event: Any, element: Element | None) -> None:
        """Waits on the host for an event of `element`. Raises KernelError."""
        self.guarded(element, self.backend.synchronize, event)

    def guarded(self, element: Element | None, call: Callable[..., T], *args: Any) -> T:
        """The result of a call. Raises KernelError if it reports a failure of `element`'s work or
        of any earlier work."""
        try:
            return call(*args)
        except self._failures as error:
            raise self._failure(element, error) from None

    def collect(self) -> None:
        """Frees memory that is no longer used. Raises KernelError."""
        self.guarded(None, self.memory.collect)

    def wait_for_all(self) -> None:
        """Waits on the host for everything. Raises KernelError."""
        self.check()
        while self.lanes.busy:
            self.wait(next(iter(self.lanes.busy)).pending[-1])
        self.collect()

    def pending(self) -> list[Element]:
        """The elements not known to be finished, in launch order."""
        pending = [element for lane in self.lanes.busy for element in lane.pending]
        return sorted(pending, key=lambda element: element.number)

    def clear(self) -> None:
        """Forgets what ran; nothing may be pending."""
        self.log.clear()
        self.lanes.clear()
        self._count = self._finished = 0
        if self.clock is not None:
            self.clock.transfers.clear()
            self.clock.history.clear()

    def _wait_for_older_half(self) -> None:
        for element in self.pending()[: PENDING // 2]:
            self.wait(element)
        self.collect()

    def _finish(self, element: Element) -> None:
        """Marks as finished the element, all before it on its stream, and their ancestors."""
        stack = [element]
        while stack:
            last = stack.pop()
            if last.finished:
                continue
            lane = last.lane
            done = None
            while done is not last:
                done = lane.pending.popleft()
                done.finished = True
                stack.extend(done.parents)
                self._release(done)
            if not lane.pending:
                self.lanes.release(lane)

    def _release(self, element: Element) -> None:
        self._finished += 1
        if self.clock is not None and element.begun is not None:
            element.span = self.clock.span(element)
            self._events.append(element.begun)
        self._events.append(element.done)
        for storage, begun, sent in element.sent:
            if begun is not None:
                self._events.append(begun)
            self._events.append(sent)
            if storage.sender is element:
                storage.sender = storage.sent = None
        for storage in element.uses:
            if storage.writer is element:
                storage.writer = None
        element.parents = element.sent = ()
        element.uses = {}
        element.begun = element.done = None

    # ---- what failed ----------------------------------------------------------------------------

    def _failure(self, element: Element | None, error: BaseException) -> KernelError:
        """The error of this call and all later ones: nothing runs after a failure."""
        known = error.work if isinstance(error, DeviceFailure) else None
        if isinstance(known, Element):
            who = f"{known} failed on the device"
        else:
            who = _one_of(self._may_have_failed(element))
        self._failed = f"{who}: {error} What was launched after it may not have run; {_NEXT}"
        return KernelError(self._failed)

    def _may_have_failed(self, element: Element | None) -> list[Element]:
        pending = self.pending()
        return pending if element is None else [e for e in pending if e.number <= element.number]


_NEXT = "make a new scheduler, in a new process if it runs on CUDA."


def _one_of(elements: list[Element]) -> str:
    if len(elements) == 1:
        return f"{elements[0]} failed on the device"
    named = ", ".join(map(str, elements[:_NAMED]))
    more = f" and {len(elements) - _NAMED} more" * (len(elements) > _NAMED)
    return f"One of these failed on the device, in the order of their launches: {named}{more}"
