"""Work on a thread of ours, so that what is raised there is ours and nothing of the user's.

Python runs signal handlers on the main thread, between any two steps of what runs there: a timeout
that a handler raises could come out of the middle of ours and be taken for a defect. So our work
has a thread of its own, and the caller's thread only waits: whatever is raised there is the user's.
A thread of ours starts without the user's contexts (NumPy's error state, JAX's configuration).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fusionstitch.runtime.outcome import Failed, caught
from fusionstitch.runtime.threads import start

T = TypeVar("T")

#: A program may have asked for small stacks, for many threads; plans recurse, and so does MLIR.
_STACK_BYTES = 16 << 20
#: How often the waiting thread looks whether another one has raised something in it.
_WAIT_SECONDS = 0.05


class Stopped(BaseException):
    """Raised by `check` where nobody waits for the result any more. No `except Exception` is to
    take it for a failure."""


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
    """What `work` returns, or the Exception that it raised as a `Failed`.

    What comes out of signal handlers meanwhile is raised at once, and the work is told to stop.
    Inside such work, and where no thread can be had, it runs here.
    """
    if _here.job is not None:
        return caught(work)
    job = _Job(work)
    try:
        # no daemon: a process that ends waits for the next check, or the thread would be cut off
        # inside a library
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
    """What `work` returns on a thread of ours; raises what it raises."""
    found = apart(work)
    if isinstance(found, Failed):
        raise found.error
    return found


def caller() -> int:
    """The thread that waits for this work, by its ident; this one where none does."""
    return threading.get_ident() if _here.job is None else _here.job.caller


def checks() -> Callable[[], None]:
    """The `check` of this thread, for threads that it starts."""
    job = _here.job

    def check() -> None:
        if job is not None and job.stop:
            raise Stopped

    return check


def check() -> None:
    """Raises Stopped where this is work apart and its caller has been interrupted. Called between
    the steps of all that may take long."""
    checks()()
