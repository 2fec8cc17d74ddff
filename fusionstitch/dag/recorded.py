"""Sequences of kernels that are recorded once and then launched as one: a CUDA graph on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

from fusionstitch.dag.access import Access
from fusionstitch.dag.array import Array
from fusionstitch.dag.dependencies import connect
from fusionstitch.dag.element import Element, Storage, Work
from fusionstitch.dag.emitted import Emitted
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.errors import ArrayError, LaunchError
from fusionstitch.dag.kernel import Launch
from fusionstitch.dag.lanes import Lanes

#: The most combinations of arguments whose recordings are stored.
_MOST_RECORDINGS = 16


class Recorded(Work):
    """A function whose launches are recorded; made by `Scheduler.recorded`."""

    def __init__(self, name: str, fun: Callable[..., Any], engine: Engine, access: Access) -> None:
        self.name = name
        self._fun = fun
        self._engine = engine
        self._access = access
        self._recordings: dict[Hashable, _Recording] = {}

    def __call__(self, *args: Any) -> None:
        """Launches what the function launches for these arguments: arrays and numbers.

        The function itself runs only for new arguments. Raises LaunchError for what cannot be
        recorded: anything but kernels, and arguments that are not hashable. Raises ArrayError if
        the function accesses arrays on the host, or makes some.
        """
        key = tuple(arg.storage if type(arg) is Array else arg for arg in args)
        try:
            recording = self._recordings.get(key)
        except TypeError as error:
            raise LaunchError(
                f"{self.name} is recorded for its arguments, which are arrays of the scheduler and "
                f"numbers: {error}."
            ) from None
        if recording is None:
            recording = _Recording(self._engine, self._traced(args))
            while len(self._recordings) >= _MOST_RECORDINGS:
                del self._recordings[next(iter(self._recordings))]
            self._recordings[key] = recording
        for storage in recording.uses:
            if storage.given_away:
                raise ArrayError(
                    f"{self.name} uses {storage.label}, which cannot be used: {storage.readonly}."
                )
        frame = sys._getframe(1)
        site = (frame.f_code, frame.f_lasti)
        self._engine.submit(Element(self, (recording,), dict(recording.uses), site))

    def begin(self, element: Element, stream: Any) -> None:
        [recording] = element.arguments
        recording.launch(stream)

    def _traced(self, args: tuple[Any, ...]) -> list[Element]:
        engine, access = self._engine, self._access
        if engine.recording is not None:
            raise LaunchError(f"{self.name} cannot be called while another sequence is recorded.")
        engine.recording = []
        access.closed = (
            f"{self.name} is being recorded: it runs only once, so it cannot make arrays, or read "
            "or write them on the host. Do that around it."
        )
        try:
            self._fun(*args)
            return engine.recording
        finally:
            engine.recording = None
            access.closed = ""

    def __repr__(self) -> str:
        return f"Recorded {self.name}"


class _Recording:
    """Launches with their own DAG and streams, and the arrays that they use.

    The memory of these arrays is not freed while the recording exists.
    """

    def __init__(self, engine: Engine, steps: list[Element]) -> None:
        self._engine = engine
        self._steps = steps
        self.uses: dict[Storage, bool] = {}
        uses: dict[Storage, bool] = {}
        for element in steps:
            if not isinstance(element.work, Launch | Emitted):
                raise LaunchError(
                    f"{element} cannot be recorded: a recorded sequence has kernels alone."
                )
            for storage, const in element.uses.items():
                uses[storage] = const and uses.get(storage, True)
        for storage in uses:
            storage.recordings += 1
        self.uses = uses
        self._lanes = self._planned()
        backend = engine.backend
        self._done = [backend.event(False) for _ in steps]
        self._fork = backend.event(False)
        self._joins = {number: backend.event(False) for number in self._lanes}
        self._launch: Callable[[Any], None] | None = None

    def __del__(self) -> None:
        for storage in self.uses:
            storage.recordings -= 1

    def launch(self, stream: Any) -> None:
        """Launches all of it on a stream; the arrays are on the device by then."""
        if self._launch is None:
            self._launch = self._engine.backend.recorded(self._enqueue)
        self._launch(stream)

    def _planned(self) -> dict[int, Any]:
        """Finds parents and streams as for single launches; returns the streams by number."""
        engine = self._engine
        if engine.policies.policy == "sync":
            return {}
        lanes = Lanes(engine.backend, engine.policies)
        own: dict[Storage, Storage] = {}
        for element in self._steps:
            element.uses = {
                own.setdefault(s, Storage(s.shape, s.dtype, s.label)): const
                for s, const in element.uses.items()
            }
            connect(element, engine.policies.const)
            lanes.assign(element)
        return {e.lane.number: e.lane.handle for e in self._steps}

    def _enqueue(self, origin: Any) -> None:
        """Enqueues everything after the present work on `origin`; later work there waits for all of
        it."""
        backend = self._engine.backend
        backend.record(self._fork, origin)
        for stream in self._lanes.values():
            backend.wait(stream, self._fork)
        for element, done in zip(self._steps, self._done, strict=True):
            stream = self._lanes[element.lane.number] if self._lanes else origin
            for parent in element.parents:
                if parent.lane is not element.lane:
                    backend.wait(stream, self._done[parent.number])
            element.work.begin(element, stream)
            backend.record(done, stream)
        for lane, stream in self._lanes.items():
            backend.record(self._joins[lane], stream)
            backend.wait(origin, self._joins[lane])
