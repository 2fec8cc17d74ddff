"""Takes elements one by one: dependencies, stream, transfers, events, launch; lets go of them."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from fusionstitch.dag.backends.backend import Backend, DeviceFailure
from fusionstitch.dag.dependencies import connect
from fusionstitch.dag.element import Element, Lane, Storage
from fusionstitch.dag.errors import KernelError
from fusionstitch.dag.lanes import Lanes
from fusionstitch.dag.memory import Memory
from fusionstitch.dag.options import Policies
from fusionstitch.dag.timeline import Clock

#: So much work may wait on the device; then the host waits for the older half of it.
PENDING = 1024
#: Of what may have failed, so many elements are named.
_NAMED = 8

#: Puts an element's work on a stream.
Begin = Callable[[Any, Element], None]


class Engine:
    """The scheduler without its faces to users.

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
        #: what is given to `submit` while a sequence is recorded
        self.recording: list[tuple[Element, Begin]] | None = None
        self._failures: tuple[type[BaseException], ...] = (DeviceFailure, *backend.failures)
        self._events: list[Any] = []
        self._pending: deque[Element] = deque()
        self._count = 0
        self._failed = ""

    def __del__(self) -> None:
        """Memory of arrays is not given back while work runs that uses it."""
        with contextlib.suppress(Exception):
            for element in self._pending:
                if element.done is not None:
                    self.backend.synchronize(element.done)

    # ---- an element, from its call to its event -------------------------------------------------

    def submit(
        self,
        kernel: Any,
        uses: dict[Storage, bool],
        begin: Begin,
        site: tuple[str, int],
        priority: int = 0,
    ) -> Element:
        """Has `begin` put work on a stream that uses these arrays; True for those only read.

        Raises KernelError for work that failed before, and what `begin` raises.
        """
        if self._failed:
            raise KernelError(self._failed)
        if self.recording is not None:
            self.recording.append((Element(len(self.recording), kernel, site, uses), begin))
            return self.recording[-1][0]
        element = Element(self._count, kernel, site, uses)
        self._count += 1
        if self._async:
            connect(element, self._const)
        lane = self.lanes.assign(element, priority)
        self._pending.append(element)
        try:
            self._launch(element, lane, begin)
        except self._failures as error:
            raise self._failure(element, error) from None
        if not self._async:
            self.wait(element)
        elif len(self._pending) >= PENDING:
            self._wait_for_older_half()
        return element

    def _launch(self, element: Element, lane: Lane, begin: Begin) -> None:
        backend, stream, uses = self.backend, lane.handle, element.uses
        try:
            missing = [storage for storage in uses if not storage.on_device]
            if missing and self._prefetch:
                self._send(missing, element, stream)
            for parent in element.parents:
                if parent.lane is not lane:
                    backend.wait(stream, parent.done)
            if missing and not self._prefetch:
                self._send(missing, element, stream)
            for storage in uses:
                sender = storage.uploader
                if sender is not None and sender.lane is not lane:
                    backend.wait(stream, storage.uploaded)
            if self.clock is not None:
                element.begun = self._recorded(stream)
            begin(stream, element)
        except BaseException:
            element.begun = None  # what did not run took no time
            raise
        finally:  # also where nothing was launched: later elements may wait for this one
            element.done = event = self._events.pop() if self._events else self.event()
            backend.record(event, stream)
        self.log.append(element)
        for storage, const in uses.items():
            if not const:
                storage.on_host = False

    def _send(self, missing: list[Storage], element: Element, stream: Any) -> None:
        """Brings arrays to the device that were last written on the host, or never."""
        for storage in missing:
            device = self.memory.on_device(storage)
            host = storage.host if storage.on_host else None
            begun = self._recorded(stream) if self.clock is not None and host is not None else None
            self.backend.upload(device, host, stream)
            storage.on_device = True
            storage.uploader, storage.uploaded = element, self._recorded(stream)
            element.events += (storage.uploaded,)
            if begun is not None:
                element.events += (begun,)
                element.transfers += ((storage, begun, storage.uploaded),)

    def _recorded(self, stream: Any) -> Any:
        event = self.event()
        self.backend.record(event, stream)
        return event

    def event(self) -> Any:
        """An event, new or used before."""
        return self._events.pop() if self._events else self.backend.event(self.clock is not None)

    def give_back(self, event: Any) -> None:
        self._events.append(event)

    # ---- waiting --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises KernelError if work is known to have failed."""
        if self._failed:
            raise KernelError(self._failed)

    def wait(self, element: Element) -> None:
        """Waits on the host for an element, and lets go of all that came before it.

        Raises KernelError for work that failed.
        """
        if element.finished:
            return
        self.until(element.done, element)
        self._finish(element)

    def until(self, event: Any, element: Element | None) -> None:
        """Waits on the host for an event; `element` is whose it is. Raises KernelError."""
        try:
            self.backend.synchronize(event)
        except self._failures as error:
            raise self._failure(element, error) from None

    def wait_for_all(self) -> None:
        """Waits on the host for everything. Raises KernelError."""
        self.check()
        while self._pending:
            self.wait(self._pending[0])
            self._forget_finished()
        self.memory.collect()

    def pending(self) -> list[Element]:
        """The elements that are not known to be finished, in the order of their launches."""
        return [element for element in self._pending if not element.finished]

    def clear(self) -> None:
        """Forgets what ran; nothing may be pending."""
        self.log.clear()
        self.lanes.count = 0
        self._count = 0
        if self.clock is not None:
            self.clock.transfers.clear()
            self.clock.history.clear()

    def _wait_for_older_half(self) -> None:
        for _ in range(PENDING // 2):
            if not self._pending:
                break
            self.wait(self._pending[0])
            self._forget_finished()
        self.memory.collect()

    def _forget_finished(self) -> None:
        while self._pending and self._pending[0].finished:
            self._pending.popleft()

    def _finish(self, element: Element) -> None:
        """The element, all before it on its stream, and all of their ancestors have run."""
        stack = [element]
        while stack:
            last = stack.pop()
            lane = last.lane
            if lane is None:  # it is finished
                continue
            done = None
            while done is not last:
                done = lane.pending.popleft()
                done.finished = True
                stack.extend(done.parents)
                self._release(done)
            if not lane.pending:
                self.lanes.release(lane)
        self._forget_finished()

    def _release(self, element: Element) -> None:
        if self.clock is not None and element.begun is not None:
            element.span = self.clock.span(element)
            self._events.append(element.begun)
        self._events.append(element.done)
        self._events += element.events
        for storage in element.uses:
            if storage.uploader is element:
                storage.uploader = storage.uploaded = None
            if storage.writer is element:
                storage.writer = None
        element.parents = element.events = element.transfers = ()
        element.uses = {}
        element.begun = element.done = element.lane = None

    # ---- what failed ----------------------------------------------------------------------------

    def _failure(self, element: Element | None, error: BaseException) -> KernelError:
        """The error of this call and of all later ones: nothing runs on after a failure."""
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
