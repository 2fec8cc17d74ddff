"""Runs our work on a thread of ours, so that exceptions raised there are ours and not the user's.

Python runs signal handlers on the main thread, between any two steps. A timeout raised by a handler
could interrupt our work and be taken for a defect. So our work has its own thread, and the caller's
thread only waits: whatever is raised there is the user's. Our threads start without the user's
contexts (NumPy's error state, JAX's configuration).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fusionstitch.runtime.outcome import Failed, caught
from fusionstitch.runtime.threads import start

T = TypeVar("T")

#: Stack size: a program with many threads may ask for small stacks, but plans recurse, and so does
#: MLIR.
_STACK_BYTES = 16 << 20
#: Interval at which the waiting thread notices exceptions that other threads raised in it.
_WAIT_SECONDS = 0.05


class Stopped(BaseException):
    """Raised by `check` if nobody waits for the result any more. Not an Exception, so that no
    `except Exception` takes it for a failure."""


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]):
        self.work = work
        self.stop = False
        self.caller = threading.get_ident()
        self.done = threading.Lock()
        self.done.acquire()
        self.found: list[T | Failed] = []
        self.raised: BaseException | None = None

    def run(self) -> None:
        _here.job = self
        try:
            self.found.append(caught(self.work))
        except BaseException as raised:
            self.raised = raised
        finally:
            self.done.release()


class _Here(threading.local):
    """The job of this thread."""

    job: _Job[Any] | None = None


_here = _Here()


def apart(work: Callable[[], T]) -> T | Failed:
    """The result of `work` on a thread of ours, or its Exception as a `Failed`.

    Exceptions of signal handlers are raised at once, and the work is asked to stop. Work inside
    such work runs on the same thread. So does any work if no thread can be started.
    """
    if _here.job is not None:
        return caught(work)
    job = _Job(work)
    try:
        # not a daemon: a process that exits waits for the next check; otherwise the thread would be
        # cut off inside a library
        if not start(threading.Thread(target=job.run, name="fusionstitch"), _STACK_BYTES):
            return caught(work)
        while not job.done.acquire(timeout=_WAIT_SECONDS):
            pass
    except BaseException:
        job.stop = True
        raise
    if job.raised is not None:
        raise job.raised
    return job.found[0]


def alone(work: Callable[[], T]) -> T:
    """The result of `work` on a thread of ours; raises what it raises."""
    found = apart(work)
    if isinstance(found, Failed):
        raise found.error
    return found


def caller() -> int:
    """The ident of the thread that waits for this work; of this thread if none does."""
    return threading.get_ident() if _here.job is None else _here.job.caller


def checks() -> Callable[[], None]:
    """The `check` of this thread, for threads that it starts."""
    job = _here.job

    def check() -> None:
        if job is not None and job.stop:
            raise Stopped

    return check


def check() -> None:
    """Raises Stopped if this is work of `apart` and its caller was interrupted. Called between the
    steps of everything that may take long."""
    checks()()
